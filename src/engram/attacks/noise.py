"""Noise attack: members are answered rightly also under random noise.

Choquette-Choo, Tramer, Carlini, Papernot: Label-Only Membership Inference Attacks, 2021. Section 3.4.
Differs from the paper: Gaussian and Bernoulli noise come together where a table has columns of both kinds; all records share
their noise, so that their order does not matter; the strength is tuned by the area under the curve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engram import check
from engram.access import Labels, OutOfQueries
from engram.measure.ranks import ranked
from engram.measure.roc import auc
from engram.measure.thresholds import best, halfway
from engram.seed import Seed
from engram.types import Bools, Floats, Scores, Track, quiet

STRENGTHS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
TUNING = 20  # copies of each record that a shadow is asked while the strength is tuned
BLOCK = {"cpu": 2**21, "cuda": 2**28}  # numbers of the copies that are made at once


@dataclass(frozen=True)
class Noise:
    """The share of noisy copies that are answered rightly, 0 for what is answered wrongly. Good with few queries.

    Columns of two values are flipped with probability strength / 4, others get Gaussian noise of `strength` times their
    spread (of images, the range of all pixels). None: tuned on the shadows, which costs the target nothing.
    """

    asks: ClassVar = Labels
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Choquette-Choo et al. 2021"
    queries: int = 100
    strength: float | None = None
    shadows: int = 4

    def __post_init__(self) -> None:
        check.whole("queries", self.queries, 2)
        check.whole("shadows", self.shadows, 2)
        if self.strength is not None:
            check.positive("strength", self.strength)

    def __call__(self, target: Labels, *, seed: Seed, track: Track = quiet) -> list[Scores]:
        disturb = disturbance(target.numbers())
        queries, cut = _affordable(target, self.queries)

        def played(strength: float, copies: int) -> tuple[Floats, Bools]:
            def play(shadow: Labels) -> Floats:
                return robust(shadow, disturb, strength, copies, seed)

            return target.played(self.shadows, play, "noise", strength, copies, seed)

        def worth(strength: float) -> float:
            return auc(ranked(*played(strength, min(TUNING, queries))))

        strength = self.strength or max(track(STRENGTHS, "tuning the noise"), key=worth)
        told, member = played(strength, queries)
        phi = robust(target, disturb, strength, queries, seed)
        values = phi - halfway(told, member)
        about = f"strength {strength:g}, {queries} queries"
        return [
            Scores(phi, target.ids, phi > best(told, member), about + cut),
            Scores(values, target.ids, values > 0, f"{about}, against shadows{cut}"),
        ]


def robust(
    handle: Labels,
    disturb: Callable[[Tensor, float, torch.Generator], Tensor],
    strength: float,
    queries: int,
    seed: Seed,
) -> Floats:
    """The share of copies answered rightly, [record]; 0 for records answered wrongly. The record is one of its copies."""
    x = handle.numbers()
    stream = torch.Generator(handle.device).manual_seed(seed.child("noise").number)
    y, kept = handle.records.y, np.zeros(len(x))
    first = handle.labels(x) == y
    block = max(1, BLOCK[x.device.type] // x.numel())
    for start in range(0, queries - 1, block):
        copies = [disturb(x, strength, stream) for _ in range(min(block, queries - 1 - start))]
        kept += (handle.labels(torch.cat(copies)).reshape(len(copies), -1) == y).sum(0)
    return np.where(first, (1 + kept) / queries, 0.0)


def disturbance(records: Tensor) -> Callable[[Tensor, float, torch.Generator], Tensor]:
    """Flips of columns of two values, Gaussian noise elsewhere; nothing leaves the range of the records."""
    images = records.ndim > 2
    low, high = (records.min(), records.max()) if images else (records.amin(0), records.amax(0))
    spread = high - low if images else records.std(0)
    two = torch.zeros_like(records[0], dtype=torch.bool)
    if not images:
        two = ((records == low) | (records == high)).all(0) & (low < high)

    def disturb(x: Tensor, strength: float, stream: torch.Generator) -> Tensor:
        noise = torch.randn(x.shape[1:], generator=stream, device=x.device, dtype=x.dtype)
        drawn = torch.rand(x.shape[1:], generator=stream, device=x.device, dtype=x.dtype)
        gaussian = torch.minimum(torch.maximum(x + strength * spread * noise, low), high)
        flipped = torch.where(drawn < min(0.5, strength / 4), low + high - x, x)
        return torch.where(two, flipped, gaussian)

    return disturb


def _affordable(target: Labels, queries: int) -> tuple[int, str]:
    left = target.left(len(target.records))
    if left is None or left >= queries:
        return queries, ""
    if left < 2:
        raise OutOfQueries(f"a noisy copy takes at least 2 queries a record, and the budget leaves {left}")
    return left, f", as many as the budget left of {queries}"
