"""The record that a model was trained on besides known ones, told by a network that has seen many such models.

Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022. Section IV: (1) train shadow models
on the fixed records and one public record each; (2) teach a network to answer that record when it is shown the weights;
(3) show it the released weights.
Differs from the paper: the step size of the network falls along a cosine, and each guess has a certificate: the model
is trained again with the guess, under every label, and what is left of the distance to the released weights is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engram import check
from engram.access import Informed, Shadows, Unknown
from engram.reconstruction import Study, learned
from engram.seed import Seed
from engram.types import Floats, Recovered, Track, quiet

LEAST = 100  # shadows; with fewer the network says little more than the mean record


@dataclass(frozen=True)
class Reconstructor:
    """Every training record but one is known; a network learns from shadow models to tell that one from the weights."""

    asks: ClassVar = Informed
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Balle, Cherubin, Hayes 2022"
    shadows: int = 0  # 0: as many as there are public records
    width: int = 500
    depth: int = 2
    epochs: int = 100
    rate: float = 1e-3
    kind: str = "mlp"  # or "cnn", for colour pictures

    def __post_init__(self) -> None:
        check.known("kind of reconstructor", self.kind, ("mlp", "cnn"))
        check.whole("shadows", self.shadows, 0)
        check.whole("epochs", self.epochs, 1)
        check.positive("rate", self.rate)

    def __call__(self, target: Informed, *, seed: Seed, track: Track = quiet) -> Recovered:
        shadow = target.shadows(enough(self.shadows or len(target.public)), track=track)
        study = Study(self.width, self.depth, self.epochs, self.rate, kind=self.kind)
        answer = learned(
            shadow.weights, shadow.records.x, study, seed=seed.child("reconstructor"), device=target.device, track=track
        )
        guesses = within(answer(target.weights), shadow)
        labels, left = target.explained(guesses, track)
        return Recovered("record", guesses, -left, left, f"{len(shadow.weights)} shadows{_warned(target)}", labels)


def enough(shadows: int) -> int:
    if shadows < LEAST:
        raise Unknown(
            f"a reconstructor learns from at least {LEAST} shadow models, each on a public record of its own, got "
            f"{shadows}; give the target more records in others=..."
        )
    return shadows


def within(guesses: Floats, shadow: Shadows) -> Floats:
    """No number outside the range that records have."""
    return np.clip(guesses, shadow.records.x.min(), shadow.records.x.max())


def _warned(target: Informed) -> str:
    """In the finding, not in a log: what this adversary cannot do again, and by how much that moves the weights."""
    return "" if target.repeatable else f", training not repeatable: two runs lie {target.unrest():.3g} records apart"
