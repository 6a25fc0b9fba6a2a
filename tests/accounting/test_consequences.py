from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.accounting import renyi
from scipy.stats import norm

from engram.accounting import Gaussian, Laplace, RandomisedResponse, curve
from engram.accounting.composition import basic, optimal, strong
from engram.accounting.consequences import bad_outcome, bayes_factor_moment, bayes_factor_tail
from engram.accounting.curves import Curve

pairs = st.lists(st.floats(0.02, 1.0), min_size=8, max_size=8).map(
    lambda v: (np.array(v[:4]) / sum(v[:4]), np.array(v[4:]) / sum(v[4:]))
)


def between(p, q):
    """The exact curve of one neighbouring pair, both directions."""

    def at(orders):
        largest = max(np.log(p / q).max(), np.log(q / p).max())
        finite = np.minimum(orders, 200.0)
        found = [max(renyi(p, q, a), renyi(q, p, a)) if a > 1 else 0.0 for a in finite]
        return np.where(orders > 200, largest, found)

    return Curve(at)


@settings(deadline=None, max_examples=30)
@given(pairs, st.integers(1, 14))
def test_no_outcome_escapes_its_bounds(pair, chosen):
    p, q = pair
    inside = np.array([bool(chosen & (1 << i)) for i in range(4)])
    low, high = bad_outcome(between(p, q), float(q[inside].sum()))
    assert low - 1e-9 <= p[inside].sum() <= high + 1e-9


def test_a_gaussian_outcome_lies_between_and_the_bound_is_not_idle():
    cost = curve(Gaussian(1.0))
    for z in (-3.0, -1.0, 0.0, 2.0):
        without, with_record = norm.cdf(z), norm.cdf(z - 1)
        low, high = bad_outcome(cost, float(without))
        assert low <= with_record <= high
    assert bad_outcome(cost, 0.01)[1] < 0.35
    assert bad_outcome(cost, 0.0) == (0.0, 0.0)
    assert bad_outcome(cost, 1.0)[1] == 1
    assert bad_outcome(curve(Gaussian(0.0)), 0.0)[1] == 1


def test_pure_privacy_bounds_a_bad_outcome_by_its_factor():
    low, high = bad_outcome(curve(RandomisedResponse(0.75)), 0.01)
    assert high <= 0.03 * (1 + 1e-9)
    assert low >= 0.01 / 3 * (1 - 1e-9)


@given(pairs, st.floats(1.1, 20.0))
def test_the_bayes_factor_has_its_moment(pair, order):
    p, q = pair
    assert np.sum(q * (p / q) ** order) <= bayes_factor_moment(between(p, q), order) * (1 + 1e-9)


@settings(deadline=None, max_examples=30)
@given(pairs, st.floats(0.5, 20.0))
def test_the_bayes_factor_is_seldom_large(pair, factor):
    p, q = pair
    assert q[p / q >= factor].sum() <= bayes_factor_tail(between(p, q), factor) + 1e-9


def test_the_tail_is_no_more_than_markov():
    cost = curve(Laplace(2.0))
    assert bayes_factor_tail(cost, math.exp(0.51)) == 0
    assert bayes_factor_tail(cost, 0.3) == 1
    assert bayes_factor_tail(curve(Gaussian(1.0)), 100.0) < 1 / 1000


@pytest.mark.parametrize("times", [1, 10, 1000])
def test_compositions_without_curves(times):
    truth = 1 / (1 + math.exp(-0.1))
    assert basic(0.1, 1e-6, times) == (pytest.approx(0.1 * times), pytest.approx(1e-6 * times))
    from engram.accounting import Composed, to_epsilon

    renyi_epsilon = to_epsilon(curve(Composed((RandomisedResponse(truth), times))), 1e-6).epsilon
    best, usual = optimal(0.1, 0.0, times, slack=1e-6), strong(0.1, 0.0, times, slack=1e-6)
    assert renyi_epsilon <= best[0] * (1 + 1e-9) <= usual[0] * (1 + 2e-9) <= 0.1 * times * (1 + 3e-9)
    assert best[1] == pytest.approx(1e-6)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="times must be a whole number"):
        strong(0.1, 0.0, -1, slack=1e-6)
    with pytest.raises(ValueError, match="slack"):
        optimal(0.1, 0.0, 3, slack=0.0)
    with pytest.raises(ValueError, match="probability"):
        bad_outcome(curve(Gaussian(1.0)), 1.5)
    with pytest.raises(ValueError, match="orders must be above 1"):
        bayes_factor_moment(curve(Gaussian(1.0)), 1.0)
    with pytest.raises(ValueError, match="factor must be positive"):
        bayes_factor_tail(curve(Gaussian(1.0)), -1.0)
