from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from engram.accounting import Composed, Gaussian, RandomisedResponse, curve, to_epsilon
from engram.accounting.calibration import training
from engram.accounting.limits import Claim, best_advantage, best_ppv, best_tpr, broken
from engram.measure.epsilon import one_run
from engram.types import Finding

FPR = np.array([0.0, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 1.0])


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_no_test_between_two_gaussians_beats_the_limit(noise):
    """The best test there is, by Neyman and Pearson."""
    power = norm.cdf(norm.ppf(FPR) + 1 / noise)
    cost = curve(Gaussian(noise))
    assert (best_tpr(cost, FPR) >= power - 1e-12).all()
    claim = Claim(to_epsilon(cost, 1e-5).epsilon, 1e-5)
    assert (best_tpr(claim, FPR) >= power - 1e-12).all()
    assert best_advantage(cost) >= 2 * norm.cdf(0.5 / noise) - 1 - 1e-12
    assert best_tpr(cost, 0.01) < 5 * norm.cdf(norm.ppf(0.01) + 1 / noise)  # and it is not idle


def test_randomised_response_reaches_the_limit():
    claim = Claim(math.log(3.0), 0.0)
    assert best_tpr(claim, 0.25) == pytest.approx(0.75)
    assert best_advantage(claim) == pytest.approx(0.5)
    assert best_advantage(curve(RandomisedResponse(0.75))) == pytest.approx(0.5)
    assert best_tpr(curve(RandomisedResponse(0.75)), np.array([0.25])) == pytest.approx(0.75)


def test_a_curve_says_more_than_one_pair_of_it():
    cost = curve(training(1.0, 0.01, 1000))
    claim = Claim(to_epsilon(cost, 1e-5).epsilon, 1e-5)
    assert (best_tpr(cost, FPR) <= best_tpr(claim, FPR) + 1e-12)[1:].all()
    assert best_advantage(cost) < best_advantage(claim)


def test_limits_are_rates_and_rise():
    for promised in (Claim(0.0, 0.0), Claim(1.0, 1e-5), Claim(50.0, 0.3), curve(Gaussian(0.01)), curve(Composed())):
        bound = best_tpr(promised, FPR)
        assert (np.diff(bound) >= 0).all()
        assert (bound <= 1).all()
        assert (bound >= FPR - 1e-12).all()
        assert 0 <= best_advantage(promised) <= 1
    assert best_tpr(Claim(0.0, 0.0), FPR) == pytest.approx(FPR)
    assert best_advantage(Claim(0.0, 0.0)) == 0
    assert best_tpr(curve(Gaussian(0.0)), FPR) == pytest.approx(np.ones(len(FPR)))


def test_advantage_is_the_largest_gap_of_the_limit():
    grid = np.linspace(0, 1, 20001)
    for claim in (Claim(0.5, 0.0), Claim(1.0, 0.01), Claim(3.0, 1e-5)):
        assert best_advantage(claim) == pytest.approx((best_tpr(claim, grid) - grid).max(), abs=1e-4)


def test_precision_is_limited_by_the_prior():
    assert best_ppv(Claim(0.0, 0.0), 0.1, prior=0.01) == pytest.approx(0.01)
    assert best_ppv(Claim(1.0, 0.0), 1e-3, prior=0.5) == pytest.approx(math.e / (1 + math.e))
    assert best_ppv(Claim(1.0, 1e-5), 0.0, prior=0.5) == 1


def measured(bound):
    return Finding("epsilon", bound, bound, None, n=1000, level=0.95, method="one run", attack="lira")


def test_a_measurement_above_the_claim_is_loud_and_one_below_is_silent():
    claim = Claim(1.0, 1e-5)
    loud = broken(measured(1.5), claim, at_delta=1e-5)
    assert loud.metric == "broken_claim"
    assert loud.value == loud.low == pytest.approx(0.5)
    assert (loud.attack, loud.n, loud.level, loud.high) == ("lira", 1000, 0.95, None)
    assert "claims epsilon 1 at delta 1e-05, and at least 1.5 was measured" in loud.reason
    assert broken(measured(0.99), claim, at_delta=1e-5) is None
    assert broken(measured(None), claim, at_delta=1e-5) is None


def test_an_honest_mechanism_is_seldom_accused_and_a_dishonest_one_is_found():
    """Randomised response of epsilon 1, 300 runs of 200 guesses: at level 0.95 at most 8 % may accuse it."""
    stream, truth = np.random.default_rng(0), 1 / (1 + math.exp(-1.0))
    right = stream.binomial(200, truth, 300)
    found = {
        c: [broken(measured(one_run(int(v), 200, 200)), Claim(c, 0.0), at_delta=0.0) for v in right] for c in (1.0, 0.4)
    }
    assert np.mean([f is not None for f in found[1.0]]) <= 0.08
    assert np.mean([f is not None for f in found[0.4]]) > 0.9


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="at a delta of at least the claim's 1e-05, got 0"):
        broken(measured(9.0), Claim(1.0, 1e-5), at_delta=0.0)
    with pytest.raises(ValueError, match=r"false positive rates must lie in \[0, 1\]"):
        best_tpr(Claim(1.0, 0.0), np.array([0.5, np.nan]))
    with pytest.raises(ValueError, match="epsilon must be at least 0"):
        Claim(-1.0, 0.0)
    with pytest.raises(ValueError, match="delta must lie"):
        Claim(1.0, 1.0)
    with pytest.raises(ValueError, match="prior"):
        best_ppv(Claim(1.0, 0.0), 0.1, prior=1.0)
