"""The Renyi divergence of the Poisson-sampled Gaussian, integrated to full precision at every order.

Mironov, Talwar, Zhang: Renyi Differential Privacy of the Sampled Gaussian Mechanism, 2019. Theorems 4 and 5: the worst pair
is N(0, s^2) against (1 - q) N(0, s^2) + q N(1, s^2), and the divergence of the second from the first is the larger one.
Differs from the paper: no expansion in erfc or binomials. The integrand of A - 1 is written in psi, is positive, and is
summed by the trapezoidal rule, which on such a function converges like e^(-2 pi d / h), d = pi s to the nearest pole.

Per step x (noise in units of its deviation), with y = x/s - 1/(2 s^2) and the likelihood ratio w = 1 - q + q e^y:

    A - 1 = E_x[w^a - 1 - a (w - 1)] = E_x[w (b psi(-l) + psi(b l))],   l = log w, b = a - 1.

log(w^a e^(-x^2/2)) has one top or two, at x = (a/s) p with logit p = (a/s^2) p - 1/(2 s^2) + logit q. The sum runs over a
piece around each, and around 0, from where less than e^-CUT of it is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from engram.accounting.divergence import psi
from engram.types import Bools, Floats, Ints

SMALLEST_RATE = 1e-80  # a smaller one is charged as this: its powers stay above the smallest double
SPLIT = 0.05  # below this noise the two Gaussians do not overlap to e^-45, and the sum of two terms is exact
REACH = 8.8  # e^(-REACH^2 / 2) < 2e-17
CUT = 44.0
ACCURACY = 37.0  # of the trapezoidal rule: e^-37
HUGE = 600.0
PIECES_GROW = 1.35
AT_ONCE = 200_000  # nodes


def sampled_gaussian(noise: Floats, rate: Floats, orders: Floats) -> Floats:
    """The divergence for each noise multiplier and rate at each order in [1, infinity]: [pair, order]."""
    s, q, a = np.broadcast_arrays(noise[:, None], rate[:, None], orders[None, :])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        whole = np.where(q == 0, 0.0, a / (2 * s**2))
        out = np.where((q > 0) & np.isinf(a), np.inf, whole)
    sampled = (q > 0) & (q < 1) & np.isfinite(out) & (out > 0)
    split = sampled & (s < SPLIT)
    out[split] = _apart(s[split], np.maximum(q[split], SMALLEST_RATE), a[split])
    rest = sampled & ~split
    out[rest] = _integrated(s[rest], np.maximum(q[rest], SMALLEST_RATE), a[rest])
    return out


def _apart(s: Floats, q: Floats, a: Floats) -> Floats:
    """(1-q)^a + q^a e^(a (a-1) / (2 s^2)): what is left of A when no outcome is likely under both Gaussians."""
    b = a - 1
    e = np.log(q) + a / (2 * s**2)  # per unit of b
    limit = q * e + (1 - q) * np.log1p(-q)
    small = b * e < HUGE
    moment = q * np.expm1(np.where(small, b * e, 0.0)) + (1 - q) * np.expm1(b * np.log1p(-q))
    d = np.where(b > 0, np.where(small, np.log1p(moment), np.log(q) + b * e) / np.where(b > 0, b, 1.0), limit)
    return np.maximum(d, 0.0)


@dataclass
class _Cases:
    """One (noise, rate, order) a row, and what is derived from them once."""

    s: Floats
    q: Floats
    a: Floats

    def __post_init__(self) -> None:
        self.b = self.a - 1
        self.log_q, self.log_rest = np.log(self.q), np.log1p(-self.q)
        self.half = 0.5 / self.s**2

    def take(self, rows: Ints) -> _Cases:
        return _Cases(self.s[rows], self.q[rows], self.a[rows])

    def log_ratio(self, x: Floats) -> Floats:
        """l = log w, to full relative precision also where w is near 1. `x` has a trailing axis of nodes, or none."""
        s, q, log_q, log_rest, half = (_like(v, x) for v in (self.s, self.q, self.log_q, self.log_rest, self.half))
        y = x / s - half
        u = q * np.expm1(np.minimum(y, HUGE))
        l = np.log1p(np.maximum(u, -0.5))
        low, high = u < -0.5, y > HUGE
        if low.any():
            l = np.where(low, np.logaddexp(log_rest, log_q + y), l)
        return np.where(high, log_q + y, l) if high.any() else l

    def top(self, x: Floats) -> Floats:
        """log(w^a e^(-x^2/2))."""
        return self.a * self.log_ratio(x) - x * x / 2

    def height(self, x: Floats) -> Floats:
        """The log of the integrand over b."""
        l, b = self.log_ratio(x), np.maximum(self.b, 1e-300)
        t = b * l
        with np.errstate(divide="ignore"):
            below = np.log(psi(-l) + psi(np.minimum(t, HUGE)) / b)
        return np.where(t > HUGE, t - np.log(b), below) + l - x * x / 2

    def ceiling(self, x: Floats) -> Floats:
        """Above the log of the integrand over b, for x where w > 1; where w < 1 it falls with e^(-x^2/2)."""
        l = self.log_ratio(x)
        ratio = np.where(l > 0, l, 1.0)
        with np.errstate(over="ignore"):
            log_u = np.where(ratio > 30, ratio, np.log(np.expm1(np.minimum(ratio, 30.0))))
        quadratic = np.log(self.a / 2) + 2 * log_u + np.maximum(self.a - 2, 0.0) * ratio
        power = self.a * ratio + np.log(ratio + ratio**2)
        return np.where(l > 0, np.minimum(quadratic, power), 0.0) - x * x / 2


def _like(v: Floats, x: Floats) -> Floats:
    return v[:, None] if x.ndim == 2 else v


def _integrated(s: Floats, q: Floats, a: Floats) -> Floats:
    if not len(s):
        return np.zeros(0)
    cases = _Cases(s, q, a)
    low, high = _tops(cases)
    scale = np.maximum(0.0, np.maximum(cases.top(low), cases.top(high)))
    total = np.zeros(len(s))
    rows, starts, ends = _pieces(cases, low, high)
    steps = _nodes(cases, rows, starts, ends)
    order = np.argsort(steps, kind="stable")
    at = 0
    while at < len(order):  # pieces of about equally many nodes together
        most = int(max(steps[order[at]] * 1.25, 32))
        till = min(int(np.searchsorted(steps[order], most, side="right")), at + max(1, AT_ONCE // most))
        part = order[at:till]
        r = rows[part]
        n = int(steps[part].max())
        np.add.at(total, r, _summed(cases.take(r), starts[part], ends[part], n, scale[r]))
        at = till
    return _divergence(total, scale, cases.b)


def _divergence(total: Floats, scale: Floats, b: Floats) -> Floats:
    """From (A - 1) e^-scale, or from its limit over b where b = 0."""
    with np.errstate(divide="ignore"):
        log_a = np.where(scale == 0, np.log1p(total), scale + np.log(total + np.exp(-scale)))
    return np.where(b > 0, log_a / np.where(b > 0, b, 1.0), total)


def _tops(cases: _Cases) -> tuple[Floats, Floats]:
    """The lowest and the highest place where w^a e^(-x^2/2) is stationary, by Newton from p = 0 and from p = 1."""
    slope, shift = cases.a / cases.s**2, cases.log_q - cases.log_rest - cases.half
    p = np.stack([np.zeros_like(slope), np.ones_like(slope)])
    for _ in range(9):
        e = expit(slope * p + shift)
        rise = 1 - slope * e * (1 - e)
        step = (e - p) / np.where(rise > 1e-3, rise, 1e-3)
        p = np.clip(p + step, 0.0, 1.0)
    x = p * cases.a / cases.s
    return x.min(0), x.max(0)


def _pieces(cases: _Cases, low: Floats, high: Floats) -> tuple[Ints, Floats, Floats]:
    """Rows, starts and ends of the stretches that hold all but e^-CUT of the integral."""
    c_low, c_high = cases.height(low), cases.height(high)
    least = np.log(cases.a / 2) + 2 * cases.log_q + np.minimum(0.0, -2 * np.log(cases.s)) - 3.0
    floor = np.maximum(np.maximum(least, c_low), c_high) - CUT
    central = floor < 0  # what is around 0 counts
    near = central | (c_low > floor)
    far = c_high > floor
    start = np.where(central, -REACH, _walk(cases, low, -1.0, floor, -np.inf))
    bulk = np.where(central, np.maximum(low, np.minimum(cases.a, 2.0) / cases.s), low)
    valley = _walk(cases, bulk, 1.0, floor, high + REACH)
    rise = np.where(far, _walk(cases, high, -1.0, floor, -REACH), np.inf)
    end = np.where(far, _walk(cases, high, 1.0, floor, np.inf), -np.inf)
    joined = near & (rise <= valley)
    first_end = np.where(joined, np.maximum(valley, end), valley)
    second = far & ~joined
    rows = np.concatenate([np.flatnonzero(near), np.flatnonzero(second)])
    return (
        rows,
        np.concatenate([start[near], rise[second]]),
        np.concatenate([first_end[near], end[second]]),
    )


def _walk(cases: _Cases, begin: Floats, way: float, floor: Floats, border: Floats | float) -> Floats:
    """From a top outwards until the integrand is below the floor, or to the border."""
    reach = np.full(len(begin), REACH)
    stop = border * np.ones_like(begin)
    for _ in range(60):
        x = begin + way * reach
        past = way * (x - stop) >= 0
        above = (cases.ceiling(x) > floor) & ~past
        if not above.any():
            break
        reach = np.where(above, reach * PIECES_GROW, reach)
    x = begin + way * reach
    return np.where(way * (x - stop) >= 0, stop, x)


def _nodes(cases: _Cases, rows: Ints, starts: Floats, ends: Floats) -> Ints:
    """How many nodes each piece needs: a fine step only where the pole of log w is near."""
    s = cases.s[rows]
    pole = s * (cases.half[rows] + cases.log_rest[rows] - cases.log_q[rows])
    clear: Bools = (starts > pole + 40 * s) | (ends < pole - 40 * s)
    d = np.where(clear, np.inf, 0.95 * np.pi * s)
    d = np.minimum(d, np.sqrt(2 * ACCURACY))
    h = 2 * np.pi * d / (ACCURACY + d**2 / 2)
    nodes: Ints = np.ceil((ends - starts) / h).astype(np.int64) + 1
    return nodes


def _summed(cases: _Cases, start: Floats, end: Floats, n: int, scale: Floats) -> Floats:
    """The trapezoidal sum of e^-scale w (b psi(-l) + psi(b l)) over each piece; without the factor b where b = 0."""
    h = (end - start) / (n - 1)
    x = start[:, None] + h[:, None] * np.arange(n)
    l = cases.log_ratio(x)
    b, m = cases.b[:, None], scale[:, None]
    t = b * l
    weight = np.exp(l - x * x / 2 - m)
    inner = np.where(b > 0, b, 1.0) * psi(-l) + psi(np.minimum(t, 30.0))
    values = weight * inner
    far = t > 30
    if far.any():
        power = np.exp(np.where(far, t + l - x * x / 2 - m, -np.inf))
        values = np.where(far, weight * (b * psi(-l) - 1 - t) + power, values)
    total: Floats = values.sum(1) * h / np.sqrt(2 * np.pi)
    return total
