"""Exact Renyi divergences of single mechanisms, at any order above 1, and at its limits 1 and infinity.

Mironov: Renyi Differential Privacy, 2017. Definition 3, Propositions 5 to 7 (Gaussian, Laplace, randomised response).
Differs from the paper: all is written in psi(t) = e^t - 1 - t >= 0, in which no term cancels another, so a tiny
divergence keeps its digits, and the limit at order 1 (Kullback-Leibler) is the same formula:

    E_Q[(P/Q)^a] - 1 = (a - 1) E_P[psi(-l) + psi((a - 1) l) / (a - 1)],   l = log(P/Q).

Each answers the larger of both directions of the neighbouring pair. Nats everywhere.
"""

from __future__ import annotations

import numpy as np

from engram.types import Floats

NEAR = 0.05  # below, psi is summed as its series
TERMS = 9
FAR = 600.0  # above, e^t - 1 - t is e^t to the last digit, and e^t is near the largest double


def psi(t: Floats) -> Floats:
    """e^t - 1 - t, to full relative precision."""
    near = np.abs(t) < NEAR
    s = np.where(near, t, 0.0)
    series = np.full_like(s, 1.0)
    for k in range(TERMS, 2, -1):
        series = 1.0 + series * s / k  # Horner: s^2/2 (1 + s/3 (1 + s/4 (...)))
    return np.where(near, series * s * s / 2, np.expm1(np.where(near, 0.0, t)) - t)


def gaussian(noise: float, orders: Floats) -> Floats:
    """a / (2 s^2).                                                                           Proposition 7"""
    with np.errstate(divide="ignore", over="ignore"):
        out: Floats = orders * (0.5 / np.square(np.float64(noise)))
    return out


def laplace(scale: float, orders: Floats) -> Floats:
    """log{a/(2a-1) e^((a-1)/s) + (a-1)/(2a-1) e^(-a/s)} / (a-1).                             Proposition 6"""
    if scale == 0:
        return np.full(orders.shape, np.inf)
    pure, b = 1 / scale, orders - 1
    if np.isinf(pure):
        return np.full(orders.shape, np.inf)
    out = np.full(orders.shape, pure)  # what it is at infinity
    low = np.isfinite(orders)
    a, b = orders[low], b[low]
    near = b * pure < FAR
    t = np.where(near, b * pure, 1.0)
    moment = (a * _over(psi(t), b) + psi(-a * pure)) / (2 * a - 1)  # (E - 1) / (a - 1)
    far = pure + _over(np.log(a / (2 * a - 1)), b)
    out[low] = np.where(near, _log_moment(moment, b), far)
    return out


def randomised_response(truth: float, lie: float, gap: float, orders: Floats) -> Floats:
    """log{t^a l^(1-a) + l^a t^(1-a) + 1 - t - l} / (a-1), for truth t and each lie l.        Proposition 5"""
    if truth == 0 or lie == 0:
        return np.full(orders.shape, np.inf)
    ratio = abs(float(np.log1p(gap / lie))) if abs(gap) < lie / 2 else abs(float(np.log(truth) - np.log(lie)))
    more, less = max(truth, lie), min(truth, lie)
    out = np.full(orders.shape, ratio)
    low = np.isfinite(orders)
    b = orders[low] - 1
    near = b * ratio < FAR
    t = np.where(near, b * ratio, 1.0)
    r = np.full(b.shape, ratio)
    moment = more * (psi(-r) + _over(psi(t), b)) + less * (psi(r) + _over(psi(-t), b))
    far = ratio + _over(np.full(b.shape, np.log(more)), b)
    out[low] = np.where(near, _log_moment(moment, b), far)
    return out


def _log_moment(moment: Floats, b: Floats) -> Floats:
    """log(1 + b moment) / b, and its limit at b = 0."""
    return np.where(b > 0, np.log1p(b * moment) / np.where(b > 0, b, 1.0), moment)


def _over(above: Floats, below: Floats) -> Floats:
    """above / below where below > 0, else the limit 0 of psi(b l) / b."""
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)
