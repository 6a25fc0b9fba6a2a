from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.accounting import renyi

from engram.accounting import (
    Composed,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomisedResponse,
    SampledWithoutReplacement,
    Schedule,
    curve,
)

STEP = PoissonSampled(0.02, Gaussian(1.3))
distributions = st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4).map(lambda v: np.array(v) / sum(v))
orders = st.floats(1.01, 30.0)


def test_accounting_needs_no_torch():
    told = "import sys, engram.accounting, engram.accounting.filters; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=False).returncode == 0


def test_composition_adds_at_each_order():
    parts = [(STEP, 100), (Laplace(3.0), 4), (Gaussian(5.0), 2)]
    for order in (1.2, 2.0, 31.5):
        assert curve(Composed(*parts))(order) == pytest.approx(sum(n * curve(e)(order) for e, n in parts), rel=1e-12)


@pytest.mark.parametrize("order", [1.0, 0.5, -3.0, float("nan")])
def test_orders_at_or_below_one_are_refused(order):
    with pytest.raises(ValueError, match=r"orders must be above 1, got .*kullback_leibler"):
        curve(STEP)(order)


def test_what_never_happened_costs_nothing():
    for free in (
        Composed(),
        Composed((Gaussian(0.0), 0)),
        PoissonSampled(0.0, Gaussian(0.0)),
        Composed((Composed((STEP, 5)), 0)),
    ):
        assert curve(free)(3.0) == curve(free).pure == curve(free).kullback_leibler == 0


@given(distributions, distributions, orders, st.permutations(range(4)))
def test_post_processing_never_reveals_more(p, q, order, shuffled):
    merge = np.array(shuffled) // 2  # any map of outcomes to fewer
    merged = [np.bincount(merge, v, 2) for v in (p, q)]
    assert renyi(*merged, order) <= renyi(p, q, order) + 1e-12


@given(distributions, distributions, st.lists(distributions, min_size=8, max_size=8), orders)
def test_adaptive_composition_adds_at_most_the_worst(p, q, answers, order):
    """The second mechanism is chosen by the first one's answer."""
    here, there = answers[:4], answers[4:]
    joint = [(a[:, None] * np.array(b)).ravel() for a, b in ((p, here), (q, there))]
    worst = max(renyi(a, b, order) for a, b in zip(here, there, strict=True))
    assert renyi(*joint, order) <= renyi(p, q, order) + worst + 1e-9


@settings(deadline=None, max_examples=40)
@given(st.lists(distributions, min_size=5, max_size=5), st.integers(2, 4), st.floats(2.0, 6.0))
def test_groups_of_chains_stay_below_the_stretched_curve(chain, group, order):
    from engram.accounting.curves import stretched

    def at(wanted):
        pairs = [pair for a, b in pairwise(chain) for pair in ((a, b), (b, a))]
        return np.array([max(renyi(a, b, w) for a, b in pairs) for w in wanted])

    assert renyi(chain[0], chain[group], order) <= stretched(at, group, np.array([order]))[0] + 1e-9


def test_the_stretched_curve_is_the_talks():
    from engram.accounting.curves import stretched

    seen = []

    def at(wanted):
        seen.append(wanted)
        return np.ones(len(wanted))

    for group, c in ((2, 1), (3, 2), (4, 2), (5, 3)):
        assert stretched(at, group, np.array([2.5]))[0] == 3**c
        assert seen[-1] == 2.5 * 2**c
    stretched(at, 4, np.array([1.5]))
    assert seen[-1] == 8  # the order asked of the event is at least 2^(c+1)


def test_gaussian_groups_are_exact():
    assert curve(Gaussian(2.0), group=3)(5.0) == pytest.approx(9 * curve(Gaussian(2.0))(5.0))
    assert curve(Laplace(2.0), group=3)(5.0) == pytest.approx(curve(Laplace(2.0 / 3))(5.0))
    assert curve(RandomisedResponse(0.75), group=3).pure == pytest.approx(3 * math.log(3))


def test_groups_cost_more_the_larger_they_are():
    for event in (STEP, Composed((STEP, 10), (Laplace(3.0), 1)), Schedule(np.array([1.0, 2.0]), np.array([0.1, 0.2]))):
        costs = [curve(event, group=k)(3.0) for k in (1, 2, 3, 8)]
        assert costs == sorted(costs)
        assert costs[0] < costs[1]
    with pytest.raises(ValueError, match="group must be a whole number, at least 1"):
        curve(STEP, group=0)


def test_sampled_groups_cover_the_mixture():
    """Two records, each in the batch with its own coin: the exact divergence of the mixture, by a fine sum."""
    q, s, a = 0.1, 1.5, 4.0
    x = np.linspace(-15, 25, 20001)
    bell = lambda m: np.exp(-((x - m) ** 2) / (2 * s * s))  # noqa: E731
    mixed = (1 - q) ** 2 * bell(0) + 2 * q * (1 - q) * bell(1) + q * q * bell(2)
    exact = math.log(np.sum((mixed / bell(0)) ** a * bell(0)) / np.sum(bell(0))) / (a - 1)
    assert exact <= curve(PoissonSampled(q, Gaussian(s)), group=2)(a) <= 4 * exact


def test_fixed_batches_cover_an_exact_example():
    """One of n bits is drawn and answered at random: both outcomes are known exactly."""
    for n, truth, order in ((10, 0.75, 2.0), (10, 0.75, 7.3), (4, 0.9, 1.4), (100, 0.6, 30.0)):
        event = SampledWithoutReplacement(1, n, RandomisedResponse(truth))
        one = (1 - truth) * (1 - 1 / n) + truth / n
        exact = max(renyi([one, 1 - one], [1 - truth, truth], order), renyi([1 - truth, truth], [one, 1 - one], order))
        bound = curve(event)(order)
        assert exact <= bound <= curve(RandomisedResponse(truth))(order)
        assert curve(event).pure == pytest.approx(math.log1p((truth / (1 - truth) - 1) / n))


def test_fixed_batches_equal_a_literal_transcription():
    """Wang, Balle, Kasiviswanathan 2019, Theorem 9, for a Gaussian."""
    rate, noise = 0.01, 2.0
    e = lambda j: j / (2 * noise**2)  # noqa: E731
    for order in (2, 5, 40):
        total = 1 + rate**2 * math.comb(order, 2) * min(4 * math.expm1(e(2)), 2 * math.exp(e(2)))
        total += sum(rate**j * math.comb(order, j) * math.exp((j - 1) * e(j)) * 2 for j in range(3, order + 1))
        ours = curve(SampledWithoutReplacement(1, 100, Gaussian(noise)))(order)
        assert ours == pytest.approx(min(e(order), math.log(total) / (order - 1)), rel=1e-9)


def test_whole_batches_are_no_sampling():
    for event in (Gaussian(2.0), Laplace(1.0)):
        assert curve(SampledWithoutReplacement(10, 10, event))(3.0) == curve(event)(3.0)
        assert curve(SampledWithoutReplacement(0, 10, event))(3.0) == 0
