"""The missing record, told from those released parameters alone that hold a trace of it.

Shahin Shamsabadi, Hayes, Balle, Weller: Mnemonist: Locating Model Parameters that Memorize Training Examples, 2023.
Algorithm 1: (1, 2) shadow models; (3) a reconstructor; (4) the importance of each parameter; (5, 6) only the important
ones are kept; (7, 8) a fresh reconstructor learns from those.
Differs from the paper: its formula of importance is not public, so `importance` names one of six known scores, of which
two need no first reconstructor; how much to keep is chosen on shadows held out; as many parameters drawn at random are
told beside it, as the control without which a gain could be that of fewer inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engram import check
from engram.access import Informed, Shadows, Unknown
from engram.importance import ALONE, SCORES, SHARES, Importance, at_random, by_row, named, selected, units
from engram.reconstruction import Reconstructing, Study, learned
from engram.seed import Seed
from engram.types import Array, Bools, Floats, Recovered, Track, quiet

LEAST = 100  # shadows; with fewer a reconstructor says little more than the mean record
HELD_OUT = 0.2  # of the shadows, to choose how much to keep


@dataclass(frozen=True)
class Mnemonist:
    """A reconstructor that is shown only the parameters that hold a trace of the record, and a random choice as control."""

    asks: ClassVar = Informed
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Shahin Shamsabadi et al. 2023"
    importance: str = "explained"
    share: float = 0.0  # of all importance, to keep; 0: chosen on shadows held out
    rows: bool = False  # keep or drop all that leads into a unit together
    shadows: int = 0  # 0: as many as there are public records
    width: int = 500
    depth: int = 2
    epochs: int = 100
    rate: float = 1e-3

    def __post_init__(self) -> None:
        check.known("importance", self.importance, SCORES)
        check.fraction("share", self.share, zero=True)
        check.whole("shadows", self.shadows, 0)
        check.whole("epochs", self.epochs, 1)
        check.positive("rate", self.rate)

    def __call__(self, target: Informed, *, seed: Seed, track: Track = quiet) -> list[Recovered]:
        number = self.shadows or len(target.public)
        if number < LEAST:
            raise Unknown(
                f"it learns from at least {LEAST} shadow models, each on a public record of its own, got {number}"
            )
        shadow = target.shadows(number, track=track)
        study = Study(self.width, self.depth, self.epochs, self.rate)
        school = School(shadow, study, seed.child("reconstructor"), target)
        weight = self.weighed(school, target)
        kept = selected(weight, self.share or school.best_share(weight))
        control = at_random(kept, school.moving, seed.child("control"))
        told = f"{kept.sum()} of {len(kept)} parameters"
        return [
            _said(target, school.taught(kept), shadow, f"by {self.importance}, {told}", track),
            _said(target, school.taught(control), shadow, f"control: {told} at random", track),
        ]

    def weighed(self, school: School, target: Informed) -> Floats:
        """The importance of each parameter."""
        score = named(self.importance, target.recipe, target.fixed, target.device)
        weight = school.weighed(score, None if self.importance in ALONE else school.taught())
        return by_row(weight, units(target.recipe)) if self.rows else weight


@dataclass(frozen=True, eq=False)
class School:
    """Shadows, and how a reconstructor learns from them when it is shown some of the parameters."""

    shadow: Shadows
    study: Study
    seed: Seed
    target: Informed

    @property
    def moving(self) -> Bools:
        """Parameters that are not the same in all shadows."""
        moving: Bools = np.ptp(self.shadow.weights, axis=0) > 0
        return moving

    def weighed(self, score: Importance, reconstructor: Reconstructing | None) -> Floats:
        return score(self.shadow.weights, self.shadow.records, reconstructor)

    def taught(self, shown: Bools | None = None, first: int | None = None) -> Reconstructing:
        """From the first so many shadows; all, unless told."""
        weights, records = self.shadow.weights[:first], self.shadow.records.x[:first]
        return learned(weights, records, self.study, seed=self.seed, device=self.target.device, shown=shown)

    def best_share(self, weight: Floats) -> float:
        """That with which a reconstructor is nearest to records whose shadows it has not seen."""
        first = round((1 - HELD_OUT) * len(self.shadow.weights))
        unseen, truth = self.shadow.weights[first:], self.shadow.records.x[first:]
        losses = [off(self.taught(selected(weight, s), first)(unseen), truth).mean() for s in SHARES]
        return SHARES[int(np.argmin(losses))]


def off(guesses: Array, records: Array) -> Floats:
    """The poster's loss: mean absolute plus mean squared error, [record]."""
    apart = np.asarray(guesses, float).reshape(len(guesses), -1) - np.asarray(records, float).reshape(len(records), -1)
    found: Floats = (np.abs(apart) + apart**2).mean(1)
    return found


def _said(target: Informed, answer: Reconstructing, shadow: Shadows, variant: str, track: Track) -> Recovered:
    guesses = np.clip(answer(target.weights), shadow.records.x.min(), shadow.records.x.max())
    labels, left = target.explained(guesses, track)
    return Recovered("record", guesses, -left, left, f"{variant}, {len(shadow.weights)} shadows", labels)
