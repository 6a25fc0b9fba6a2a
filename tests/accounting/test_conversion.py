from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracle

from engram import accounting
from engram.accounting import (
    Composed,
    Gaussian,
    Laplace,
    NoGuarantee,
    PoissonSampled,
    RandomisedResponse,
    UnknownEvent,
    curve,
    to_delta,
    to_epsilon,
)
from engram.accounting.calibration import training
from engram.accounting.clt import gaussian_delta
from engram.accounting.conversion import balle, mironov, total_variation
from engram.accounting.search import least

SLACK = 1 + 1e-9


def answers(truth, times):
    """All outcomes of repeated randomised response on one record: how often it told the truth."""
    k = np.arange(times + 1)
    choose = np.array([math.comb(times, int(i)) for i in k], float)
    p = choose * truth**k * (1 - truth) ** (times - k)
    return p, p[::-1]


@pytest.mark.parametrize("how", ["balle", "mironov", "canonne"])
@pytest.mark.parametrize(("truth", "times"), [(0.6, 1), (0.75, 3), (0.55, 40), (0.9, 10)])
def test_conversions_cover_the_exact_delta(how, truth, times):
    cost = curve(Composed((RandomisedResponse(truth), times)))
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        exact = oracle.hockey_stick(*answers(truth, times), epsilon)
        assert exact <= to_delta(cost, epsilon, how).delta * SLACK
    for delta in (1e-6, 1e-3, 0.1, 0.7):
        told = to_epsilon(cost, delta, how).epsilon
        assert oracle.hockey_stick(*answers(truth, times), told) <= delta * SLACK


@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0, 50.0])
def test_conversions_cover_the_exact_gaussian_and_closely(noise):
    for delta in (1e-12, 1e-5, 1e-2):
        told = to_epsilon(curve(Gaussian(noise)), delta).epsilon
        exact = gaussian_delta(1 / noise, told)
        assert exact <= delta * SLACK
        assert exact >= delta / 100 or told == 0


def test_the_sharper_conversion_is_never_the_larger():
    orders = 1 + np.geomspace(1e-3, 1e4, 100)
    assert (balle(orders, 1e-5) <= mironov(orders, 1e-5)).all()
    cost = curve(training(1.0, 0.01, 1000))
    assert to_epsilon(cost, 1e-5, "balle") == to_epsilon(cost, 1e-5, "balle")
    assert to_epsilon(cost, 1e-5, "balle").epsilon < to_epsilon(cost, 1e-5, "mironov").epsilon


def test_mironov_is_his_formula_at_its_order():
    told = to_epsilon(curve(Gaussian(2.0)), 1e-5, "mironov")
    assert told.epsilon == pytest.approx(told.order / 8 + math.log(1e5) / (told.order - 1))
    assert told.order == pytest.approx(1 + math.sqrt(8 * math.log(1e5)), rel=1e-4)  # where its derivative is 0


def test_balle_is_their_formula_at_its_order():
    told = to_epsilon(curve(Gaussian(2.0)), 1e-5)
    a = told.order
    by_hand = a / 8 + math.log((a - 1) / a) - (math.log(1e-5) + math.log(a)) / (a - 1)
    assert told.epsilon == pytest.approx(by_hand, rel=1e-12)


def test_delta_and_epsilon_are_each_others_inverse():
    for event in (training(1.1, 0.01, 1000), Gaussian(3.0), Composed((Laplace(2.0), 30))):
        told = accounting.epsilon(event, 1e-6)
        assert accounting.delta(event, told) == pytest.approx(1e-6, rel=1e-6)


def test_pure_privacy_caps_it():
    event = Composed((Laplace(100.0), 2))
    assert accounting.spent(event, 1e-30).conversion == "pure"
    assert accounting.epsilon(event, 1e-30) == pytest.approx(0.02)
    assert accounting.epsilon(event, 0.0) == pytest.approx(0.02)
    assert accounting.delta(event, 0.02 + 1e-12) == 0


