"""Records from a shared gradient: guess a batch, compare the gradient it would have left, improve the guess.

Zhu, Liu, Han: Deep Leakage from Gradients, 2019. Algorithm 1; L-BFGS; batches by updating one record at a time.
Zhao, Mopuri, Bilen: iDLG: Improved Deep Leakage from Gradients, 2020. The label from the last layer, before the search.
Differs from the papers: float64 throughout, a line search, several starts at once of which the one with the least
residual is kept; the labels of a batch are counted from the last layer's gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engram import check
from engram.access import Gradients, Unknown
from engram.matching import Matcher, counted_labels, kinks, squared
from engram.minimise import Minimum, lbfgs
from engram.seed import Seed
from engram.types import Recovered, Track, quiet

ROUND = 20  # steps on one record before the next, when they take turns
Split = Callable[[Tensor], tuple[Tensor, Tensor]]  # numbers -> records, labels


@dataclass(frozen=True)
class DeepLeakage:
    """The batch whose gradient is nearest in squared distance. Wants a smooth network; with ReLU it mostly fails.

    `labels` "first" reads them off the last layer, "joint" searches them with the records, as first published.
    `order` "turns" moves one record at a time, "together" all. `batch` overrules what the update says of its size.
    """

    asks: ClassVar = Gradients
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Zhu, Liu, Han 2019"
    restarts: int = 2
    steps: int = 3000
    labels: Literal["first", "joint"] = "first"
    order: Literal["together", "turns"] = "together"
    spread: float = 1.0  # deviation of the records that a search starts from
    batch: int | None = None
    enough: float = 1e-26  # of the shared gradient's squared length: there is nothing left to explain

    def __post_init__(self) -> None:
        check.known("labels of deep-leakage", self.labels, ("first", "joint"))
        check.known("order of deep-leakage", self.order, ("together", "turns"))
        check.at_least("restarts", self.restarts, 1)
        check.at_least("steps", self.steps, 1)
        check.positive("spread", self.spread)

    def __call__(self, target: Gradients, *, seed: Seed, track: Track = quiet) -> Recovered:
        records = self._records(target)
        model, weights, told = target.exact()
        matcher = Matcher(model, target.loss, weights, target.update.rate, target.update.steps)
        z, split = self._started(target, records, seed)
        scale = sum(float(t.square().sum()) for t in told)

        def cost(z: Tensor) -> Tensor:
            return squared(matcher(*split(z)), [t[None] for t in told]) / scale

        found = self.searched(cost, z, records, track)
        return told_of(target, found, split, f"{self.labels} labels{_warned(target)}")

    def searched(self, cost: Callable[[Tensor], Tensor], z: Tensor, records: int, track: Track) -> Minimum:
        if self.order == "together" or records == 1:
            steps = track(range(self.steps), "matching gradients", total=self.steps)
            return lbfgs(cost, z, steps=steps, enough=self.enough)
        owner = torch.arange(records, device=z.device).repeat_interleave(z.shape[1] // records)
        rounds = max(1, self.steps // ROUND)
        found = Minimum(z, cost(z).detach(), 0, 0)
        for turn in track(range(rounds), "matching gradients, one record at a time", total=rounds):
            free = owner == turn % records
            held = found.z
            part = lbfgs(lambda own: cost(torch.where(free, own, held)), held, steps=range(ROUND), enough=self.enough)  # noqa: B023
            found = Minimum(
                torch.where(free, part.z, held),
                part.costs,
                found.steps + part.steps,
                found.evaluations + part.evaluations,
            )
            if bool((found.costs <= self.enough).all()):
                break
        return found

    def _records(self, target: Gradients) -> int:
        records = self.batch or target.update.batch
        if records is None:
            raise Unknown("the update does not say how many records are behind it; set the knob batch")
        return records

    def _started(self, target: Gradients, records: int, seed: Seed) -> tuple[Tensor, Split]:
        """Records and, where they are searched, labels from a normal. One row a start, record by record."""
        size = int(np.prod(target.shape))
        wide = size + (target.classes if self.labels == "joint" else 0)
        z = torch.as_tensor(seed.child("start").numpy().normal(scale=self.spread, size=(self.restarts, records * wide)))
        z = z.to(target.device)
        if self.labels == "joint":
            return z, lambda z: _soft(z, records, size, target.shape)
        counts = counted_labels(target.update, target.model, target.shape, records)
        y = torch.repeat_interleave(counts).to(target.device)
        return z, lambda z: (z.view(len(z), records, *target.shape), y.expand(len(z), -1))


def _soft(z: Tensor, records: int, size: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    rows = z.view(len(z), records, -1)
    return rows[..., :size].reshape(len(z), records, *shape), functional.softmax(rows[..., size:], -1)


def told_of(target: Gradients, found: Minimum, split: Split, variant: str) -> Recovered:
    """The best start as evidence: its records, its labels, and the residual that certifies all of them together."""
    x, y = (part[int(found.costs.argmin())].detach() for part in split(found.z))
    left = target.unexplained(x, y)
    labels = y.argmax(-1) if y.is_floating_point() else y
    certificates = np.full(len(x), left)
    return Recovered("record", x.cpu().numpy(), -certificates, certificates, variant, labels.cpu().numpy())


def _warned(target: Gradients) -> str:
    return ", on a network with kinks" if kinks(target.model) else ""
