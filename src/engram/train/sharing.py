"""What a participant shares of a model: a gradient, or how the weights changed in a few local steps.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks from Decentralized
Data, 2017. Algorithm 1, one participant: FederatedSGD (the gradient) and FederatedAveraging (`steps` local steps).
Differs from the paper: each local step takes all records of the participant, in one batch.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from engram import check
from engram.data.dataset import Dataset
from engram.seed import Seed
from engram.train.loop import seeded
from engram.train.recipe import Loss, Recipe

Weights = dict[str, Tensor]
Parts = Sequence[Any] | Mapping[str, Any]  # arrays or tensors


@dataclass(frozen=True, eq=False)
class Update:
    """What left the participant: one tensor for each trainable parameter, in the model's order.

    Without a `rate` it is the gradient of the loss, averaged over the batch. With one it is the weights after `steps`
    local steps of that rate, less the weights before.
    """

    tensors: tuple[Tensor, ...]
    batch: int | None = None  # records behind it, if the adversary is told
    rate: float | None = None
    steps: int = 1
    statistics: tuple[Tensor, ...] = ()  # of batch-norm layers on this batch, if shared: mean, variance, mean, ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tuple(torch.as_tensor(t).detach() for t in self.tensors))
        check.at_least("steps", self.steps, 1)
        if self.batch is not None:
            check.at_least("batch", self.batch, 1)
        if self.rate is not None:
            check.positive("rate", self.rate)
        elif self.steps > 1:
            raise ValueError(f"{self.steps} local steps change the weights by a rate; say which, with rate=...")

    @classmethod
    def between(cls, before: Parts, after: Parts, *, rate: float, steps: int = 1, batch: int | None = None) -> Update:
        """From a participant's weights before and after its local steps, as lists of arrays or tensors or by name.

        Federated-learning frameworks hand over such lists, in the model's order: give the trainable parameters' only.

        >>> import numpy as np
        >>> told = Update.between([np.zeros(3)], [np.ones(3)], rate=0.1)
        >>> told.gradient[0].tolist()
        [-10.0, -10.0, -10.0]
        """
        pairs = list(zip(_parts(before, before), _parts(after, before), strict=True))
        for k, (a, b) in enumerate(pairs):
            if a.shape != b.shape:
                raise ValueError(
                    f"tensor {k} is {tuple(a.shape)} before and {tuple(b.shape)} after; give the same model's"
                )
        return cls(tuple(b.double() - a.double() for a, b in pairs), batch, rate, steps)

    @property
    def gradient(self) -> tuple[Tensor, ...]:
        """The gradient, or the mean of the local steps' gradients."""
        if self.rate is None:
            return self.tensors
        return tuple(-t / (self.rate * self.steps) for t in self.tensors)

    def fits(self, model: nn.Module) -> None:
        """An error that names the first tensor that is not this model's, or not finite."""
        named = trainable(model)
        for (name, weight), t in zip(named.items(), self.tensors, strict=False):
            if t.shape != weight.shape:
                raise ValueError(
                    f"the update does not fit the model: {name} is {tuple(weight.shape)}, the update has "
                    f"{tuple(t.shape)} there; give one tensor a trainable parameter, in the model's order"
                )
            if not torch.isfinite(t).all():
                bad = int((~torch.isfinite(t)).sum())
                raise ValueError(
                    f"the update is not finite: {bad} numbers of {name} are not; nothing can be read there"
                )
        if len(named) != len(self.tensors):
            raise ValueError(
                f"the update does not fit the model: it has {len(self.tensors)} tensors, the model {len(named)} "
                "trainable parameters; give one each, in the model's order"
            )


def _parts(given: Parts, like: Parts) -> list[Tensor]:
    """The tensors, in the order of `like` where both go by name."""
    if isinstance(given, Mapping):
        names = list(like) if isinstance(like, Mapping) else list(given)
        if set(names) != set(given):
            odd = sorted(set(names) ^ set(given))[0]
            raise ValueError(f"the weights before and after must have the same names; {odd!r} is in one of them only")
        given = [given[name] for name in names]
    elif isinstance(like, Mapping):
        raise ValueError("the weights before go by name and those after do not; give both alike")
    elif len(given) != len(like):
        raise ValueError(f"{len(like)} tensors before and {len(given)} after; give the same model's")
    return [torch.as_tensor(t) for t in given]


