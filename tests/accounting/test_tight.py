from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from oracles import accounting as oracle
from scipy.optimize import brentq

from engram import accounting
from engram.accounting import (
    Composed,
    Gaussian,
    Laplace,
    NoGuarantee,
    PoissonSampled,
    RandomisedResponse,
    SampledWithoutReplacement,
    Schedule,
    UnknownEvent,
    below,
    clt,
    tight,
)
from engram.accounting.calibration import training

pytest.importorskip("dp_accounting")


def exact_gaussian(noise, delta):
    return brentq(lambda e: clt.gaussian_delta(1 / noise, e) - delta, 0, 400)


def exact_response(truth, times, delta):
    k = np.arange(times + 1)
    p = np.array([math.comb(times, int(i)) for i in k], float) * truth**k * (1 - truth) ** (times - k)
    return brentq(lambda e: oracle.hockey_stick(p, p[::-1], e) - delta, 0, 100)


@pytest.mark.parametrize(("noise", "times"), [(1.0, 1), (3.0, 9), (20.0, 1000)])
def test_it_brackets_the_exact_gaussian(noise, times):
    exact = exact_gaussian(noise / math.sqrt(times), 1e-5)
    found = tight.epsilon(Composed((Gaussian(noise), times)), 1e-5)
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.upper - found.lower < 1e-3 * exact


@pytest.mark.parametrize("times", [1, 5, 40])
def test_randomised_response_is_composed_as_often_as_it_happened(times):
    """A well-known accountant counts it once."""
    exact = exact_response(0.6, times, 1e-3)
    for event in (RandomisedResponse(0.6), RandomisedResponse(0.4)):  # lying is as telling
        found = tight.epsilon(Composed((event, times)), 1e-3)
        assert found.lower <= exact + 1e-9
        assert exact <= found.upper + 1e-9
        assert found.upper - found.lower < 0.02


@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [(1.1, 0.01, 100), (0.7, 0.1, 10), (20.0, 0.001, 10_000), (5.0, 0.2, 200)]
)
def test_renyi_stands_above_it(noise, rate, steps):
    event = training(noise, rate, steps)
    found, renyi = tight.epsilon(event, 1e-5), accounting.epsilon(event, 1e-5)
    assert found.lower <= found.upper <= renyi
    assert found.upper < 0.95 * renyi


@pytest.mark.parametrize(
    ("noise", "rate", "steps"),
    [(1.1, 0.0043, 14_063), (1.0, 0.01, 100_000), (20.0, 0.001, 100_000), (5.0, 0.2, 10_000)],
)
def test_many_steps_are_bracketed_within_a_hundredth(noise, rate, steps):
    """Rounding the losses of each step down to the grid loses a third here."""
    found = tight.epsilon(training(noise, rate, steps), 1e-5)
    assert 0.99 * found.upper < found.lower <= found.upper


@pytest.mark.parametrize(("noise", "rate"), [(1.1, 0.0043), (0.6, 0.3), (20.0, 0.9)])
@pytest.mark.parametrize("interval", [1e-3, 1e-2, 0.2])
def test_what_lies_below_lies_below(noise, rate, interval):
    """At each epsilon, also off the grid: delta of the coarse distribution against the true one, by its best test."""
    first, mass, excess = below.sampled_gaussian(noise, rate, interval)
    losses = (first + np.arange(len(mass))) * interval
    assert mass.sum() <= 1 + 1e-12
    assert excess < 1e-12
    for epsilon in (-0.3, -0.0031, 0.0, 0.0123, 0.4567, 1.77):
        coarse = float(np.sum(mass * np.maximum(0.0, 1 - np.exp(epsilon - losses))))
        log_p, log_q = below._tests(np.array([epsilon]), noise, rate)
        exact = float(np.exp(log_p[0]) - np.exp(epsilon + log_q[0]))
        assert coarse <= exact + 1e-12
        assert coarse >= exact - interval / 2


def test_small_steps_are_not_drowned_by_the_interval():
    """At a fixed interval of 1e-4 the pessimism of 10,000 such steps is larger than their epsilon."""
    found = tight.epsilon(training(20.0, 0.001, 10_000), 1e-5)
    assert found.interval < 1e-5
    assert found.upper == pytest.approx(clt.epsilon(training(20.0, 0.001, 10_000), 1e-5), rel=0.02)


def test_a_schedule_is_its_steps():
    schedule = Schedule(np.array([3.0, 3.0, 4.0]), np.array([0.1, 0.1, 0.2]))
    listed = Composed((PoissonSampled(0.1, Gaussian(3.0)), 2), (PoissonSampled(0.2, Gaussian(4.0)), 1))
    assert tight.epsilon(schedule, 1e-5) == tight.epsilon(listed, 1e-5)


def test_the_ends():
    assert tight.epsilon(Composed((Gaussian(0.0), 0)), 1e-5).upper == 0
    assert tight.epsilon(PoissonSampled(0.0, Gaussian(0.0)), 1e-5).upper == 0
    assert tight.epsilon(Gaussian(0.0), 1e-5).upper == math.inf
    assert tight.epsilon(Laplace(2.0), 1e-9).upper <= 0.5


def test_what_it_cannot_tell_it_refuses_and_names_who_can():
    for delta in (1e-11, 0.0):
        with pytest.raises(NoGuarantee, match="the Renyi accountant answers"):
            tight.epsilon(Gaussian(1.0), delta)
    with pytest.raises(UnknownEvent, match="the Renyi accountant bounds it"):
        tight.epsilon(SampledWithoutReplacement(1, 10, Gaussian(1.0)), 1e-5)
    with pytest.raises(UnknownEvent, match="the least likely answer"):
        tight.epsilon(RandomisedResponse(0.1, 4), 1e-5)
    with pytest.raises(NoGuarantee, match="at most 64 different events"):
        tight.epsilon(Schedule(np.linspace(1, 2, 70), np.full(70, 0.1)), 1e-5)
    with pytest.raises(ValueError, match="delta must lie"):
        tight.epsilon(Gaussian(1.0), float("nan"))


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(ImportError, match=r"pip install 'engram\[tight\]'"):
        tight.epsilon(Gaussian(1.0), 1e-5)


def test_the_central_limit_is_exact_for_gaussians_and_below_the_truth_for_few_steps():
    assert clt.epsilon(Composed((Gaussian(3.0), 9)), 1e-5) == pytest.approx(exact_gaussian(1.0, 1e-5))
    few = training(0.6, 0.01, 10)
    assert clt.epsilon(few, 1e-5) < 0.7 * tight.epsilon(few, 1e-5).lower  # hence no guarantee
    assert clt.epsilon(Laplace(1.0), 1e-5) is None
    assert clt.epsilon(Composed(), 1e-5) == 0
    assert clt.epsilon(Gaussian(0.0), 1e-5) == math.inf
