"""What the central limit theorem of Gaussian differential privacy says of many small steps. A diagnostic: no guarantee.

Dong, Roth, Su: Gaussian Differential Privacy, 2019. Corollary 2.13 (epsilon and delta), Theorem 5 (the limit).
Bu, Dong, Long, Su: Deep Learning with Gaussian Differential Privacy, 2020. Equation 6: mu = q sqrt(T (e^(1/s^2) - 1)).
It lies below the truth for few steps and for little noise, often by much, so nothing here may be claimed.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from engram.accounting.curves import pairs
from engram.accounting.events import Event, Gaussian, PoissonSampled, Schedule, leaves


def mu(event: Event) -> float | None:
    """The Gaussian shift that the theorem's limit has; None where the events are not all (sampled) Gaussians."""
    total = 0.0
    for leaf, count in leaves(event).items():
        if isinstance(leaf, Gaussian):
            total += count * _square(1 / leaf.noise_multiplier) if leaf.noise_multiplier else math.inf
        elif isinstance(leaf, PoissonSampled | Schedule):
            noise, rate, counts = pairs(leaf)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                each = np.where(rate == 1, noise**-2.0, rate**2 * np.expm1(noise**-2.0))
                total += count * float(np.sum(np.where(rate == 0, 0.0, each) * counts))
        else:
            return None
    return math.sqrt(total)


def epsilon(event: Event, delta: float) -> float | None:
    """Where the limit's trade-off has this delta. Not a guarantee."""
    shift = mu(event)
    if shift is None or not 0 < delta < 1:
        return None
    if shift == 0 or gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    if shift > 1e6:
        return math.inf
    top = shift**2 / 2 + shift * 40 + 1
    return float(brentq(lambda e: gaussian_delta(shift, e) - delta, 0.0, top, xtol=1e-12))


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Phi(-e/m + m/2) - e^e Phi(-e/m - m/2): exact for one Gaussian answer of noise 1/m.     Dong et al., Corollary 2.13"""
    first = log_ndtr(-epsilon / shift + shift / 2)
    second = epsilon + log_ndtr(-epsilon / shift - shift / 2)
    return float(math.exp(first) * -math.expm1(min(0.0, second - first)))


def _square(value: float) -> float:
    return value * value
