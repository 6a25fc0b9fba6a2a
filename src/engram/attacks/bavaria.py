"""Likelihood-ratio membership inference with a Bayesian variance: LiRA that stays sound with few shadows.

Brannvall: Exponential-Family Membership Inference: From LiRA and RMIA to BaVarIA, 2026. A conjugate prior on each
record's variance makes the predictive of its score a Student t (or, "normal", a Gaussian with the stabilised variance).
Smyth: Linear models and empirical Bayes methods for assessing differential expression, 2004. Section 6 (the prior).
Differs from the paper: it was read in abstract only, so its prior parameters are not these. Here the variance has an
inverse gamma prior, fitted over all records by the moments of log variances (Smyth), and the mean has a flat one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import norm, t

from engram import check
from engram.access import Probabilities
from engram.population import Population, stood_in
from engram.seed import Seed
from engram.signals import margin
from engram.types import Bools, Floats, Scores, Track, quiet

SURE = 1e8  # degrees of freedom of a prior that knows the variance: all records share one
CLOSEST = 1e-16  # the least variance: of a record on which all shadows agree, as they may when answers are rounded


@dataclass(frozen=True)
class BaVarIA:
    """Per-record predictive likelihood ratio. Like `LiRA`, but each variance leans on those of all records."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Brannvall 2026"
    shadows: int = 64
    mode: Literal["online", "offline"] = "online"
    predictive: Literal["student", "normal"] = "student"

    def __post_init__(self) -> None:
        check.known("mode of bavaria", self.mode, ("online", "offline"))
        check.known("predictive of bavaria", self.predictive, ("student", "normal"))
        check.whole("shadows", self.shadows, 6)  # a stand-in leaves two or three on each side

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        shadow = target.population(self.shadows, track=track)
        scores = self.scored(target.signal(margin), shadow)  # [record]
        claims = scores > stood_in(shadow, self.scored, margin)
        return Scores(scores, target.ids, claims, f"{self.mode}, {self.predictive} predictive")

    def scored(self, phi: Floats, shadow: Population) -> Floats:
        """[view, record] -> [record]"""
        told = shadow.of(margin)[:, 0]  # [model, record]
        outside = predicted(told, ~shadow.member)
        if self.mode == "offline":
            return np.asarray(
                (phi[0] - outside.mean) / outside.scale
            )  # every record has as many models, so t tails rank like this
        log_density = DENSITIES[self.predictive]
        return log_density(phi[0], predicted(told, shadow.member)) - log_density(phi[0], outside)


@dataclass(frozen=True, eq=False)
class Predictive:
    """Where the score of one more model would fall: a Student t for each record."""

    mean: Floats  # [record]
    scale: Floats  # [record]
    freedom: Floats  # [record]


def predicted(told: Floats, chosen: Bools) -> Predictive:
    """From told[model, record] of the chosen models; posterior of the normal and inverse gamma, flat in the mean."""
    n = chosen.sum(0)
    mean = np.where(chosen, told, 0).sum(0) / n
    squares = np.where(chosen, (told - mean) ** 2, 0).sum(0)
    variance = np.maximum(squares / (n - 1), CLOSEST)
    freedom, typical = prior(variance, n - 1)
    posterior = (freedom * typical + (n - 1) * variance) / (freedom + n - 1)  # Smyth, equation 2
    return Predictive(mean, np.sqrt(posterior * (1 + 1 / n)), freedom + n - 1.0)


def prior(variance: Floats, freedom: Floats) -> tuple[float, float]:
    """Degrees of freedom and typical variance of the prior behind these sample variances; Smyth, section 6.2."""
    e = np.log(variance) - digamma(freedom / 2) + np.log(freedom / 2)
    spread = float(np.var(e, ddof=1) - polygamma(1, freedom / 2).mean())  # what trigamma(d0 / 2) must be
    if spread <= _trigamma(SURE / 2):
        return SURE, float(np.exp(e.mean()))
    d = 2 * float(brentq(lambda half: _trigamma(half) - spread, 1e-8, SURE / 2))
    return d, float(np.exp(e.mean() + digamma(d / 2) - np.log(d / 2)))


def _trigamma(x: float) -> float:
    return float(polygamma(1, x))


def student(phi: Floats, told: Predictive) -> Floats:
    density: Floats = t.logpdf(phi, told.freedom, told.mean, told.scale)
    return density


def normal(phi: Floats, told: Predictive) -> Floats:
    density: Floats = norm.logpdf(phi, told.mean, told.scale)
    return density


DENSITIES: dict[str, Callable[[Floats, Predictive], Floats]] = {"student": student, "normal": normal}
