"""Likelihood-ratio membership inference.

Carlini, Chien, Nasr, Song, Terzis, Tramer: Membership Inference Attacks From First Principles, 2022.
Algorithm 1 (online), section V (offline), section VI-C (several queries of one record).
Differs from the paper: shadows come as complementary pairs, so every record is in exactly half of them; several queries
count as independent, each with a Gaussian of its own; the fixed variance is that of IN scores for IN and of OUT scores
for OUT (the released code takes that of IN for both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import log_ndtr

from engram import check
from engram.access import Probabilities
from engram.population import Population, stood_in
from engram.seed import Seed
from engram.signals import margin, views
from engram.types import Bools, Floats, Scores, Track, quiet

Variance = Literal["record", "fixed"]
CLOSEST = 1e-8  # the least deviation: of a record on which all shadows agree, as they may when answers are rounded
Moments = tuple[Floats, Floats, Floats, Floats]  # mean IN, deviation IN, mean OUT, deviation OUT; each [view, record]


@dataclass(frozen=True)
class LiRA:
    """Per-record Gaussian likelihood ratio. The strongest with many shadows; with few, see `RMIA` and `BaVarIA`.

    "online" compares what models say that were trained with and without the record; "offline" knows only those without,
    and asks how unusual the target is among them, by the Gaussian's distribution function ("offline-cdf", the paper's)
    or by its density ("offline-density", the released code's). `variance` "fixed" pools over records: better with few
    shadows.
    """

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Carlini et al. 2022"
    shadows: int = 64
    mode: Literal["online", "offline-cdf", "offline-density"] = "online"
    variance: Variance = "record"
    views: Sequence[str] = ("as is",)

    def __post_init__(self) -> None:
        check.known("mode of lira", self.mode, SCORES)
        check.known("variance of lira", self.variance, ("record", "fixed"))
        check.whole("shadows", self.shadows, 4 if self.variance == "record" else 2)

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        seen = views(self.views, target.records.x)
        shadow = target.population(self.shadows, views=seen, track=track)
        scores = self.scored(target.signal(margin, seen), shadow)  # [record]
        claims = scores > stood_in(shadow, self.scored, margin)
        return Scores(
            scores, target.ids, claims, f"{self.mode}, {self.variance} variance, views: {', '.join(self.views)}"
        )

    def scored(self, phi: Floats, shadow: Population) -> Floats:
        """[view, record] -> [record]"""
        fitted = moments(shadow.of(margin), shadow.member, self.variance)
        return np.asarray(SCORES[self.mode](phi, *fitted).sum(0))


def moments(phi: Floats, member: Bools, variance: Variance) -> Moments:
    """Mean and deviation of phi[model, view, record] over the models with, and over those without, each record."""
    mu_in, s_in = _gaussian(phi, member, variance)
    mu_out, s_out = _gaussian(phi, ~member, variance)
    return mu_in, s_in, mu_out, s_out


def _gaussian(phi: Floats, chosen: Bools, variance: Variance) -> tuple[Floats, Floats]:
    count = chosen.sum(0)  # [record]
    among = chosen[:, None]
    mu = np.where(among, phi, 0).sum(0) / count
    squares = np.where(among, (phi - mu) ** 2, 0).sum(0)  # [view, record]
    if variance == "record":
        return mu, np.maximum(np.sqrt(squares / count), CLOSEST)
    pooled = squares.sum(-1, keepdims=True) / count.sum()
    return mu, np.broadcast_to(np.maximum(np.sqrt(pooled), CLOSEST), mu.shape)


def log_normal(phi: Floats, mu: Floats, s: Floats) -> Floats:
    """log N(phi; mu, s^2), without the constant that cancels in a ratio."""
    return -np.log(s) - 0.5 * ((phi - mu) / s) ** 2


def log_ratio(phi: Floats, mu_in: Floats, s_in: Floats, mu_out: Floats, s_out: Floats) -> Floats:
    return log_normal(phi, mu_in, s_in) - log_normal(phi, mu_out, s_out)  # Algorithm 1, line 16


def unusually_high(phi: Floats, _mu_in: Floats, _s_in: Floats, mu_out: Floats, s_out: Floats) -> Floats:
    return np.asarray(-log_ndtr(-(phi - mu_out) / s_out))  # -log Pr[Z > phi], section V; grows with 1 - Pr[Z > phi]


def improbable(phi: Floats, _mu_in: Floats, _s_in: Floats, mu_out: Floats, s_out: Floats) -> Floats:
    return -log_normal(phi, mu_out, s_out)


SCORES = {"online": log_ratio, "offline-cdf": unusually_high, "offline-density": improbable}
