"""What (epsilon, delta) guarantees alone say of a composition, without the curves behind them. For comparison.

Dwork, Rothblum, Vadhan: Boosting and Differential Privacy, 2010. Theorem III.3 (strong composition).
Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy, 2015. Theorem 3.4.
"""

from __future__ import annotations

import math

from engram import check
from engram.accounting.events import whole


def basic(epsilon: float, delta: float, times: int) -> tuple[float, float]:
    """The sums."""
    _stated(epsilon, delta, times)
    return times * epsilon, min(1.0, times * delta)


def strong(epsilon: float, delta: float, times: int, *, slack: float) -> tuple[float, float]:
    """e sqrt(2 k log(1/d)) + k e (e^e - 1), where that is less than the sum; `slack` is the d that is added to delta."""
    _stated(epsilon, delta, times)
    check.fraction("slack", slack)
    drift = times * epsilon * math.expm1(epsilon) if epsilon < 700 else math.inf
    total = epsilon * math.sqrt(2 * times * math.log(1 / slack)) + drift
    return min(total, times * epsilon), min(1.0, times * delta + slack)


def optimal(epsilon: float, delta: float, times: int, *, slack: float) -> tuple[float, float]:
    """The smallest of the three forms of the theorem that is closest to optimal."""
    _stated(epsilon, delta, times)
    check.fraction("slack", slack)
    drift = times * epsilon * math.tanh(epsilon / 2)
    square = math.sqrt(times) * epsilon
    second = drift + square * math.sqrt(2 * math.log(math.e + square / slack))
    third = drift + square * math.sqrt(2 * math.log(1 / slack))
    kept = -math.expm1(times * math.log1p(-delta)) if delta < 1 else 1.0  # 1 - (1 - delta)^k
    return min(times * epsilon, second, third), kept + slack - kept * slack


def _stated(epsilon: float, delta: float, times: int) -> None:
    check.at_least("epsilon", epsilon, 0.0)
    check.fraction("delta", delta, zero=True, one=True)
    whole("times", times)
