"""Differentially private steps, for one model or a stack: each record's gradient clipped, the sum noised.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy, 2016. Algorithm 1.
Differs from the paper: batches are Poisson samples of unequal size, and the divisor is the expected size, not the drawn one.

This is the step of a recipe, for audits behind the defence; whoever trains a large network wants `engram.private`, which
clips without per-record gradients.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from engram import check
from engram.accounting import Composed, Gaussian, PoissonSampled, epsilon
from engram.train.stack import Models, Stack
from engram.train.steps import Batch, Loss, Take, Training

AT_ONCE = 2**26  # numbers of per-record gradients held at a time
SURELY = 1 - 1e-5  # float32 sums may come out short by this much, and a clipped gradient must not stand above its bound


@dataclass(frozen=True)
class Private:
    """Clip each record's gradient to `clip_norm`, add noise of `noise_multiplier` times that, divide by the expected batch.

    Neighbouring: one record is replaced by one that contributes nothing, so the number of records is public.
    """

    noise_multiplier: float
    clip_norm: float = 1.0
    rate: float = 0.1  # at which each record is sampled
    beside: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check.at_least("noise_multiplier", self.noise_multiplier, 0.0)
        check.positive("clip_norm", self.clip_norm)
        check.fraction("rate", self.rate, one=True)

    def __call__(self, training: Training) -> Take:
        refuse_mixing(training.models)
        streams = [_stream(seed.child("private noise").number, training) for seed in training.seeds]
        expected = self.rate * training.records

        def take(batch: Batch) -> None:
            sums = clipped_sums(training.models, training.loss, batch, self.clip_norm)
            for gradient, total in zip(training.models.flat.gradients, sums, strict=True):
                noise = torch.stack([_normal(total.shape[1:], stream) for stream in streams])
                noised = (total + self.noise_multiplier * self.clip_norm * noise) / expected
                gradient.copy_(noised.view(gradient.shape))
            training.optimiser.step()

        return take

    def epsilon(self, steps: int, delta: float) -> float:
        """What so many steps cost, if their noise was not simulated."""
        return epsilon(Composed((PoissonSampled(self.rate, Gaussian(self.noise_multiplier)), steps)), delta)


def clipped_sums(models: Models, loss: Loss, batch: Batch, clip_norm: float) -> list[Tensor]:
    """For every parameter, the sum of clipped per-record gradients; each [model, ...]"""
    if isinstance(models, Stack):
        found = ghost_sums(models, loss, batch, clip_norm)
        if found is not None:
            return found
    return instantiated_sums(models, loss, batch, clip_norm)


def ghost_sums(models: Stack, loss: Loss, batch: Batch, clip_norm: float) -> list[Tensor] | None:
    """Without per-record gradients, where all that is trained are linear layers; else None.

    Goodfellow: Efficient Per-Example Gradient Computations, 2015: of a linear layer, the squared norm of a record's
    gradient is that of its input times that of the gradient of its output.
    """
    models.taken = []
    losses = loss(models(batch.x, shared=batch.shared), batch.y)  # [model, record]
    taken, models.taken = models.taken, None
    known = len(taken) + sum(layer.biased for layer in taken)
    if known != len(models.flat.leaves) or any(layer.y.ndim != 3 for layer in taken):
        return None
    there = losses if batch.present is None else losses * batch.present
    backward = torch.autograd.grad(there.sum(), [layer.y for layer in taken])
    squares = sum(
        (squared_norm(layer.x) + layer.biased) * squared_norm(g) for layer, g in zip(taken, backward, strict=True)
    )
    share = factor(torch.as_tensor(squares), clip_norm).to(losses.dtype)[..., None]
    sums: dict[str, Tensor] = {}
    for layer, g in zip(
        taken, backward, strict=True
    ):  # of the very gradients that were measured, so none exceeds its bound
        sums[f"{layer.name}weight"] = (g * share).mT @ layer.x
        sums[f"{layer.name}bias"] = (g * share).sum(1)
    return [sums[name] for name in models.flat.leaves]


def squared_norm(rows: Tensor) -> Tensor:
    """Over the last axis, in float64. Each row is scaled first, so float32 neither overflows nor drops what counts."""
    top = rows.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    scaled: Tensor = (rows / top).square().sum(-1).double() * top[..., 0].double().square()
    return scaled


def instantiated_sums(models: Models, loss: Loss, batch: Batch, clip_norm: float) -> list[Tensor]:
    """By the gradient of every record, some records at a time; for any network."""
    trained, fixed, template = _parts(models)
    x = batch.x.expand(models.count, *batch.x.shape) if batch.shared else batch.x
    size = sum(w[0].numel() for w in trained.values())
    at_once = max(1, AT_ONCE // (models.count * size))
    sums = [torch.zeros_like(w) for w in trained.values()]
    for start in range(0, x.shape[1], at_once):
        part = slice(start, start + at_once)
        each = per_record(template, loss, trained, fixed, x[:, part], batch.y[:, part])  # [model, record, ...]
        share = clipping(each, clip_norm)
        share = share if batch.present is None else share * batch.present[:, part]
        for total, gradients in zip(sums, each, strict=True):
            total += torch.einsum("mr,mr...->m...", share, gradients)
    return sums


def per_record(
    template: nn.Module, loss: Loss, trained: Mapping[str, Tensor], fixed: Mapping[str, Tensor], x: Tensor, y: Tensor
) -> list[Tensor]:
    """The gradient of every record's loss; for every parameter [model, record, ...]"""

    def one(own: dict[str, Tensor], rest: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs: Tensor = functional_call(template, {**own, **rest}, (x[None],))
        return loss(outputs, y[None])[0]

    lanes = vmap(grad(one), in_dims=(None, None, 0, 0), randomness="different")
    found = vmap(lanes, randomness="different")(dict(trained), dict(fixed), x, y)
    return [gradient.detach() for gradient in found.values()]


def clipping(each: Sequence[Tensor], clip_norm: float) -> Tensor:
    """What each record's gradient is multiplied by; [model, record]"""
    squares = torch.stack([gradient.flatten(2).double().square().sum(-1) for gradient in each]).sum(0)
    return factor(squares, clip_norm).to(each[0].dtype)


def factor(squares: Tensor, clip_norm: float) -> Tensor:
    """From squared norms."""
    return (clip_norm * SURELY / squares.sqrt()).clamp(max=1.0)


def refuse_mixing(models: Models) -> None:
    """A layer that mixes the records of a batch has no per-record gradient."""
    _, _, template = _parts(models)
    for name, module in template.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"{name or 'the network'} is a {type(module).__name__}, which mixes the records of a batch, so private "
                "training cannot clip them apart; use GroupNorm"
            )


def _parts(models: Models) -> tuple[dict[str, Tensor], dict[str, Tensor], nn.Module]:
    """Trained weights and the rest, each [model, ...], and the module to call with them."""
    names = models.flat.leaves.keys()
    template = models.template
    weights = models.weights()
    return {n: weights[n] for n in names}, {n: w for n, w in weights.items() if n not in names}, template


def _stream(number: int, training: Training) -> torch.Generator:
    """From the operating system for a model that will be seen; else from the seed, which makes it a simulation."""
    stream = torch.Generator(training.models.flat.values.device)
    stream.manual_seed(secrets.randbits(63) if training.release else number)
    return stream


def _normal(shape: torch.Size, stream: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=stream, device=stream.device)
