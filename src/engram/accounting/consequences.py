"""What a Renyi curve means for a person in the data: bad outcomes, and what an adversary learns of her.

Mironov: Renyi Differential Privacy, 2017. Proposition 10 (preservation of probabilities); Section III (the Bayes factor, with
X drawn from the output on D, has moments bounded by the divergence).
All bounds take the best order; each is a true bound whichever order it came from.
"""

from __future__ import annotations

import math

import numpy as np

from engram import check
from engram.accounting.curves import Curve
from engram.accounting.search import least


def bad_outcome(curve: Curve, probability: float) -> tuple[float, float]:
    """Between these lies the probability of an outcome with her record, where without it is `probability`.

    >>> from engram.accounting import Laplace, curve
    >>> low, high = bad_outcome(curve(Laplace(10.0)), 0.01)
    >>> round(low, 5), round(high, 5)
    (0.00905, 0.01105)
    """
    check.fraction("probability", probability, zero=True, one=True)
    if probability == 0:
        return 0.0, _zero_stays(curve)
    pure = curve.pure
    most = min(_most(curve, probability), math.exp(min(pure, 700.0)) * probability)
    fewest = max(_fewest(curve, probability), math.exp(-pure) * probability)
    if probability < 1:
        good = min(_most(curve, 1 - probability), math.exp(min(pure, 700.0)) * (1 - probability))
        good_low = max(_fewest(curve, 1 - probability), math.exp(-pure) * (1 - probability))
        most, fewest = min(most, 1 - good_low), max(fewest, 1 - good)
    return max(0.0, fewest), min(1.0, most)


def bayes_factor_moment(curve: Curve, order: float) -> float:
    """At most this is E[(posterior odds / prior odds)^order] for one data set against a neighbour, when the other is true."""
    return math.exp(min((order - 1) * curve(order), 709.0)) if (order - 1) * curve(order) < 709 else math.inf


def bayes_factor_tail(curve: Curve, factor: float) -> float:
    """At most this probable is it that evidence multiplies the odds of a neighbour, which is not the truth, by `factor`."""
    check.positive("factor", factor)
    if math.log(factor) > curve.pure:
        return 0.0
    if factor <= 1:
        return 1.0
    log, _ = least(lambda orders: (orders - 1) * curve.at(orders) - orders * math.log(factor))
    return min(1.0 / factor, math.exp(min(log, 0.0)))


def _most(curve: Curve, p: float) -> float:
    """(e^D p)^((a-1)/a), at the best order.                                                  Proposition 10"""
    log, _ = least(lambda orders: (orders - 1) / orders * (curve.at(orders) + math.log(p)))
    return math.exp(min(log, 0.0))


def _fewest(curve: Curve, p: float) -> float:
    """e^-D p^(a/(a-1)), which is the same bound with the roles exchanged."""
    log, _ = least(lambda orders: curve.at(orders) - orders / (orders - 1) * math.log(p))
    return math.exp(-log) if np.isfinite(log) else 0.0


def _zero_stays(curve: Curve) -> float:
    """What never happens on one data set never happens on a neighbour, if any divergence is finite."""
    return 0.0 if math.isfinite(curve(2.0)) or math.isfinite(curve(1.001)) else 1.0
