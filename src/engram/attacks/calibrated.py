"""Loss against a threshold of each record's own: what models say of it that never saw it.

Sablayrolles, Douze, Ollivier, Schmid, Jegou: White-box vs Black-box: Bayes Optimal Strategies for Membership Inference,
2019. Section 4: the optimal score is (tau(x) - loss) / T with tau(x) = -T log E[exp(-loss / T)], the mean over models
trained without x. It depends on the model through its loss alone, so probabilities are all that it needs.
Watson, Guo, Cormode, Sablayrolles: On the Importance of Difficulty Calibration, 2022 (the mean loss, T infinite).
Differs from the paper: the mean is taken over shadows without the record, the temperature is a knob, and the constant
factor 1 / T is left out, as it changes no rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from engram import check
from engram.access import Probabilities
from engram.population import Population, stood_in
from engram.seed import Seed
from engram.signals import loss
from engram.types import Bools, Floats, Scores, Track, quiet


@dataclass(frozen=True)
class CalibratedLoss:
    """How far the loss lies below what models without the record would say. `temperature` inf compares with their mean."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Sablayrolles et al. 2019"
    shadows: int = 64
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check.whole("shadows", self.shadows, 4)  # a stand-in leaves at least one without each record
        if self.temperature != math.inf:
            check.positive("temperature", self.temperature)

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        shadow = target.population(self.shadows, track=track)
        scores = self.scored(target.signal(loss), shadow)  # [record]
        claims = scores > stood_in(shadow, self.scored, loss)
        return Scores(scores, target.ids, claims, f"temperature {self.temperature:g}")

    def scored(self, phi: Floats, shadow: Population) -> Floats:
        """[view, record] -> [record]"""
        return np.asarray(threshold(shadow.of(loss)[:, 0], ~shadow.member, self.temperature) - phi[0])


def threshold(told: Floats, without: Bools, temperature: float) -> Floats:
    """tau(x), from losses told[model, record] of the models without the record; [record]"""
    count = without.sum(0)
    if temperature == math.inf:
        return np.asarray(np.where(without, told, 0).sum(0) / count)
    soft = logsumexp(np.where(without, -told / temperature, -np.inf), axis=0)
    return np.asarray(-temperature * (soft - np.log(count)))
