"""Slow transcriptions of published formulas, to be compared with. Forty digits, or plain sums."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

mp.mp.dps = 40


def sampled_by_binomial(rate, noise, order):
    """Mironov, Talwar, Zhang 2019, Section 3.3: A at a whole order, less 1, in which all terms are positive."""
    q, s = mp.mpf(rate), mp.mpf(noise)
    terms = (
        mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.expm1(mp.mpf(k * (k - 1)) / (2 * s * s))
        for k in range(2, order + 1)
    )
    return mp.log1p(mp.fsum(terms)) / (order - 1)


def sampled_by_integral(rate, noise, order, *, swapped=False):
    """Their Definition, by a fine trapezoidal sum in forty digits; `swapped` is the other direction of the pair."""
    q, s, a = mp.mpf(rate), mp.mpf(noise), mp.mpf(order)
    power = 1 - a if swapped else a
    h = min(0.25, noise / 5)
    total = mp.mpf(0)
    for i in _nodes(rate, noise, float(power), h, 15 if swapped else order / noise + 15).tolist():
        x = mp.mpf(-15) + mp.mpf(h) * i
        u = q * mp.expm1(x / s - 1 / (2 * s * s))
        total += mp.exp(-x * x / 2) * ((1 + u) ** power - 1 - power * u)
    return mp.log1p(total * h / mp.sqrt(2 * mp.pi)) / (a - 1)


def _nodes(rate, noise, power, h, end):
    """The nodes from -15 to the end that are not smaller than the largest by a factor of e^200."""
    x = -15 + h * np.arange(int((end + 15) / h) + 1)
    log_w = np.logaddexp(np.log1p(-rate), np.log(rate) + x / noise - 0.5 / noise**2)
    above = np.maximum(power * log_w, np.maximum(log_w, 0) + np.log(1 + abs(power))) - x * x / 2
    return np.flatnonzero(above > above.max() - 200)


def laplace(scale, order):
    """Mironov 2017, Proposition 6."""
    s, a = mp.mpf(scale), mp.mpf(order)
    return mp.log(a / (2 * a - 1) * mp.exp((a - 1) / s) + (a - 1) / (2 * a - 1) * mp.exp(-a / s)) / (a - 1)


def randomised_response(truth, answers, order):
    """The definition, summed over the answers."""
    p, a = mp.mpf(truth), mp.mpf(order)
    lie = (1 - p) / (answers - 1)
    here, there = [p, lie] + [lie] * (answers - 2), [lie, p] + [lie] * (answers - 2)
    return mp.log(mp.fsum(x**a * y ** (1 - a) for x, y in zip(here, there, strict=True))) / (a - 1)


def moments_accountant(rate, noise, orders):
    """Mironov, Talwar, Zhang 2019, Sections 3.3 and 3.4: binomial sum at whole orders, two half-lines at others."""
    return np.array(
        [_whole(rate, noise, int(a)) if float(a).is_integer() else _fraction(rate, noise, a) for a in orders]
    )


def _whole(q, s, a):
    k = np.arange(a + 1)
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    return logsumexp(choose + (a - k) * math.log1p(-q) + k * math.log(q) + k * (k - 1) / (2 * s * s)) / (a - 1)


def _fraction(q, s, a, terms=400):
    middle = 0.5 + s * s * math.log(1 / q - 1)
    i = np.arange(terms)
    factors = np.cumsum(np.concatenate([[0.0], np.log(np.abs(a - i[:-1]))])) - gammaln(i + 1)
    signs = np.cumprod(np.concatenate([[1.0], np.sign(a - i[:-1])]))
    j = a - i
    left = factors + i * math.log(q) + j * math.log1p(-q) + (i * i - i) / (2 * s * s) + log_ndtr((middle - i) / s)
    right = factors + j * math.log(q) + i * math.log1p(-q) + (j * j - j) / (2 * s * s) + log_ndtr((j - middle) / s)
    total, sign = logsumexp(np.concatenate([left, right]), b=np.concatenate([signs, signs]), return_sign=True)
    assert sign > 0
    return total / (a - 1)


OPACUS_ORDERS = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)))


def epsilon_on_a_grid(rate, noise, steps, delta, orders=OPACUS_ORDERS):
    """Balle et al. 2020, Theorem 21, at the least of the orders that are commonly tried."""
    d = steps * moments_accountant(rate, noise, orders)
    return float(np.min(d + np.log((orders - 1) / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)))


def hockey_stick(p, q, epsilon):
    """delta at epsilon of two distributions over the same outcomes."""
    return float(np.maximum(0.0, np.asarray(p) - math.exp(epsilon) * np.asarray(q)).sum())


def renyi(p, q, order):
    return float(logsumexp(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1))
