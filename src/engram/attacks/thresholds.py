"""Threshold attacks: one number of the answer, compared with a threshold that is set on shadow models.

Yeom, Giacomelli, Fredrikson, Jha: Privacy Risk in Machine Learning, 2018 (confidence, equivalently loss).
Salem, Zhang, Humbert, Berrang, Fritz, Backes: ML-Leaks, 2019 (largest confidence, entropy).
Song, Mittal: Systematic Evaluation of Privacy Risks of Machine Learning Models, 2021 (modified entropy; per class).
Differs from the papers: thresholds maximise balanced accuracy over several shadows together, not over one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engram import signals
from engram.access import Probabilities
from engram.measure.thresholds import best, best_by_group
from engram.population import Population
from engram.seed import Seed
from engram.types import Floats, Ints, Scores, Track, quiet


@dataclass(frozen=True)
class Confidence:
    """Members are answered with more confidence in the true label. Ranks like the loss. Once for all, once per class."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Yeom et al. 2018"
    shadows: int = 64

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> list[Scores]:  # noqa: ARG002
        shadow = target.population(self.shadows, track=track)
        return compared(-target.signal(signals.loss)[0], -shadow.of(signals.loss), shadow, target)


@dataclass(frozen=True)
class LargestConfidence:
    """Members are answered with more confidence in whatever label is answered. Needs no label; blind behind MemGuard."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Salem et al. 2019"
    shadows: int = 64

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> list[Scores]:  # noqa: ARG002
        shadow = target.population(self.shadows, track=track)
        told = shadow.of(signals.doubt)
        return compared(-target.signal(signals.doubt)[0], -told, shadow, target)


@dataclass(frozen=True)
class Entropy:
    """Members are answered with less entropy. Needs no label, and is fooled by confident mistakes."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Salem et al. 2019"
    shadows: int = 64

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> list[Scores]:  # noqa: ARG002
        shadow = target.population(self.shadows, track=track)
        return compared(-target.signal(signals.entropy)[0], -shadow.of(signals.entropy), shadow, target)


@dataclass(frozen=True)
class ModifiedEntropy:
    """Entropy that counts a confident mistake as what it is."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Song, Mittal 2021"
    shadows: int = 64

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> list[Scores]:  # noqa: ARG002
        shadow = target.population(self.shadows, track=track)
        phi, told = target.signal(signals.modified_entropy)[0], shadow.of(signals.modified_entropy)
        return compared(-phi, -told, shadow, target)


def compared(phi: Floats, told: Floats, shadow: Population, target: Probabilities) -> list[Scores]:
    """phi[record] and told[model, view, record], larger = more likely a member, against thresholds set on the shadows."""
    y, k = target.records.y, len(target.records.classes)
    everywhere = global_threshold(told[:, 0], shadow)
    by_class = class_thresholds(told[:, 0], shadow, y, k)[y]
    return [
        Scores(phi, target.ids, claims=phi > everywhere, variant="one threshold"),
        Scores(phi - by_class, target.ids, claims=phi > by_class, variant="per class"),
    ]


def global_threshold(told: Floats, shadow: Population) -> float:
    return best(told.ravel(), shadow.member.ravel())


def class_thresholds(told: Floats, shadow: Population, y: Ints, classes: int) -> Floats:
    """[class]"""
    group = np.broadcast_to(y, told.shape)
    return best_by_group(told.ravel(), shadow.member.ravel(), group.ravel(), classes)
