from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from engram.measure.epsilon import LARGEST, as_lucky, from_rates, from_scores, one_run
from engram.measure.rates import Claimed


def steinke(m, r, v, eps, delta):
    """The probability bound of Steinke, Nasr, Jagielski 2023, Theorem 5.2, summed as it is written."""
    q = 1 / (1 + math.exp(-eps))
    beta = sum(binom.pmf(k, r, q) for k in range(v, r + 1))
    alpha = max((sum(binom.pmf(k, r, q) for k in range(v - i, v)) / i for i in range(1, v + 1)), default=0.0)
    return min(1.0, beta + 2 * m * delta * alpha)


@pytest.mark.parametrize(("right", "guesses"), [(0, 10), (30, 40), (40, 40), (70, 100)])
@pytest.mark.parametrize("eps", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
def test_luck_equals_a_literal_transcription(right, guesses, eps, delta):
    assert as_lucky(right, guesses, 200, eps, delta) == pytest.approx(
        steinke(200, guesses, right, eps, delta), rel=1e-9
    )


def test_the_bound_is_where_luck_runs_out():
    bound = one_run(right=80, guesses=100, canaries=100)
    assert steinke(100, 100, 80, bound - 1e-6, 0) < 0.05 < steinke(100, 100, 80, bound + 1e-6, 0)


def test_one_run_stays_below_the_truth():
    """Randomised response of epsilon 1 is the worst case; 500 runs of 200 coins, a miss rate of 5 % may not reach 8 %."""
    stream, epsilon = np.random.default_rng(0), 1.0
    right = stream.binomial(200, 1 / (1 + math.exp(-epsilon)), 500)
    bounds = np.array([one_run(int(v), 200, 200) for v in right])
    assert (bounds > epsilon).mean() <= 0.08
    assert (bounds > epsilon / 2).mean() > 0.5  # and it is not idle


def test_rates_stay_below_the_truth():
    """Randomised response of epsilon 2, 500 audits of 300 trainings with and 300 without."""
    stream, p = np.random.default_rng(1), 1 / (1 + math.exp(-2.0))
    true, false = stream.binomial(300, p, 500), stream.binomial(300, 1 - p, 500)
    bounds = np.array([from_rates(Claimed(int(t), 300, int(f), 300)) for t, f in zip(true, false, strict=True)])
    assert (bounds > 2.0).mean() <= 0.08
    assert bounds.mean() > 1.3


def test_guessing_yields_no_bound_and_delta_only_lowers_it():
    assert one_run(50, 100, 100) == 0
    assert from_rates(Claimed(50, 100, 50, 100)) == 0
    assert 0 < one_run(90, 100, 100, delta=1e-3) < one_run(90, 100, 100)
    claims = Claimed(90, 100, 5, 100)
    assert 0 < from_rates(claims, delta=0.1) < from_rates(claims)


def test_either_direction_of_the_trade_off_counts():
    """Few false negatives tell as much as few false positives."""
    assert from_rates(Claimed(1000, 1000, 500, 1000)) == pytest.approx(
        from_rates(Claimed(500, 1000, 0, 1000)), rel=1e-9
    )


def test_no_count_tells_more_than_the_largest():
    assert one_run(0, 0, 10) == 0
    assert one_run(10**6, 10**6, 10**6) < LARGEST


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="right <= guesses <= canaries"):
        one_run(5, 4, 10)


def test_scores_guess_in_from_above_and_out_from_below():
    member = np.arange(40) >= 20
    values = np.arange(40.0)
    values[18:22] = values[[21, 20, 19, 18]]  # the four in the middle are the wrong way round
    assert from_scores(values, member, guesses=36) == one_run(36, 36, 40) > 2
    assert 0 < from_scores(values, member) == one_run(36, 40, 40)
    assert from_scores(-values, member, guesses=36) == 0


def test_scores_of_coins_prove_nothing():
    """Of 400 audits of guessing, 5 % may prove more than 0: 8 % would be 2.8 standard errors more."""
    stream = np.random.default_rng(0)
    bounds = [from_scores(stream.normal(size=100), stream.random(100) < 0.5, guesses=40) for _ in range(400)]
    assert np.mean(np.array(bounds) > 0) < 0.08


def test_more_guesses_than_canaries_are_refused():
    with pytest.raises(ValueError, match="guesses must lie in"):
        from_scores(np.zeros(4), np.ones(4, bool), guesses=6)
