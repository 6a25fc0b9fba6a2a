from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm

from engram.accounting.reconstruction import best_threshold, blown_up, gaussian, log_ratios, success


@pytest.mark.parametrize("prior", [0.5, 0.1, 1e-3, 1e-6])
@pytest.mark.parametrize("steps", [1, 100])
def test_full_batches_have_a_closed_form(prior, steps):
    told = success(5.0, 1.0, steps, prior)
    assert told.most == pytest.approx(norm.cdf(norm.ppf(prior) + math.sqrt(steps) / 5), rel=1e-12)
    assert told.doubt == 0


@pytest.mark.parametrize("prior", [0.5, 0.1, 1e-3, 1e-5])
def test_the_sampled_bound_is_above_the_closed_form_and_near(prior):
    """Full batches through the samples' way: never below what is true, at most the stated margin above."""
    draw = np.random.default_rng(0)
    sampled = blown_up(log_ratios(10.0, 1 - 1e-12, 100, 20_000, draw), prior, 1e-6)
    assert gaussian(1.0, prior) <= sampled <= gaussian(1.0, prior) + 0.05


def power_of_losses(noise, rate, steps, prior):
    """B_k by privacy-loss distributions: the least of e^eps k + delta(eps). Both bounds on delta."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    found = []
    for pessimistic in (False, True):
        once = pld.from_gaussian_mechanism(
            noise,
            sampling_prob=rate,
            value_discretization_interval=1e-4,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
        )
        loss = once.self_compose(steps)._pmf_remove
        epsilons = np.linspace(-20, 20, 801)
        deltas = np.array([loss.get_delta_for_epsilon(e) for e in epsilons])
        found.append(min(1.0, float((np.exp(epsilons) * prior + deltas).min())))
    return found


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.05, 100), (0.6, 0.01, 50), (2.0, 0.3, 30)])
@pytest.mark.parametrize("prior", [0.1, 1e-3])
def test_sampled_batches_agree_with_privacy_loss_distributions(noise, rate, steps, prior):
    low, high = power_of_losses(noise, rate, steps, prior)
    told = success(noise, rate, steps, prior, samples=20_000)
    assert low <= told.most <= high + 0.05


def test_more_noise_reveals_less_and_everything_else_more():
    base = {"noise_multiplier": 1.0, "rate": 0.1, "steps": 50, "prior": 0.05}

    def rising(name, values):
        told = [success(**{**base, name: v}, samples=10_000).most for v in values]
        assert all(a <= b for a, b in pairwise(told)), (name, told)

    rising("noise_multiplier", [8.0, 4.0, 2.0, 1.0, 0.5])
    rising("rate", [0.0, 0.01, 0.05, 0.2, 0.6, 1.0])
    rising("steps", [0, 10, 50, 200])
    rising("prior", [0.0, 1e-4, 1e-2, 0.1, 0.5, 1.0])


@pytest.mark.parametrize(("rate", "steps"), [(0.0, 100), (0.3, 0)])
def test_who_learns_nothing_guesses_blindly(rate, steps):
    assert success(1.0, rate, steps, 0.1).most == 0.1


def test_without_noise_only_absence_hides():
    assert success(0.0, 1.0, 1, 0.1).most == 1
    assert success(0.0, 0.5, 2, 0.0).most == pytest.approx(0.75)


def test_no_bound_is_below_the_prior():
    assert all(success(50.0, 0.01, 10, k).most >= k for k in (1e-6, 1e-3, 0.1, 0.5))


def test_the_best_threshold_is_the_least_of_the_duality():
    ratios = np.random.default_rng(1).normal(0.5, 1, 400)
    t = best_threshold(ratios, 0.1)

    def value(t):
        return math.exp(t) * 0.1 + np.maximum(0, 1 - np.exp(t - ratios)).mean()

    assert value(t) == pytest.approx(min(value(r) for r in ratios), rel=1e-12)


def prior_aware(noise, rate, steps, candidates, trials, draw):
    """Hayes et al.'s attack on the worst case: orthogonal clipped gradients; what is largest along a candidate is told.

    With sampling, the likelihood of each candidate: the inner product is the same where every batch has the record.
    """
    hits = 0
    for _ in range(trials):
        seen = draw.normal(0, noise, (steps, candidates))
        seen[:, 0] += draw.random(steps) < rate
        score = np.logaddexp(np.log1p(-rate) if rate < 1 else -np.inf, np.log(rate) + (seen - 0.5) / noise**2).sum(0)
        hits += score.argmax() == 0
    return hits / trials


@pytest.mark.parametrize(("noise", "rate", "steps"), [(5.0, 1.0, 50), (1.0, 0.1, 60)])
def test_the_prior_aware_attack_stays_below_and_comes_near(noise, rate, steps):
    """2,000 trials: a false alarm, 4 deviations above the bound, once in 30,000 seeds."""
    n, trials = 16, 2000
    found = prior_aware(noise, rate, steps, n, trials, np.random.default_rng(2))
    most = success(noise, rate, steps, 1 / n).most
    assert found <= most + 4 * math.sqrt(0.25 / trials)
    assert found >= 0.75 * most
    assert found >= 2 / n


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prior": 1.5}, "prior"),
        ({"rate": -0.1}, "rate"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"steps": -1}, "steps"),
    ],
)
def test_what_is_no_probability_is_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        success(**{"noise_multiplier": 1.0, "rate": 0.1, "steps": 10, "prior": 0.1, **changes})
