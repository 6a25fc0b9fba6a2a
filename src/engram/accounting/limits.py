"""What a privacy guarantee allows of any membership attack whatever, and what a measurement says of a guarantee.

Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy, 2015. Theorem 2.1: for (epsilon, delta),
TPR <= e^epsilon FPR + delta and 1 - FPR <= e^epsilon (1 - TPR) + delta.
Mironov: Renyi Differential Privacy, 2017. Proposition 10, for both errors: TPR <= (e^D FPR)^((a-1)/a), and so on.

All are upper bounds, also for an adversary who knows every other record. Neighbouring = one record in or out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from engram import check
from engram.accounting.conversion import balle, total_variation
from engram.accounting.curves import Curve
from engram.types import Finding, Floats

ORDERS = 1 + np.geomspace(1e-3, 1e5, 160)  # each of them gives a true bound
EPSILONS = np.concatenate([[0.0], np.geomspace(1e-4, 200.0, 120)])


@dataclass(frozen=True)
class Claim:
    """What a training promises.

    >>> float(best_tpr(Claim(1.0, 1e-5), 0.01).round(4))
    0.0272
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.at_least("epsilon", self.epsilon, 0.0)
        check.fraction("delta", self.delta, zero=True)


def best_tpr(promised: Claim | Curve, fpr: Floats | float) -> Floats:
    """The largest true positive rate that any attack can have at each false positive rate."""
    fpr = np.asarray(fpr, float)
    if not ((fpr >= 0) & (fpr <= 1)).all():
        raise ValueError(f"false positive rates must lie in [0, 1], got {fpr.min()} to {fpr.max()}")
    if isinstance(promised, Claim):
        return _of_pairs(np.array([promised.epsilon]), np.array([promised.delta]), fpr)
    pairs = [_pairs(promised)]
    if math.isfinite(promised.pure):
        pairs.append((np.array([promised.pure]), np.zeros(1)))
    bounds = [_of_pairs(e, d, fpr) for e, d in pairs]
    least: Floats = np.minimum.reduce([*bounds, _of_orders(promised, fpr)])
    return least


def best_advantage(promised: Claim | Curve) -> float:
    """The largest TPR - FPR that any attack can have."""
    if isinstance(promised, Claim):
        return _advantage(promised.epsilon, promised.delta)
    pairs = [_advantage(e, d) for e, d in zip(*_pairs(promised), strict=True)]
    return min(math.tanh(promised.pure / 2), total_variation(promised), *pairs)


def best_ppv(promised: Claim | Curve, fpr: Floats | float, prior: float) -> Floats:
    """The largest share of members among the accused, at each false positive rate, where `prior` of all are members."""
    check.fraction("prior", prior)
    fpr = np.asarray(fpr, float)
    found = prior * best_tpr(promised, fpr)
    accused = found + (1 - prior) * fpr
    return np.where(accused > 0, found / np.where(accused > 0, accused, 1.0), 1.0)


def broken(measured: Finding, claim: Claim, *, at_delta: float) -> Finding | None:
    """A finding that the claim is false, if the measured lower bound lies above it; None where nothing contradicts it.

    `at_delta` is the delta at which epsilon was measured. A bound at a smaller delta than the claim's says nothing of it.
    """
    if at_delta < claim.delta:
        raise ValueError(
            f"the measured epsilon must be at a delta of at least the claim's {claim.delta:g}, got {at_delta:g}; "
            "measure it again with delta=" + f"{claim.delta:g}"
        )
    bound = measured.value if measured.low is None else measured.low
    if bound is None or bound <= claim.epsilon:
        return None
    told = (
        f"the training claims epsilon {claim.epsilon:.4g} at delta {claim.delta:g}, and at least {bound:.4g} was measured, "
        f"with confidence {measured.level:g}: the claim is false, or the measurement's assumptions do not hold"
    )
    return replace(
        measured, metric="broken_claim", value=bound - claim.epsilon, low=bound - claim.epsilon, high=None, reason=told
    )


def _advantage(epsilon: float, delta: float) -> float:
    """(e^e - 1 + 2 d) / (e^e + 1)."""
    return math.tanh(epsilon / 2) * (1 - delta) + delta


def _of_pairs(epsilon: Floats, delta: Floats, fpr: Floats) -> Floats:
    e, d, f = epsilon[:, None], delta[:, None], fpr.reshape(1, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        rise = np.where(f > 0, np.exp(e) * f, 0.0) + d
    fall = 1 - np.exp(-e) * np.maximum(0.0, 1 - f - d)
    least: Floats = np.minimum(1.0, np.minimum(rise, fall).min(0)).reshape(fpr.shape)
    return least


def _of_orders(curve: Curve, fpr: Floats) -> Floats:
    a, d, f = ORDERS[:, None], curve.at(ORDERS)[:, None], fpr.reshape(1, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.exp(np.minimum(0.0, (a - 1) / a * (d + np.log(f))))
        fall = -np.expm1(np.minimum(0.0, a / (a - 1) * np.log1p(-f) - d))
    rise, fall = np.where(np.isinf(d), 1.0, rise), np.where(np.isinf(d), 1.0, fall)
    least: Floats = np.minimum(1.0, np.minimum(rise, fall).min(0)).reshape(fpr.shape)
    return least


def _pairs(curve: Curve) -> tuple[Floats, Floats]:
    """Epsilons, and a delta that the curve proves at each."""
    b = ORDERS - 1
    log = b * (curve.at(ORDERS) + balle(ORDERS, 1.0) - EPSILONS[:, None])
    delta = np.exp(np.minimum(0.0, log.min(1)))
    return EPSILONS, np.minimum(delta, total_variation(curve))
