"""Boundary attacks: members lie farther from the decision boundary, and labels alone tell how far.

Choquette-Choo, Tramer, Carlini, Papernot: Label-Only Membership Inference Attacks, 2021. Sections 3.3 and 3.5 (combined).
Li, Zhang: Membership Leakage in Label-Only Exposures, 2021.
Differs from the papers: the threshold is set by playing the attack on several shadows, not on one; beside the plain
distance there is one that is compared, record by record, with the distances to the shadows' boundaries (Watson, Guo,
Cormode, Sablayrolles 2022 do so with the loss); the combined attack's classifier is a logistic regression for each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engram import check
from engram.access import Labels, OutOfQueries
from engram.hopskipjump import Distances, HopSkipJump, distances
from engram.logistic import fitted
from engram.measure.thresholds import best, halfway
from engram.moved import copies
from engram.seed import Seed
from engram.types import Bools, Floats, Scores, Track, quiet

NEAREST = 1e-4  # a wrong answer is at distance 0, and a ratio needs more


@dataclass(frozen=True)
class Boundary:
    """The distance to the decision boundary, 0 for what is answered wrongly. Many queries; wants continuous columns.

    `queries` is the most that each record may cost. Where the target's budget allows fewer, that is what each gets.
    """

    asks: ClassVar = Labels
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Choquette-Choo et al. 2021"
    queries: int = 300  # the paper takes 2500
    shadows: int = 2
    directions: int = 100

    def __post_init__(self) -> None:
        check.whole("queries", self.queries, 2)
        check.whole("shadows", self.shadows, 2)
        check.whole("directions", self.directions, 8)

    def __call__(self, target: Labels, *, seed: Seed, track: Track = quiet) -> list[Scores]:
        x = target.numbers()
        walk, cut = affordable(target, self.queries, self.directions)
        told, member = target.played(  # [shadow, record]
            self.shadows,
            lambda shadow: measured(shadow, walk, seed, x, track).values,
            "boundary",
            walk,
            seed,
            track=track,
        )
        found = measured(target, walk, seed, x, track)
        return [
            distance_scores(found, told, member, target, f"{self.queries} queries{cut}"),
            compared(found, told, member, target, f"{self.queries} queries, against shadows{cut}"),
        ]


@dataclass(frozen=True)
class Combined:
    """The distance of each shifted copy to the boundary, weighed by a classifier for each class. Images only; costly."""

    asks: ClassVar = Labels
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Choquette-Choo et al. 2021"
    queries: int = 300  # for each copy; the paper takes 2500
    translation: int = 1
    shadows: int = 2
    directions: int = 100

    def __post_init__(self) -> None:
        check.whole("queries", self.queries, 2)
        check.whole("translation", self.translation, 1)
        check.whole("shadows", self.shadows, 2)

    def __call__(self, target: Labels, *, seed: Seed, track: Track = quiet) -> Scores:
        shifts = copies(target.images(), translation=self.translation)
        walk, cut = affordable(target, self.queries, self.directions, len(shifts))
        told, member = target.played(  # [shadow, record, copy], [shadow, record]
            self.shadows, lambda shadow: features(shadow, walk, seed, shifts, track)[0],
            "combined", self.translation, walk, seed, track=track,
        )  # fmt: skip
        phi, broken = features(target, walk, seed, shifts, track)  # [record, copy]
        y, k = target.records.y, len(target.records.classes)
        group = np.tile(y, len(told))
        model = fitted(told.reshape(-1, told.shape[-1]), member.ravel(), group, k)
        values = model(phi, y)
        short = ", broken off by the budget" if broken else cut
        about = f"{len(shifts)} copies, {self.queries} queries each{short}"
        return Scores(values, target.ids, values > 0, about)  # half of the records are members of a shadow


def features(
    handle: Labels, walk: HopSkipJump, seed: Seed, shifts: Sequence[Tensor], track: Track
) -> tuple[Floats, bool]:
    """Of each copy the logarithm of its distance, and whether it is answered rightly; and whether the queries ran out."""
    found = [measured(handle, walk, seed.child("copy", i), x, track) for i, x in enumerate(shifts)]
    values = np.stack([f.values for f in found], 1)  # [record, copy]
    return np.concatenate([np.log1p(values), values > 0], 1), any(f.broken_off for f in found)


def affordable(target: Labels, queries: int, directions: int, copies: int = 1) -> tuple[HopSkipJump, str]:
    """What each record gets: what was asked for, or an equal share of what the budget leaves, and then it is said so."""
    left = target.left(copies * len(target.records))
    if left is None or left >= queries:
        return HopSkipJump(queries - 1, directions), ""  # one tells whether the record is answered rightly
    if left < 2:
        raise OutOfQueries(f"a distance takes at least 2 queries a record, and the budget leaves {left}")
    return HopSkipJump(left - 1, directions), f", of which the budget left {left}"


def measured(handle: Labels, walk: HopSkipJump, seed: Seed, x: Tensor, track: Track = quiet) -> Distances:
    """The distance of every record to the boundary of this model."""
    stream = torch.Generator(handle.device).manual_seed(seed.child("directions").number)
    answered = handle.labels(x)
    return distances(
        handle.labels, x, handle.records.y, answered, walk, stream, out_of_queries=OutOfQueries, track=track
    )


def distance_scores(found: Distances, told: Floats, member: Bools, target: Labels, variant: str) -> Scores:
    """Member iff farther than the threshold that is best on the shadows."""
    claims = found.values > best(told, member)
    return Scores(found.values, target.ids, claims, variant + short(found))


def compared(found: Distances, told: Floats, member: Bools, target: Labels, variant: str) -> Scores:
    """How much farther than half-way between the shadows with and without the record; a member's is above 0."""
    phi, logs = np.log(np.maximum(found.values, NEAREST)), np.log(np.maximum(told, NEAREST))
    values = phi - halfway(logs, member)
    return Scores(values, target.ids, values > 0, variant + short(found))


def short(found: Distances) -> str:
    said = ", broken off by the budget" if found.broken_off else ""
    return said + (f", no boundary found for {found.unbounded} records" if found.unbounded else "")
