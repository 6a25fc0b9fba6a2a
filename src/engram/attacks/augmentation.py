"""Augmentation attack: members are answered rightly also when they are turned or shifted a little.

Choquette-Choo, Tramer, Carlini, Papernot: Label-Only Membership Inference Attacks, 2021. Section 3.2.
Differs from the paper: turns are by -r, 0 and r as in its text (its code takes every degree between), bilinear; the
classifier of each class is a logistic regression that leans on the one over all classes, not a network of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from engram import check
from engram.access import Labels, OutOfQueries
from engram.logistic import fitted
from engram.moved import copies
from engram.seed import Seed
from engram.types import Bools, Floats, Scores, Track, quiet

MOST = 15  # degrees; beyond them digits turn into others


@dataclass(frozen=True)
class Augmentation:
    """Which of a few turned or shifted copies are answered rightly, judged class by class. Few queries. Images only."""

    asks: ClassVar = Labels
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Choquette-Choo et al. 2021"
    rotation: int = 4  # degrees, both ways; 0: do not turn
    translation: int = 1  # pixels, rows and columns together; 0: do not shift
    shadows: int = 4

    def __post_init__(self) -> None:
        check.whole("rotation", self.rotation, 0)
        check.whole("translation", self.translation, 0)
        check.whole("shadows", self.shadows, 2)
        if self.rotation > MOST or not self.rotation + self.translation:
            raise ValueError(
                f"rotation must be 1 to {MOST} degrees, or 0 with a translation, got {self.rotation} and "
                f"{self.translation}"
            )

    def __call__(self, target: Labels, *, seed: Seed, track: Track = quiet) -> list[Scores]:  # noqa: ARG002
        x = target.images()
        wanted = {f"rotation by {self.rotation} degrees": {"rotation": self.rotation}} if self.rotation else {}
        if self.translation:
            wanted[f"translation by {self.translation}"] = {"translation": self.translation}
        moved = {variant: copies(x, **how) for variant, how in wanted.items()}
        asked = affordable(target, {variant: len(those) - 1 for variant, those in moved.items()})
        played = {}
        for variant, few in asked.items():
            play, about = partial(right, moved=moved[variant][: 1 + few]), ("augmentation", wanted[variant], few)
            played[variant] = target.played(self.shadows, play, *about, track=track)
        first = right(target, [x])  # asked once, and the first of every list of copies
        said = []
        for variant, (told, member) in played.items():
            few, all_ = 1 + asked[variant], len(moved[variant])
            phi = np.concatenate([first, right(target, moved[variant][1:few])], 1) if few > 1 else first
            cut = "" if few == all_ else f", of which the budget left {few}"
            said.append(judged(phi, told, member, target, f"{variant}, {all_} copies{cut}"))
        return said


def affordable(target: Labels, wanted: Mapping[str, int]) -> Mapping[str, int]:
    """How many further copies of each record are asked: all, or as many as the budget leaves, the first variant first."""
    left = target.left(len(target.records))
    if left is None or left > sum(wanted.values()):
        return wanted
    if left < 1:
        raise OutOfQueries("one query a record is needed at the least, and the budget leaves fewer")
    found: dict[str, int] = {}
    for variant, count in wanted.items():
        found[variant] = min(count, left - 1 - sum(found.values()))
    return {variant: count for variant, count in found.items() if count} or {next(iter(wanted)): 0}


def judged(phi: Floats, told: Floats, member: Bools, target: Labels, variant: str) -> Scores:
    """Log odds of membership from which copies are answered rightly, by classifiers fitted on the shadows."""
    y, k = target.records.y, len(target.records.classes)
    model = fitted(told.reshape(-1, told.shape[-1]), member.ravel(), np.tile(y, len(told)), k)
    values = np.round(model(phi, y), 9)  # equal answers of one class are equal scores
    return Scores(values, target.ids, values > 0, variant)  # half of the records are members of a shadow


def right(handle: Labels, moved: Sequence[torch.Tensor]) -> Floats:
    """Whether each copy is answered with the record's label, [record, copy]."""
    return np.stack([handle.labels(x) == handle.records.y for x in moved], 1).astype(float)