def trainable(model: nn.Module) -> Weights:
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def functional(model: nn.Module) -> nn.Module:
    """A copy to be called with given weights. In training mode, batch-norm looks at the batch and remembers nothing."""
    model = copy.deepcopy(model)
    if model.training:
        torch.func.replace_all_batch_norm_modules_(model)
    return model


def statistics(model: nn.Module, weights: Weights, x: Tensor) -> tuple[Tensor, ...]:
    """Mean and variance of what each batch-norm layer is given, channel by channel, in the order in which x meets them."""
    found: list[Tensor] = []

    def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        rows = given[0].transpose(0, 1).flatten(1)  # [channel, value]
        found.extend((rows.mean(1), rows.var(1, unbiased=False)))

    hooks = [m.register_forward_pre_hook(note) for m in model.modules() if isinstance(m, _BatchNorm)]
    try:
        functional_call(model, weights, (x,))
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(found)


def mean_loss(model: nn.Module, loss: Loss, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
    """The loss of one batch. Labels that are not whole numbers are shares of the classes, [record, class]."""
    outputs = functional_call(model, weights, (x,))
    if not y.is_floating_point():
        return loss(outputs, y).mean()
    classes = torch.arange(outputs.shape[-1], device=outputs.device).expand(len(outputs), -1)
    each = loss(outputs[..., None, :].expand(*classes.shape, -1), classes)  # [record, class]
    return (y * each).sum(-1).mean()


def left_by(
    model: nn.Module, loss: Loss, weights: Weights, x: Tensor, y: Tensor, *, rate: float | None = None, steps: int = 1
) -> tuple[Tensor, ...]:
    """What this batch would have made the participant share, before anything is done to it. Differentiable in x and y."""

    def gradient(w: Weights) -> Weights:
        found: Weights = grad(lambda v: mean_loss(model, loss, v, x, y))(w)
        return found

    with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
        if rate is None:
            return tuple(gradient(weights).values())
        w = weights
        for _ in range(steps):
            w = {name: w[name] - rate * g for name, g in gradient(w).items()}
    return tuple(w[name] - before for name, before in weights.items())


def shared(
    recipe: Recipe,
    model: nn.Module,
    records: Dataset,
    *,
    seed: Seed,
    rate: float | None = None,
    steps: int = 1,
    dtype: torch.dtype | None = None,
    normalised: bool = False,
) -> Update:
    """The update that a participant with these records shares, with what the recipe does to it on the way.

    With `normalised`, what its batch-norm layers saw is shared as well, as where their running statistics are averaged.
    """
    model = functional(model)
    model = model if dtype is None else model.to(dtype)
    weights = trainable(model)
    some = next(iter(weights.values()))
    x = torch.as_tensor(records.x, device=some.device)
    x = x.to(some.dtype) if x.is_floating_point() else x
    y = torch.as_tensor(records.y, device=some.device)
    found = left_by(model, recipe.loss, weights, x, y, rate=rate, steps=steps)
    seen = statistics(model, weights, x) if normalised else ()
    return Update(passed(recipe, found, seed), len(records), rate, steps, tuple(t.detach() for t in seen))


def passed(recipe: Recipe, tensors: Sequence[Tensor], seed: Seed) -> tuple[Tensor, ...]:
    """The tensors after each part of `recipe.share`, which may draw noise."""
    told = [t.detach() for t in tensors]
    with seeded(seed.child("share"), told[0].device):
        for change in recipe.share:
            told = change(told)
    return tuple(told)


def summed(updates: Sequence[Update]) -> Update:
    """What is seen under secure aggregation: the mean over all records of several participants, and no single update."""
    first, sizes = updates[0], [u.batch for u in updates]
    if any(size is None for size in sizes):
        raise ValueError("an average over records needs the batch size of every update; give batch=...")
    if len({(u.rate, u.steps) for u in updates}) > 1:
        raise ValueError("updates of different rates or steps cannot be added; give them the same")
    total: Any = sum(size or 0 for size in sizes)
    parts = zip(*(tuple(t * (u.batch or 0) / total for t in u.tensors) for u in updates), strict=True)
    return replace(first, tensors=tuple(torch.stack(part).sum(0) for part in parts), batch=total, statistics=())