def test_delta_zero_is_refused_where_nothing_is_pure():
    with pytest.raises(NoGuarantee, match="at delta 0 these events have no finite epsilon"):
        accounting.epsilon(Gaussian(1.0), 0.0)


@pytest.mark.parametrize("bad", [-1e-9, 1.0, 2.0, float("nan")])
def test_a_delta_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match=r"delta must lie in \[0, 1\)"):
        accounting.epsilon(Gaussian(1.0), bad)


def test_other_bad_input_is_refused():
    with pytest.raises(ValueError, match="epsilon must be at least 0"):
        accounting.delta(Gaussian(1.0), float("nan"))
    with pytest.raises(ValueError, match="no conversion is called 'bale'; did you mean balle"):
        accounting.spent(Gaussian(1.0), 1e-5, conversion="bale")
    with pytest.raises(UnknownEvent):
        accounting.epsilon("an epoch", 1e-5)


def test_the_ends():
    silent, free = Gaussian(0.0), PoissonSampled(0.0, Gaussian(0.0))
    assert accounting.epsilon(silent, 1e-5) == math.inf
    assert accounting.delta(silent, 5.0) == 1
    for nothing in (Composed((silent, 0)), free, Composed((Composed((silent, 0)), 100), (free, 7))):
        assert (
            accounting.epsilon(nothing, 1e-5) == accounting.epsilon(nothing, 0.0) == accounting.delta(nothing, 0.0) == 0
        )


def test_total_variation_covers_and_ends_epsilon_at_zero():
    cost = curve(RandomisedResponse(0.6))
    assert 0.2 <= total_variation(cost) <= 0.3  # exactly 0.2
    assert to_epsilon(cost, 0.3).epsilon == 0


def test_no_grid_puts_a_floor_under_epsilon():
    """Each ends far beyond where a grid up to 63 stops, and beyond it at that grid's floor of log(1/delta) / 62."""
    told = accounting.spent(training(100.0, 1e-4, 1000), 1e-5)
    assert told.order > 1e4
    assert told.epsilon < 1e-4
    assert accounting.spent(training(0.07, 0.5, 10**5), 1e-6).order < 1.001


def test_the_best_order_is_found_to_the_last_digit():
    for best in (1.0003, 1.7, 42.0, 7e6):
        value, order = least(lambda a, best=best: 3 + (np.log(a - 1) - math.log(best - 1)) ** 2)
        assert value == pytest.approx(3, rel=1e-10)
        assert order == pytest.approx(best, rel=1e-4)
    walled, _ = least(lambda a: np.where(a < 5, 1 / a, 1e9))
    assert walled == pytest.approx(0.2, rel=1e-7)
    assert least(lambda a: np.full(len(a), np.inf)) == (math.inf, math.inf)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.3, 20.0), st.floats(1e-4, 1.0), st.integers(1, 10**5), st.floats(-9, -1), st.floats(1.0, 3.0))
def test_epsilon_is_monotone(noise, rate, steps, log_delta, factor):
    def epsilon(noise=noise, rate=rate, steps=steps, delta=10**log_delta):
        return accounting.epsilon(training(noise, rate, steps), delta)

    here = epsilon() * SLACK + 1e-12
    assert epsilon(noise=noise * factor) <= here
    assert epsilon(rate=rate / factor) <= here
    assert epsilon(steps=int(steps / factor)) <= here
    assert epsilon(delta=min(0.5, 10**log_delta * factor)) <= here


@settings(max_examples=25, deadline=None)
@given(st.floats(0.3, 20.0), st.floats(1e-4, 1.0), st.integers(1, 1000), st.floats(0.0, 5.0), st.floats(0.0, 2.0))
def test_delta_is_monotone(noise, rate, steps, epsilon, more):
    event = training(noise, rate, steps)
    assert accounting.delta(event, epsilon + more) <= accounting.delta(event, epsilon) * SLACK
