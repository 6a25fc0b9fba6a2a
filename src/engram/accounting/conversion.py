"""From a Renyi curve to (epsilon, delta), at the best order, and back.

Mironov: Renyi Differential Privacy, 2017. Proposition 3.
Balle, Barthe, Gaboardi, Hsu, Sato: Hypothesis Testing Interpretations and Renyi Differential Privacy, 2020. Theorem 21.
Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy, 2020. Proposition 12, solved for epsilon: the same
formula, reached in another way; both names are understood.
Bretagnolle, Huber: Estimation des densites, 1979, and Pinsker: total variation from the limit at order 1.
Differs from the papers: the order is searched continuously; and each answer is capped by the pure end of the curve.

Every answer rounds against the user: any order gives a true guarantee, and the least found is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engram import check
from engram.accounting.curves import Curve
from engram.accounting.search import least
from engram.types import Floats


class NoGuarantee(ValueError):
    """No accountant here can answer: the wanted guarantee does not exist, or is beyond what its numbers can tell."""


@dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) guarantee, and the order that gave it. No order: the pure end, or no order was needed."""

    epsilon: float
    delta: float
    order: float | None
    conversion: str


def mironov(orders: Floats, delta: float) -> Floats:
    """What is added to the divergence.                                                       Mironov, Proposition 3"""
    return -math.log(delta) / (orders - 1)


def balle(orders: Floats, delta: float) -> Floats:
    """What is added to the divergence; may be negative.                                      Balle et al., Theorem 21"""
    b = orders - 1
    return -np.log1p(1 / b) - (math.log(delta) + np.log1p(b)) / b


CONVERSIONS: dict[str, Callable[[Floats, float], Floats]] = {"mironov": mironov, "balle": balle, "canonne": balle}


def to_epsilon(curve: Curve, delta: float, conversion: str = "balle") -> Guarantee:
    """The least epsilon that the curve proves at this delta."""
    check.known("conversion", conversion, CONVERSIONS)
    check.fraction("delta", delta, zero=True)
    pure = curve.pure
    if delta == 0:
        if math.isinf(pure):
            raise NoGuarantee(
                "at delta 0 these events have no finite epsilon, and no accountant can give one; state a delta"
            )
        return Guarantee(pure, delta, None, "pure")
    added = CONVERSIONS[conversion]
    epsilon, order = least(lambda orders: curve.at(orders) + added(orders, delta))
    if pure <= max(epsilon, 0.0):
        return Guarantee(pure, delta, None, "pure")
    if epsilon <= 0 or total_variation(curve) <= delta:
        return Guarantee(0.0, delta, order if epsilon <= 0 else None, conversion)
    return Guarantee(epsilon, delta, order if math.isfinite(order) else None, conversion)


def to_delta(curve: Curve, epsilon: float, conversion: str = "balle") -> Guarantee:
    """The least delta that the curve proves at this epsilon."""
    check.known("conversion", conversion, CONVERSIONS)
    check.at_least("epsilon", epsilon, 0.0)
    if epsilon >= curve.pure:
        return Guarantee(epsilon, 0.0, None, "pure")
    balanced = 0.0 if conversion == "mironov" else 1.0

    def log_delta(orders: Floats) -> Floats:
        b = orders - 1
        return b * (curve.at(orders) - epsilon) - balanced * (b * np.log1p(1 / b) + np.log1p(b))

    log, order = least(log_delta)
    variation = total_variation(curve)
    if variation <= math.exp(min(log, 0.0)):
        return Guarantee(epsilon, variation, None, "total variation")
    return Guarantee(epsilon, math.exp(min(log, 0.0)), order, conversion)


def total_variation(curve: Curve) -> float:
    """At most this far apart are the two distributions: the delta of epsilon 0, from the limit at order 1."""
    kl = curve.kullback_leibler
    return min(math.sqrt(kl / 2), math.sqrt(-math.expm1(-kl)))
