"""An upper bound on the Renyi divergence of an event on a batch of fixed size, drawn without replacement.

Wang, Balle, Kasiviswanathan: Subsampled Renyi Differential Privacy and Analytical Moments Accountant, 2019. Theorem 9.
Balle, Barthe, Gaboardi: Privacy Amplification by Subsampling, 2018. Theorem 9 (the purely private end).
Differs from the papers: an order that is no whole number lies on the chord of (a - 1) D, which is convex in a; and the
event without sampling bounds it too, which is what is left above MOST.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, logsumexp

from engram.types import Floats

MOST = 4096  # terms that are summed


def bound(base: Callable[[Floats], Floats], pure: float, rate: float, orders: Floats) -> Floats:
    """At each order in [1, infinity], given the curve of the event without sampling and its value at infinity."""
    if rate in (0.0, 1.0):
        return base(orders) * rate
    out = np.minimum(base(orders), amplified(pure, rate))
    summed = np.floor(orders) < MOST
    whole = np.unique(np.concatenate([np.floor(orders[summed]), np.floor(orders[summed]) + 1]))
    whole = whole[whole >= 2].astype(np.int64)
    if len(whole):
        j = np.arange(2, whole[-1] + 1)
        terms = _terms(j, base(j.astype(float)), pure, rate)
        moments = {1: 0.0} | {int(a): _log_moment(int(a), terms) for a in whole}
        a, low = orders[summed], np.floor(orders[summed]).astype(np.int64)
        left = np.array([moments[int(k)] for k in low])
        right = np.array([moments[int(k) + 1] for k in low])
        chord = left + (a - low) * (right - left)
        slope = moments.get(2, 0.0)  # at order 1, where it was asked for
        out[summed] = np.minimum(out[summed], np.where(a > 1, chord / np.where(a > 1, a - 1, 1.0), slope))
    return out


def amplified(pure: float, rate: float) -> float:
    """log(1 + rate (e^pure - 1))."""
    return (
        float(np.logaddexp(np.log1p(-rate), np.log(rate) + pure))
        if pure > 1
        else float(np.log1p(rate * np.expm1(pure)))
    )


def _terms(j: Floats, divergence: Floats, pure: float, rate: float) -> Floats:
    """log of what stands beside each binomial coefficient, j = 2, 3, ...                      Theorem 9"""
    with np.errstate(divide="ignore", over="ignore"):
        burst = _log_expm1(np.array([pure]))[0]
        rest = (j - 1) * divergence + np.minimum(np.log(2.0), j * burst)
        d2 = divergence[0]
        second = np.minimum(np.log(4.0) + _log_expm1(divergence[:1])[0], d2 + min(np.log(2.0), 2 * burst))
    rest[0] = second
    out: Floats = j * np.log(rate) + rest
    return out


def _log_moment(a: int, terms: Floats) -> float:
    j = np.arange(2, a + 1)
    choose = gammaln(a + 1) - gammaln(j + 1) - gammaln(a - j + 1)
    return float(np.logaddexp(0.0, logsumexp(choose + terms[: a - 1])))


def _log_expm1(t: Floats) -> Floats:
    return np.where(t > 30, t, np.log(np.expm1(np.minimum(t, 30.0))))
