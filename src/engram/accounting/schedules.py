"""Many steps of a private training, each with its own noise and rate: what they cost together.

Up to EXACT different (noise, rate) pairs are computed one by one. More are bounded from above, in a time that does not grow
with their number, by two inequalities that hold for every order:

1. Within a cell of the (rate, noise) plane, sum log A_i <= n log(mean A_i), the logarithm being concave.
2. A = E_x[w^a] is convex along each coordinate: in q and in 1/s^2; and for a >= 2 also in q^2 and in e^(1/s^2) - 1, in which
   its leading term is linear. So A_i lies below what its cell's corners give it by bilinear interpolation.

Convex in q: w^a is, for each x. In 1/s^2: e^y is a martingale in 1/s^2, w^a a convex function f of it, and
(e^y)^2 f''(e^y) is convex too. In q^2 and e^(1/s^2) - 1: the derivatives are increasing, by pairing y with -y, whose
densities differ by the factor e^y.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from engram.accounting.sampled import SMALLEST_RATE, sampled_gaussian
from engram.types import Floats, Ints

Divergence = Callable[[Floats], Floats]  # orders -> nats
Bend = Callable[[Floats], Floats]

EXACT = 256  # different pairs
CELLS = (32, 16, 9)  # along each coordinate: the first whose corners are few enough, or the last
CORNERS = 110
LARGEST = 600.0


def together(noise: Floats, rate: Floats, counts: Floats) -> Divergence:
    """The divergences of all pairs, each as often as it happened, added at each order."""
    if len(noise) <= EXACT:
        return lambda orders: _added(noise, rate, counts, orders)
    if ((noise == 0) & (rate > 0)).any():
        return lambda orders: np.full(len(orders), np.inf)
    inner = (rate > 0) & (rate < 1) & np.isfinite(noise)
    whole = rate == 1
    unsampled = float(np.sum(counts[whole] / noise[whole] ** 2)) / 2
    if inner.sum() <= EXACT:
        return lambda orders: (
            _added(noise[inner], rate[inner], counts[inner], orders) + (orders * unsampled if unsampled else 0.0)
        )
    bounded = _bounded(noise[inner], rate[inner], counts[inner])
    return lambda orders: bounded(orders) + (orders * unsampled if unsampled else 0.0)


def _added(noise: Floats, rate: Floats, counts: Floats, orders: Floats) -> Floats:
    out: Floats = (counts[:, None] * sampled_gaussian(noise, rate, orders)).sum(0)
    return out


def _bounded(noise: Floats, rate: Floats, counts: Floats) -> Divergence:
    q, s = np.maximum(rate, SMALLEST_RATE), noise**-2.0
    n = _cells_that_fit(q, s)
    (q_at, q_edges), (s_at, s_edges) = _cells(q, n), _cells(s, n)
    named = q_at * len(s_edges) + s_at
    held = np.bincount(named, counts)
    cells, cell = np.flatnonzero(held), (np.cumsum(held > 0) - 1)[named]
    held = held[cells]
    nodes, node = _corners(cells, len(s_edges))
    at_nodes = s_edges[nodes % len(s_edges)] ** -0.5, q_edges[nodes // len(s_edges)]

    def weights(bend_q: Bend, bend_s: Bend) -> Floats:
        right, up = _along(q, q_at, q_edges, bend_q), _along(s, s_at, s_edges, bend_s)
        shares = [(1 - right) * (1 - up), (1 - right) * up, right * (1 - up), right * up]
        return np.stack([np.bincount(cell, counts * share) / held for share in shares])

    straight = weights(_same, _same)
    bent = weights(np.square, np.expm1 if s.max() < LARGEST else _same)

    def divergence(orders: Floats) -> Floats:
        if np.isinf(orders).any():
            return np.concatenate([divergence(np.array([a])) if np.isfinite(a) else np.array([np.inf]) for a in orders])
        if (orders < 2).any() and not (orders == 2).any():
            return divergence(np.append(orders, 2.0))[:-1]
        d = sampled_gaussian(*at_nodes, orders)[node].reshape(4, len(cells), len(orders))
        steep, out = orders >= 2, np.empty(len(orders))
        for part, share in ((steep, bent), (~steep, straight)):
            out[part] = held @ _mixed(share, d[:, :, part], orders[part] - 1)
        return np.minimum(out, np.where(steep, np.inf, out[orders == 2].min(initial=np.inf)))

    return divergence


def _cells_that_fit(q: Floats, s: Floats) -> int:
    """As fine as a thousand of the pairs allow: pairs along a line touch few cells."""
    some = slice(None, None, 1 + len(q) // 1000)
    ends = [np.array([v.min(), v.max()]) for v in (q, s)]
    q, s = (np.concatenate([v[some], end]) for v, end in zip((q, s), ends, strict=True))
    for n in CELLS[:-1]:
        (q_at, _), (s_at, edges) = _cells(q, n), _cells(s, n)
        if len(_corners(np.unique(q_at * len(edges) + s_at), len(edges))[0]) <= CORNERS:
            return n
    return CELLS[-1]


def _corners(cells: Ints, row: int) -> tuple[Ints, Ints]:
    """The different corners of the cells, and which of them belong to each cell: [corner * cell]."""
    nodes, node = np.unique(np.concatenate([cells + i * row + j for i in (0, 1) for j in (0, 1)]), return_inverse=True)
    return nodes, node


def _cells(values: Floats, n: int) -> tuple[Ints, Floats]:
    """The cell of each value, and the cells' edges, equally far apart as logarithms."""
    low, high = values.min(), values.max()
    if low == high:
        return np.zeros(len(values), np.int64), np.array([low, low])
    edges = np.geomspace(low, high, n + 1)
    edges[0], edges[-1] = low, high
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n - 1), edges


def _along(values: Floats, at: Ints, edges: Floats, bend: Bend) -> Floats:
    """How far each value is from its cell's lower edge to its upper, in the bent coordinate; in [0, 1]."""
    low, high = bend(edges)[at], bend(edges)[at + 1]
    wide = high > low
    share = (bend(values) - low) / np.where(wide, high - low, 1.0)
    return np.where(wide, np.clip(share, 0.0, 1.0), 0.0)


def _mixed(weights: Floats, d: Floats, b: Floats) -> Floats:
    """log(sum of weight e^(b d)) / b over the corners; sum of weight d at b = 0: [cell, order]."""
    w = weights[:, :, None]
    t = b * d
    small = t.max(0) < LARGEST
    log_a = np.log1p((w * np.expm1(np.where(small, t, 0.0))).sum(0))
    if not small.all():
        with np.errstate(divide="ignore"):
            log_a = np.where(small, log_a, logsumexp(t + np.log(w), axis=0))
    limit = (w * d).sum(0)
    out: Floats = np.where(b > 0, log_a / np.where(b > 0, b, 1.0), limit)
    return out


def _same(values: Floats) -> Floats:
    return values
