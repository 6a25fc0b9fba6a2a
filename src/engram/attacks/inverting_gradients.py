"""Records from a shared gradient by its direction: for networks where the squared distance leads nowhere.

Geiping, Bauermeister, Droege, Moeller: Inverting Gradients: How easy is it to break privacy in federated learning?, 2020.
Equation 4 (one less the cosine, plus total variation), Adam on the sign of the gradient, steps and decay of appendix A.
Yin, Mallya, Vahdat, Alvarez, Kautz, Molchanov: See through Gradients, 2021. Equation 11 (statistics of batch-norm layers).
Differs from the papers: all starts at once, and the one with the least cost is kept; labels are counted beforehand; total
variation is the mean over pixels of both differences, and only for pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from engram import check
from engram.access import Gradients
from engram.matching import Matcher, counted_labels, turned
from engram.minimise import signed_adam
from engram.seed import Seed
from engram.train.sharing import statistics
from engram.types import Recovered, Track, quiet


@dataclass(frozen=True)
class InvertingGradients:
    """The batch whose gradient points the same way. Works on ReLU networks; blurred where deep leakage is exact.

    Records are kept in the box from `least` to `most`. The paper takes 4,800 steps.
    """

    asks: ClassVar = Gradients
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Geiping et al. 2020"
    restarts: int = 2
    steps: int = 1000
    rate: float = 0.1
    smoothness: float = 0.01  # weight of the total variation
    statistics: float = 0.1  # weight of what batch-norm layers saw, where that was shared
    least: float = 0.0
    most: float = 1.0
    batch: int | None = None

    def __post_init__(self) -> None:
        check.at_least("restarts", self.restarts, 1)
        check.at_least("steps", self.steps, 1)
        check.positive("rate", self.rate)
        check.at_least("smoothness", self.smoothness, 0)
        check.at_least("statistics", self.statistics, 0)

    def __call__(self, target: Gradients, *, seed: Seed, track: Track = quiet) -> Recovered:
        records = target.behind(self.batch)
        model, weights, told = target.exact()
        matcher = Matcher(model, target.loss, weights, target.update.rate, target.update.steps)
        y = torch.repeat_interleave(counted_labels(target.update, target.model, target.shape, records))
        y = y.to(target.device)
        shape = (self.restarts, records, *target.shape)
        seen = [t.double() for t in target.update.statistics]

        def normal(x: Tensor) -> Tensor:
            return unlike(vmap(lambda one: statistics(model, weights, one))(x), seen)

        def cost(z: Tensor) -> Tensor:
            x = z.view(shape)
            off = turned(matcher(x, y.expand(len(z), -1)), [t[None] for t in told]) + self.smoothness * variation(x)
            return off + self.statistics * normal(x) if seen else off

        start = seed.child("start").numpy().uniform(self.least, self.most, (self.restarts, int(np.prod(shape[1:]))))
        found = signed_adam(
            cost, torch.as_tensor(start).to(target.device), total=self.steps, rate=self.rate,
            steps=track(range(self.steps), "inverting gradients", total=self.steps), box=(self.least, self.most),
        )  # fmt: skip
        x = found.z.view(shape)[int(found.costs.argmin())]
        certificates = np.full(records, target.unexplained(x, y))
        return Recovered("record", x.cpu().numpy(), -certificates, certificates, labels=y.cpu().numpy())


def unlike(made: Sequence[Tensor], seen: Sequence[Tensor]) -> Tensor:
    """How far statistics of batch-norm layers are from those that were shared, relative to them, mean over all. [problem]"""
    each = [
        ((a - b).norm(dim=1) / b.norm().clamp_min(torch.finfo(b.dtype).tiny)) for a, b in zip(made, seen, strict=True)
    ]
    return torch.stack(each).mean(0)


def variation(x: Tensor) -> Tensor:
    """The mean absolute difference of neighbours in a picture; of anything else nothing. [problem]"""
    if x.ndim < 4:
        return x.new_zeros(len(x))
    down, across = (x[..., 1:, :] - x[..., :-1, :]).abs(), (x[..., 1:] - x[..., :-1]).abs()
    return down.flatten(1).mean(1) + across.flatten(1).mean(1)
