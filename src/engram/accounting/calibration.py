"""From a budget to what it allows: the least noise, the largest rate, the most steps, the largest clip norm.

Each answer keeps its promise: its own epsilon is at most the wanted one, and within 1e-6 of the edge where that is finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from engram import check
from engram.accounting.conversion import NoGuarantee, to_epsilon
from engram.accounting.curves import curve
from engram.accounting.events import Composed, Event, Gaussian, PoissonSampled, whole

EDGE = 1e-6  # relative
MOST_NOISE, LEAST_NOISE = 1e9, 1e-6
MOST_STEPS = 10**12

Allowed = Callable[[float], bool]


def noise_multiplier(*, epsilon: float, delta: float, rate: float, steps: int, group: int = 1) -> float:
    """The least noise multiplier of private training within the budget, rounded up.

    >>> round(noise_multiplier(epsilon=3.0, delta=1e-5, rate=0.01, steps=1000), 2)
    0.86
    """
    _budget(epsilon, delta)
    if not whole("steps", steps) or not check.fraction("rate", rate, zero=True, one=True):
        return 0.0
    fits = _fits(lambda noise: training(noise, rate, steps), epsilon, delta, group)
    if not fits(MOST_NOISE):
        raise NoGuarantee(
            f"no noise multiplier up to {MOST_NOISE:g} keeps epsilon {epsilon:g} at delta {delta:g}; raise the budget"
        )
    return _edge(fits, MOST_NOISE, LEAST_NOISE)


def rate(*, epsilon: float, delta: float, noise_multiplier: float, steps: int, group: int = 1) -> float:
    """The largest sampling rate within the budget, rounded down."""
    _budget(epsilon, delta)
    check.at_least("noise_multiplier", noise_multiplier, 0.0)
    fits = _fits(lambda q: training(noise_multiplier, q, steps), epsilon, delta, group)
    if fits(1.0):
        return 1.0
    return _edge(fits, 1e-12, 1.0) if fits(1e-12) else 0.0


def steps(*, epsilon: float, delta: float, noise_multiplier: float, rate: float, group: int = 1) -> int:
    """The most steps within the budget."""
    _budget(epsilon, delta)
    check.at_least("noise_multiplier", noise_multiplier, 0.0)
    fits = _fits(lambda n: training(noise_multiplier, rate, int(n)), epsilon, delta, group)
    if fits(MOST_STEPS):
        raise ValueError(f"these steps cost next to nothing: {MOST_STEPS} of them fit; no count needs to be found")
    low, high = 0, 1
    while fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def clip_norm(*, epsilon: float, delta: float, noise: float, rate: float, steps: int, group: int = 1) -> float:
    """The largest clip norm within the budget where the standard deviation of the summed noise is given."""
    check.positive("noise", noise)
    least = noise_multiplier(epsilon=epsilon, delta=delta, rate=rate, steps=steps, group=group)
    return noise / least if least else math.inf


def training(noise_multiplier: float, rate: float, steps: int) -> Event:
    """Private training of equal steps: each a Poisson-sampled Gaussian."""
    return Composed((PoissonSampled(rate, Gaussian(noise_multiplier)), steps))


def _budget(epsilon: float, delta: float) -> None:
    check.positive("epsilon", epsilon)
    check.fraction("delta", delta)


def _fits(event: Callable[[float], Event], epsilon: float, delta: float, group: int) -> Allowed:
    return lambda value: to_epsilon(curve(event(value), group=group), delta).epsilon <= epsilon


def _edge(fits: Allowed, good: float, bad: float) -> float:
    """The last good value on the way to a bad one, within EDGE of the first bad one."""
    if fits(bad):
        return bad
    while abs(math.log(bad / good)) > EDGE / 2:
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
