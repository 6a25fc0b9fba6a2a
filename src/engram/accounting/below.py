"""A privacy-loss distribution below that of the Poisson-sampled Gaussian, for a lower bound on epsilon that stays close.

Its losses lie on a grid, and the true one dominates it: at each grid point delta is taken from the tests {loss > t} with t
half way to the neighbouring points, the smaller of the two. Between two points both ends then lie below the line of the
test between them, which is below the true delta. What it loses is of second order in the interval, where rounding losses
down to the grid loses the first order with every step.

The pair is N(0, s^2) and the mixture, in the direction of the larger divergence; a lower bound needs no more than one pair.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from engram.types import Floats, Ints

REACH = 9.0  # standard deviations of the noise: e^-40 lies beyond
NOISE = 1e-13  # of a mass, by rounding
FORGIVEN = 1e-15  # what double precision cannot tell from no mass


def sampled_gaussian(noise: float, rate: float, interval: float) -> tuple[int, Floats, float]:
    """The first grid index, the mass at it and after it, and by how much a delta may be too large for one step."""
    low = math.log1p(-rate)
    top = _loss(1 / noise + REACH, noise, rate)
    k = np.arange(math.floor(low / interval) - 1, math.ceil(top / interval) + 1)
    g = _least_delta(k, noise, rate, interval)
    mass = _mass(g, interval)
    if mass.min() < -NOISE:
        g = _hull(np.exp(k * interval), g)
        mass = _mass(g, interval)
    mass = np.maximum(0.0, mass)
    mass /= max(1.0, math.fsum(mass))
    told = _delta(k, mass, interval)
    counts = g > FORGIVEN
    mass = mass * min(1.0, float(np.min(np.where(counts, g / np.where(told > 0, told, 1.0), np.inf), initial=1.0)))
    excess = float(np.maximum(0.0, _delta(k, mass, interval) - g).max())
    return int(k[0]), mass, excess


def _hull(u: Floats, g: Floats) -> Floats:
    """The largest convex function below these points, straight between those that it keeps."""
    xs, ys = u.tolist(), g.tolist()
    kept: list[int] = []
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (ys[b] - ys[a]) * (x - xs[a]) < (y - ys[a]) * (xs[b] - xs[a]):
                break
            kept.pop()
        kept.append(i)
    lower: Floats = np.minimum(g, np.interp(u, u[kept], g[kept]))
    return lower


def _loss(x: float, noise: float, rate: float) -> float:
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + x / noise - 0.5 / noise**2))


def _least_delta(k: Ints, noise: float, rate: float, interval: float) -> Floats:
    """P(S) - e^(k h) Q(S) for the tests half an interval below and above, the smaller; 1 - e^(k h) where all are in S."""
    ends = (np.arange(k[0], k[-1] + 2) - 0.5) * interval
    log_p, log_q = _tests(ends, noise, rate)
    eps = k * interval
    below = np.exp(log_p[:-1]) - np.exp(eps + log_q[:-1])
    above = np.exp(log_p[1:]) - np.exp(eps + log_q[1:])
    least: Floats = np.maximum(0.0, np.minimum(below, above))
    return least


def _tests(losses: Floats, noise: float, rate: float) -> tuple[Floats, Floats]:
    """log P(loss > l) and log Q(loss > l): x beyond s (log((e^l - 1 + q) / q) + 1/(2 s^2)), in units of the noise."""
    over = np.expm1(losses) + rate
    with np.errstate(divide="ignore"):
        x = np.where(over > 0, noise * (np.log(np.maximum(over, 0.0) / rate) + 0.5 / noise**2), -np.inf)
    log_q = log_ndtr(-x)
    return np.logaddexp(math.log1p(-rate) + log_q, math.log(rate) + log_ndtr(1 / noise - x)), log_q


def _mass(g: Floats, interval: float) -> Floats:
    """The masses whose delta is g at the grid points and straight in e^epsilon between them."""
    falls = np.diff(np.concatenate([[1.0], g, [0.0]]))
    down, up = falls[1:] / math.expm1(interval), falls / math.expm1(-interval)
    up[0] = 1 - g[0]
    down[-1] = 0.0
    mass: Floats = up[:-1] + down
    return mass


def _delta(k: Ints, mass: Floats, interval: float) -> Floats:
    """delta at each grid point."""
    beyond = np.cumsum(mass[::-1])[::-1]
    relative = mass * np.exp(-(k - k[0]) * interval)
    lower = np.cumsum(relative[::-1])[::-1] * np.exp((k - k[0]) * interval)
    delta: Floats = np.maximum(0.0, beyond - lower)
    return delta
