"""What many guesses of a batch would have made the participant share, at once, and what can be read off an update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from engram.train.recipe import Loss
from engram.train.sharing import Update, Weights, left_by

KINKED = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.PReLU, nn.Hardtanh, nn.MaxPool1d, nn.MaxPool2d)


@dataclass(frozen=True, eq=False)
class Matcher:
    """The same model and loss as the participant's. With `stacked` weights, each problem has a model of its own."""

    model: nn.Module
    loss: Loss
    weights: Weights
    rate: float | None = None
    steps: int = 1
    stacked: bool = False

    def __call__(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """x[problem, record, ...] and y[problem, record] or, as shares, [problem, record, class] -> each [problem, ...]"""
        if len(x) == 1:
            weights = {n: w[0] for n, w in self.weights.items()} if self.stacked else self.weights
            return [t[None] for t in self._one(weights, x[0], y[0])]
        return list(vmap(self._one, in_dims=(0 if self.stacked else None, 0, 0))(self.weights, x, y))

    def _one(self, weights: Weights, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return left_by(self.model, self.loss, weights, x, y, rate=self.rate, steps=self.steps)


def apart(made: Sequence[Tensor], told: Sequence[Tensor]) -> Tensor:
    """made[problem, ...] less what was told, all tensors in one row, [problem, number]."""
    return torch.cat([(a - b).flatten(1) for a, b in zip(made, told, strict=True)], 1)


def squared(made: Sequence[Tensor], told: Sequence[Tensor]) -> Tensor:
    """The squared distance over all tensors, [problem]."""
    return torch.stack([(a - b).square().flatten(1).sum(1) for a, b in zip(made, told, strict=True)]).sum(0)


def turned(made: Sequence[Tensor], told: Sequence[Tensor]) -> Tensor:
    """One less the cosine of the angle over all tensors, [problem]."""
    pairs = [(a.flatten(1), b.flatten(1)) for a, b in zip(made, told, strict=True)]
    along = torch.stack([(a * b).sum(1) for a, b in pairs]).sum(0)
    sizes = [torch.stack([p[k].square().sum(1) for p in pairs]).sum(0) for k in (0, 1)]
    return 1 - along / (sizes[0] * sizes[1]).clamp_min(torch.finfo(along.dtype).tiny).sqrt()


@dataclass(frozen=True)
class Layer:
    """A layer with weights of its own, in the order in which a record meets them."""

    name: str
    module: nn.Module
    weight: int  # its place among the tensors of an update
    bias: int | None
    inputs: tuple[int, ...]  # the shape of what it is given, without the record


def met(model: nn.Module, shape: Sequence[int], *, whole: bool = False) -> list[Layer]:
    """The layers with weights, as one record of zeros meets them."""
    places = {name: k for k, (name, p) in enumerate((n, p) for n, p in model.named_parameters() if p.requires_grad)}
    found: list[Layer] = []

    def note(name: str, module: nn.Module, given: Any) -> None:
        if f"{name}.weight".lstrip(".") in places:
            where = f"{name}.".lstrip(".")
            found.append(
                Layer(name, module, places[f"{where}weight"], places.get(f"{where}bias"), tuple(given[0].shape[1:]))
            )

    hooks = [
        m.register_forward_pre_hook(lambda m, given, n=name: note(n, m, given)) for name, m in model.named_modules()
    ]
    some = next(model.parameters())
    mode = model.training
    with torch.no_grad():
        x = torch.zeros(1, *shape, dtype=torch.int64 if whole else some.dtype, device=some.device)
        model.eval()(x)
    model.train(mode)
    for hook in hooks:
        hook.remove()
    return found


def numbers_told(model: nn.Module, shape: Sequence[int], records: int) -> int:
    """How many numbers of an update can differ freely from batch to batch of so many records, at most.

    The gradient of a linear layer is a sum of as many products as rows went through it, hence of no higher rank.
    """
    told = sum(p.numel() for p in model.parameters() if p.requires_grad)
    for layer in met(model, shape):
        if isinstance(layer.module, nn.Linear):
            high, wide = layer.module.weight.shape
            rank = min(high, wide, records * math.prod(layer.inputs[:-1]))
            told += rank * (high + wide - rank) - high * wide
    return told


def kinks(model: nn.Module) -> bool:
    """Whether second derivatives are zero almost everywhere, so that matching gradients has little to go by."""
    return any(isinstance(m, KINKED) for m in model.modules())


def counted_labels(update: Update, model: nn.Module, shape: Sequence[int], records: int) -> Tensor:
    """How often each class occurs in the batch, [class]; read off the gradient of the last layer.

    Zhao, Mopuri, Bilen 2020 for one record: only the label's row is negative. For a batch: that gradient is the mean answer
    less the share of each label, and the mean answer is estimated on noise (Wainakh et al. 2021, LLG*); where the last layer
    has no bias, by the bias-corrected rule.
    """
    last = met(model, shape)[-1]
    if last.bias is None or records == 1:
        rows = update.gradient[last.weight if last.bias is None else last.bias].double()
        return _bias_corrected(rows.flatten(1).sum(1) if last.bias is None else rows, records)
    wanted = (records * (_on_noise(model, shape) - update.gradient[last.bias].double())).clamp_min(0)
    counts = wanted.floor().long()
    while counts.sum() > records:
        counts[int((wanted - counts).argmin())] -= 1
    missing = records - int(counts.sum())
    counts[(wanted - counts).argsort(descending=True)[:missing]] += 1
    return counts


def _on_noise(model: nn.Module, shape: Sequence[int], records: int = 64) -> Tensor:
    """The mean answer to records that are noise in 0..1, [class]; always the same noise."""
    some, stream = next(model.parameters()), torch.Generator().manual_seed(0)
    mode = model.training
    with torch.no_grad():
        answers = model.eval()(torch.rand(records, *shape, generator=stream).to(some))
    model.train(mode)
    mean: Tensor = answers.double().softmax(-1).mean(0)
    return mean


def _bias_corrected(rows: Tensor, records: int) -> Tensor:
    """Each negative class once, then repeatedly the most negative, less what one record weighs."""
    counts = (rows < 0).long()
    if counts.sum() > records or not counts.any():  # noise: keep the most negative
        counts = torch.zeros_like(counts).index_fill_(0, rows.argsort()[:records], 1)
    weight = rows[rows < 0].sum() / records  # of one record, below zero
    rows = rows - counts * weight
    while counts.sum() < records:
        most = int(rows.argmin())
        counts[most] += 1
        rows[most] -= weight
    return counts
