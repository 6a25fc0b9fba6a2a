"""Robust membership inference: is the record more at home in this model than other records are?

Zarifzadeh, Liu, Shokri: Low-Cost High-Power Membership Inference Attacks, 2024. Equations 3 and 4, section 3, and the
appendix on the offline estimate and on the soft-margin Taylor softmax.
Differs from the paper: the records that x is compared with are the other candidates, members and non-members as they
come; models in which x took part and models in which it did not weigh the same in p(x), however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from engram import check, signals
from engram.access import Probabilities
from engram.measure.ranks import ranked
from engram.measure.roc import auc
from engram.population import Population, stood_in
from engram.seed import Seed
from engram.types import Bools, Floats, Scores, Track, quiet

SIGNALS = {"softmax": signals.confidence, "taylor": signals.taylor_confidence}
GRID = np.arange(0, 11) / 10  # values of `a` that are tried, as in the paper
TINY = float(np.finfo(float).tiny)  # a masked answer may be an exact zero
STAND_INS = 4  # shadows that play the target while `a` is chosen


@dataclass(frozen=True)
class RMIA:
    """The share of other records that x dominates by the factor `gamma`. The strongest with few shadows.

    "offline" uses only models without x and completes p(x) with the line p_in = a p_out + 1 - a; `a` None is calibrated
    on shadows that stand in for the target. `signal` "taylor" is the paper's soft-margin Taylor softmax.
    """

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Zarifzadeh et al. 2024"
    shadows: int = 64
    mode: Literal["online", "offline"] = "online"
    gamma: float = 1.0
    a: float | None = None
    signal: Literal["softmax", "taylor"] = "softmax"

    def __post_init__(self) -> None:
        check.known("mode of rmia", self.mode, ("online", "offline"))
        check.known("signal of rmia", self.signal, SIGNALS)
        check.positive("gamma", self.gamma)
        check.whole("shadows", self.shadows, 2)
        if self.a is not None:
            check.fraction("a", self.a, zero=True, one=True)

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        signal = SIGNALS[self.signal]
        shadow = target.population(self.shadows, track=track)
        tuned = self.calibrated(shadow)
        scores = tuned.scored(target.signal(signal), shadow)  # [record]
        claims = scores > stood_in(shadow, tuned.scored, signal)
        line = f", a = {tuned.a:g}" if self.mode == "offline" else ""
        return Scores(scores, target.ids, claims, f"{self.mode}{line}, gamma = {self.gamma:g}, {self.signal}")

    def scored(self, p: Floats, shadow: Population) -> Floats:
        """[view, record] -> [record]"""
        told = shadow.of(SIGNALS[self.signal])[:, 0]
        p_x = self.reference(told, shadow.member)
        return dominated(np.log(np.maximum(p[0], TINY)) - np.log(np.maximum(p_x, TINY)), self.gamma)

    def reference(self, told: Floats, member: Bools) -> Floats:
        """p(x), the probability of the label over models in general; [record]"""
        p_out = _mean(told, ~member)
        if self.mode == "online":
            return (_mean(told, member) + p_out) / 2  # equation 4, with both kinds
        a = 0.0 if self.a is None else self.a
        return ((1 + a) * p_out + 1 - a) / 2  # the mean of p_out and p_in = a p_out + 1 - a

    def calibrated(self, shadow: Population) -> RMIA:
        """With the `a` that works best when shadows stand in for the target."""
        if self.mode == "online" or self.a is not None:
            return self
        worth = [replace(self, a=float(a))._mean_area(shadow) for a in GRID]
        return replace(self, a=float(GRID[int(np.argmax(worth))]))

    def _mean_area(self, shadow: Population) -> float:
        told = shadow.of(SIGNALS[self.signal])
        models = range(min(STAND_INS, len(shadow)))
        return float(np.mean([auc(ranked(self.scored(told[m], shadow.without(m)), shadow.member[m])) for m in models]))


def dominated(ratio: Floats, gamma: float) -> Floats:
    """The share of z whose log likelihood ratio lies at least log(gamma) below that of x; [record] -> [record]"""
    below = np.searchsorted(np.sort(ratio), ratio - np.log(gamma), side="right")
    return np.asarray(below / len(ratio), float)  # equation 3


def _mean(told: Floats, chosen: Bools) -> Floats:
    """[model, record] -> [record]; where no model is chosen, over all."""
    count = chosen.sum(0)
    among = np.where(count > 0, np.where(chosen, told, 0).sum(0) / np.maximum(count, 1), told.mean(0))
    return np.asarray(among, float)
