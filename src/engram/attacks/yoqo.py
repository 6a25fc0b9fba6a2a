"""One query, or a few, along a path that shadow models point out.

Wu, Qiu, Guo, Li, Zhang: You Only Query Once, An Efficient Label-Only Membership Inference Attack, 2024: the query x' that
minimises  sum over shadows with x of CE(f(x'), y) + alpha * sum over shadows without x of CE(f(x'), another label),
alpha = 2, and x is a member iff the model answers x' with y.
It assumes that the recipe is known well enough for shadows to err as the target does.
Differs from the paper: more than one query is ours. They bisect the straight path through x' for the place where the answer
changes; how far that is tells more than one answer does. Steps are normalised, so one rate serves records of any scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from engram import check
from engram.access import Labels, OutOfQueries
from engram.hopskipjump import box
from engram.seed import Seed
from engram.types import Bools, Floats, Scores, Track, quiet

FARTHEST = 3.0  # of the path, in lengths of x' - x
AT_ONCE = {"cpu": 512, "cuda": 2**15}  # records whose queries are made together


@dataclass(frozen=True)
class YOQO:
    """One crafted query a record, or a few along the way to it. The strongest for its cost; needs the recipe."""

    asks: ClassVar = Labels
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Wu et al. 2024"
    queries: int = 10
    shadows: int = 8
    alpha: float = 2.0
    steps: int = 35

    def __post_init__(self) -> None:
        check.whole("queries", self.queries, 1)
        check.whole("shadows", self.shadows, 2)
        check.whole("steps", self.steps, 1)
        check.positive("alpha", self.alpha)

    def __call__(self, target: Labels, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        x, y = target.numbers(), torch.as_tensor(target.records.y, device=target.device)
        left = target.left(len(target.records))
        queries = self.queries if left is None else min(self.queries, left)
        if not queries:
            raise OutOfQueries("one query a record is needed, and the budget leaves fewer")
        played = target.rehearsals(self.shadows, track=track)
        member = np.stack([s.member for s in played])
        crafted = self.crafted([s.module for s in played], member, x, y, track)
        if queries == 1:
            right = target.labels(crafted) == target.records.y
            return Scores(right.astype(float), target.ids, right, "one query")
        change = bisected(target, x, crafted, queries)
        cut = "" if queries == self.queries else f", as many as the budget left of {self.queries}"
        return Scores(change, target.ids, change > 1, f"{queries} queries{cut}")

    def crafted(self, modules: Sequence[nn.Module], member: Bools, x: Tensor, y: Tensor, track: Track) -> Tensor:
        """x' of every record, [record, ...]."""
        low, high = box(x)
        inside = torch.as_tensor(member, device=x.device)  # [shadow, record]
        made = []
        parts = range(0, len(x), AT_ONCE[x.device.type])
        for start in track(parts, "making queries", len(parts)):
            part = slice(start, start + AT_ONCE[x.device.type])
            made.append(self._crafted(modules, inside[:, part], x[part], y[part], low, high))
        return torch.cat(made)

    def _crafted(
        self, modules: Sequence[nn.Module], inside: Tensor, x: Tensor, y: Tensor, low: Tensor, high: Tensor
    ) -> Tensor:
        with torch.no_grad():
            wrong = torch.stack([others(module(x), y) for module in modules])  # [shadow, record]
        wanted = torch.where(inside, y, wrong)
        weight = torch.where(inside, 1.0, self.alpha)
        rate = 0.5 * typical(x) / self.steps**0.5
        at, best, least = x.clone(), x.clone(), torch.full((len(x),), torch.inf, device=x.device)
        for step in range(self.steps + 1):
            cost, slope = self._cost(modules, wanted, weight, at)
            better = cost < least
            least = torch.where(better, cost, least)
            best[better] = at[better]
            size = slope.flatten(1).norm(dim=1).clamp_min(1e-30).view(-1, *[1] * (x.ndim - 1))
            at = torch.minimum(torch.maximum(at - rate / (1 + step) ** 0.5 * slope / size, low), high)
        return best

    def _cost(self, modules: Sequence[nn.Module], wanted: Tensor, weight: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """The paper's objective and its gradient, each record's own."""
        total, slope = torch.zeros(len(at), device=at.device), torch.zeros_like(at)
        for module, label, heavy in zip(modules, wanted, weight, strict=True):
            here = at.detach().requires_grad_()
            cost = heavy * functional.cross_entropy(module(here), label, reduction="none")
            slope += torch.autograd.grad(cost.sum(), here)[0]
            total += cost.detach()
        return total, slope


def others(logits: Tensor, y: Tensor) -> Tensor:
    """The most probable label that is not the true one, [record]."""
    return logits.scatter(1, y[:, None], -torch.inf).argmax(1)


def typical(x: Tensor) -> float:
    """How far a record lies from the mean record, as a root mean square."""
    return float((x - x.mean(0)).flatten(1).square().sum(1).mean().sqrt())


def bisected(target: Labels, x: Tensor, crafted: Tensor, queries: int) -> Floats:
    """Where on the path from x through x' (at 1) the answer stops being the record's label; 0 where it never is."""
    y, low, high = target.records.y, *box(x)

    def right(place: Floats) -> Bools:
        by = torch.as_tensor(place, dtype=x.dtype, device=x.device).view(-1, *[1] * (x.ndim - 1))
        there = torch.minimum(torch.maximum(x + by * (crafted - x), low), high)
        return np.asarray(target.labels(there) == y)

    a, b = np.zeros(len(x)), np.full(len(x), FARTHEST)
    middle = np.ones(len(x))  # the paper's query comes first
    for _ in range(queries - 1):
        ok = right(middle)
        a, b = np.where(ok, middle, a), np.where(ok, b, middle)
        middle = (a + b) / 2
    never = ~right(np.zeros(len(x)))
    return np.where(never, 0.0, middle)
