"""The gap attack: whatever the model gets right was in its training.

Yeom, Giacomelli, Fredrikson, Jha: Privacy Risk in Machine Learning, 2018. Section 3.2 (bounded loss, the 0/1 loss).
The baseline that every other attack must beat: its advantage is the gap between training and test accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engram.access import Labels
from engram.seed import Seed
from engram.types import Scores, Track, quiet


@dataclass(frozen=True)
class Gap:
    """Member iff correctly classified. One query a record, no shadows."""

    asks: ClassVar = Labels
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Yeom et al. 2018"

    def __call__(self, target: Labels, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002  draws nothing
        right = target.labels(target.records.x) == target.records.y  # [record]
        return Scores(right.astype(float), target.ids, claims=right)
