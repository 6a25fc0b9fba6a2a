from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracle

from engram.accounting.sampled import SPLIT, sampled_gaussian

noises, rates = st.floats(0.03, 100.0), st.floats(1e-6, 1.0)


def one(noise, rate, order):
    return float(sampled_gaussian(np.array([noise]), np.array([rate]), np.array([float(order)]))[0, 0])


def wrong(ours, reference):
    """Relative, with 1e-16 absolute forgiven."""
    return float(max(mp.mpf(0), abs(mp.mpf(ours) - reference) - mp.mpf("1e-16")) / reference)


def test_whole_orders_equal_the_binomial_sum():
    stream = np.random.default_rng(0)
    for _ in range(120):
        rate, noise = 10 ** stream.uniform(-4, 0), 10 ** stream.uniform(-1, 2)
        order = int(10 ** stream.uniform(np.log10(2), 2.3))
        assert wrong(one(noise, rate, order), oracle.sampled_by_binomial(rate, noise, order)) < 1e-10


@pytest.mark.parametrize(
    ("rate", "noise", "order"),
    [(1e-4, 100.0, 10_000), (0.3, 31.0, 10_000), (1e-4, 0.1, 2000), (0.01, 1.0, 2000), (0.9, 5.0, 2000)],
)
def test_large_orders_equal_the_binomial_sum(rate, noise, order):
    assert wrong(one(noise, rate, order), oracle.sampled_by_binomial(rate, noise, order)) < 1e-10


@pytest.mark.parametrize("order", [1.01, 1.3, 1.9, 2.5, 7.77])
@pytest.mark.parametrize(
    ("rate", "noise"), [(1e-4, 100.0), (0.01, 0.6), (0.2, 5.0), (0.5, 1.0), (0.97, 2.0), (1e-3, 0.3), (0.999999, 0.5)]
)
def test_fractional_orders_equal_forty_digits(rate, noise, order):
    assert wrong(one(noise, rate, order), oracle.sampled_by_integral(rate, noise, order)) < 1e-10


@pytest.mark.parametrize("order", [1.5, 2.0, 6.5])
@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.5, 1.0), (0.9, 0.7), (0.1, 10.0)])
def test_the_larger_direction_is_answered(rate, noise, order):
    assert one(noise, rate, order) >= float(oracle.sampled_by_integral(rate, noise, order, swapped=True)) * (1 - 1e-10)


def test_the_split_of_two_far_gaussians_meets_the_integral():
    below, above = (one(SPLIT * (1 + way * 1e-13), 0.01, 1.3) for way in (-1, 1))
    assert below == pytest.approx(above, rel=1e-11)


def test_tiny_rates_keep_their_digits():
    for rate in (1e-9, 1e-15, 1e-30):
        assert one(1.0, rate, 3) == pytest.approx(1.5 * rate**2 * np.expm1(1.0), rel=1e-7)


def test_the_ends():
    assert one(1.0, 0.0, 5) == 0
    assert one(0.0, 0.0, 5) == 0  # what is never in a batch costs nothing, even without noise
    assert one(0.0, 0.5, 5) == np.inf
    assert one(2.0, 1.0, 5) == 5 / 8
    assert one(np.inf, 0.5, 5) == 0
    assert one(1.0, 0.5, np.inf) == np.inf
    assert one(1.0, 0.5, 1.0) == pytest.approx(one(1.0, 0.5, 1 + 1e-8), rel=1e-7)


@settings(max_examples=60, deadline=None)
@given(noises, rates, st.floats(1.001, 2000.0), st.floats(1.0, 3.0))
def test_it_rises_with_order_and_rate_and_falls_with_noise(noise, rate, order, factor):
    here = one(noise, rate, order)
    slack = 1 + 1e-11
    assert here <= one(noise, rate, order * factor) * slack
    assert here <= one(noise, min(1.0, rate * factor), order) * slack
    assert one(noise * factor, rate, order) <= here * slack
    assert here <= order / (2 * noise**2) * slack  # sampling never costs


def test_pairs_and_orders_are_computed_as_if_alone():
    noise, rate, orders = np.array([0.2, 1.0, 40.0]), np.array([0.5, 0.01, 1e-3]), np.array([1.0, 1.2, 30.0, 3000.0])
    table = sampled_gaussian(noise, rate, orders)
    alone = [[one(s, q, a) for a in orders] for s, q in zip(noise, rate, strict=True)]
    assert table == pytest.approx(np.array(alone), rel=1e-12)
