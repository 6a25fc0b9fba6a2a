"""Records from a shared gradient: guess a batch, compare the gradient it would have left, improve the guess.

Zhu, Liu, Han: Deep Leakage from Gradients, 2019. Algorithm 1; L-BFGS; batches by updating one record at a time.
Zhao, Mopuri, Bilen: iDLG: Improved Deep Leakage from Gradients, 2020. The label from the last layer, before the search.
Differs from the papers: float64 throughout, a line search, several starts at once of which the one with the least
residual is kept; records of up to some thousand numbers are searched in the metric of the gradient's own slope, without
which one in three stops short; the labels of a batch are counted from the last layer's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engram import check, gauss_newton
from engram.access import Gradients, Unknown
from engram.matching import Matcher, apart, counted_labels, kinks, numbers_told
from engram.minimise import Minimum, lbfgs
from engram.seed import Seed
from engram.types import Recovered, Track, quiet

ROUND = 20  # steps on one record before the next, when they take turns
EXPLAINED = 1e-18  # of the shared gradient's squared length: no other start is tried
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
        records = target.behind(self.batch)
        _determined(target, records, self._wide(target))
        model, weights, told = target.exact()
        matcher = Matcher(model, target.loss, weights, target.update.rate, target.update.steps)
        z, split = self._started(target, records, seed)
        length = torch.cat([t.flatten() for t in told]).norm()

        def left(z: Tensor) -> Tensor:
            off: Tensor = apart(matcher(*split(z)), told) / length
            return off

        found = self.searched(left, z, records, track)
        return told_of(target, found, split, f"{self.labels} labels{_warned(target)}")

    def searched(self, left: gauss_newton.Left, z: Tensor, records: int, track: Track) -> Minimum:
        if self.order == "turns" and records > 1:
            return self._in_turns(left, z, records, track)
        steps = iter(track(range(self.steps), "matching gradients", total=self.steps))
        if z.shape[1] > gauss_newton.LIMIT:
            return lbfgs(lambda z: left(z).square().sum(-1), z, steps=steps, enough=self.enough)
        found = lbfgs(
            lambda z: left(z).square().sum(-1), z, steps=islice(steps, gauss_newton.STRETCH), enough=self.enough
        )
        return self._refined(left, found, steps)

    def _refined(self, left: gauss_newton.Left, found: Minimum, steps: Iterator[int]) -> Minimum:
        """The start with the least cost, in its own metric; the next where it ends short of the gradient."""
        tried = found
        for k in found.costs.argsort().tolist():
            if float(tried.costs.min()) <= EXPLAINED:
                break
            one = gauss_newton.minimised(left, found.z[k : k + 1], steps=steps, enough=self.enough)
            better = torch.arange(len(tried.z), device=tried.z.device) == k
            tried = Minimum(
                torch.where(better[:, None], one.z, tried.z),
                torch.where(better, one.costs, tried.costs),
                tried.steps + one.steps,
                tried.evaluations + one.evaluations,
            )
        return tried

    def _in_turns(self, left: gauss_newton.Left, z: Tensor, records: int, track: Track) -> Minimum:
        owner = torch.arange(records, device=z.device).repeat_interleave(z.shape[1] // records)
        rounds = max(1, self.steps // ROUND)
        found = Minimum(z, left(z).square().sum(-1).detach(), 0, 0)
        for turn in track(range(rounds), "matching gradients, one record at a time", total=rounds):
            found = _turn(left, found, owner == turn % records, self.enough)
            if bool((found.costs <= self.enough).all()):
                break
        return found

    def _wide(self, target: Gradients) -> int:
        """Numbers that are searched for each record."""
        return int(np.prod(target.shape)) + (target.classes if self.labels == "joint" else 0)

    def _started(self, target: Gradients, records: int, seed: Seed) -> tuple[Tensor, Split]:
        """Records and, where they are searched, labels from a normal. One row a start, record by record."""
        size, wide = int(np.prod(target.shape)), self._wide(target)
        z = torch.as_tensor(seed.child("start").numpy().normal(scale=self.spread, size=(self.restarts, records * wide)))
        z = z.to(target.device)
        if self.labels == "joint":
            return z, lambda z: _soft(z, records, size, target.shape)
        counts = counted_labels(target.update, target.model, target.shape, records)
        y = torch.repeat_interleave(counts).to(target.device)
        return z, lambda z: (z.view(len(z), records, *target.shape), y.expand(len(z), -1))


def _turn(left: gauss_newton.Left, found: Minimum, free: Tensor, enough: float) -> Minimum:
    """A few steps on the numbers of one record; the others are held."""
    held = found.z
    part = lbfgs(
        lambda own: left(torch.where(free, own, held)).square().sum(-1), held, steps=range(ROUND), enough=enough
    )
    z = torch.where(free, part.z, held)
    return Minimum(z, part.costs, found.steps + part.steps, found.evaluations + part.evaluations)


def _determined(target: Gradients, records: int, wide: int) -> None:
    """An error where more numbers are searched than the update tells apart: then wrong batches explain it just as well."""
    told = numbers_told(target.model, target.shape, records * target.update.steps)
    if records * wide > told:
        most = max(n for n in range(records) if n * wide <= numbers_told(target.model, target.shape, n))
        raise Unknown(
            f"{records} records have {records * wide} numbers, and at most {told} can be read off an update of such a batch, "
            f"so wrong records would explain it as well; deep-leakage answers up to {most} of these records"
        )


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
