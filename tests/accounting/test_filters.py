from __future__ import annotations

import json
import math

import numpy as np
import pytest
from oracles.accounting import hockey_stick

from engram import accounting
from engram.accounting import Composed, Gaussian, NoGuarantee, PoissonSampled, RandomisedResponse, calibration
from engram.accounting.filters import BudgetError, BudgetSpent, Filter, Odometer, best_order

STEP = PoissonSampled(0.01, Gaussian(0.9))


def exhausted(budget, choose):
    taken = 0
    while True:
        try:
            budget.spend(choose(taken))
        except BudgetSpent:
            return taken
        taken += 1


def test_a_planned_filter_allows_as_many_steps_as_the_accountant():
    allowed = calibration.steps(epsilon=3.0, delta=1e-5, noise_multiplier=0.9, rate=0.01)
    assert exhausted(Filter(3.0, 1e-5, plan=STEP), lambda _: STEP) == allowed


def test_an_unplanned_filter_allows_fewer_but_not_none():
    allowed = calibration.steps(epsilon=3.0, delta=1e-5, noise_multiplier=0.9, rate=0.01)
    assert 0.4 * allowed < exhausted(Filter(3.0, 1e-5), lambda _: STEP) < allowed


@pytest.mark.parametrize("seed", range(2))
def test_steps_chosen_by_the_way_never_overrun(seed):
    """Each choice looks at what is left; whatever came of it, the steps taken cost no more than the budget."""
    stream, budget = np.random.default_rng(seed), Filter(4.0, 1e-5)
    exhausted(
        budget,
        lambda _: PoissonSampled(stream.choice([0.01, 0.02]), Gaussian(stream.choice([0.8, 1.5, 3.0]) + budget.share)),
    )
    assert 0 < accounting.epsilon(budget.event, 1e-5) <= 4.0


def test_an_adaptive_adversary_stays_within_the_budget():
    """Asked until the filter refuses, more boldly after a lucky answer: the exact delta stays below the stated one."""
    epsilon, delta = 1.0, 0.05
    mild, strong = RandomisedResponse(0.55), RandomisedResponse(0.65)

    def play(budget_state, p, q, out):
        budget = Filter.from_state(budget_state)
        event = strong if p > q else mild  # looks at the answers so far
        if not budget.fits(event):
            event = mild
        if not budget.fits(event):
            out.append((p, q))
            return
        budget.spend(event)
        t = event.truth
        play(budget.state(), p * t, q * (1 - t), out)
        play(budget.state(), p * (1 - t), q * t, out)

    leaves = []
    play(Filter(epsilon, delta, orders=(3.0, 6.0)).state(), 1.0, 1.0, leaves)
    p, q = np.array(leaves).T
    assert p.sum() == pytest.approx(1)
    assert len(leaves) > 20
    assert hockey_stick(p, q, epsilon) <= delta


def test_a_refused_step_is_not_counted():
    budget = Filter(2.0, 1e-5, plan=STEP)
    budget.spend(STEP)
    before = budget.state()
    with pytest.raises(BudgetSpent, match=r"would overrun the budget of epsilon 2 at delta 1e-05: .* is spent"):
        budget.spend(Gaussian(0.0))
    assert budget.state() == before
    assert issubclass(BudgetSpent, BudgetError)
    assert budget.fits(STEP)
    assert not budget.fits(STEP, 10**6)
    budget.spend(Gaussian(0.0), 0)  # what does not happen is free


def test_a_saved_budget_comes_back():
    budget = Filter(3.0, 1e-5)
    budget.spend(STEP, 300)
    budget.spend(Gaussian(30.0))
    back = Filter.from_state(json.loads(json.dumps(budget.state())))
    assert back.state() == budget.state()
    assert back.event == budget.event == Composed((STEP, 300), (Gaussian(30.0), 1))
    assert exhausted(back, lambda _: STEP) == exhausted(budget, lambda _: STEP)
    odometer = Odometer(1e-5)
    odometer.spend(STEP, 10)
    again = Odometer.from_state(json.loads(json.dumps(odometer.state())))
    assert again.epsilon == odometer.epsilon


def test_what_is_spent_is_told_and_never_too_little():
    budget, odometer = Filter(3.0, 1e-5, plan=STEP), Odometer(1e-5)
    assert budget.epsilon(1e-5) == odometer.epsilon == 0
    told = []
    for _ in range(5):
        budget.spend(STEP, 200)
        odometer.spend(STEP, 200)
        told.append((budget.epsilon(1e-5), odometer.epsilon, accounting.epsilon(budget.event, 1e-5)))
    told = np.array(told)
    assert (np.diff(told, axis=0) >= 0).all()
    assert (told[:, 1] >= told[:, 2]).all()
    assert (told[:, 0] >= told[:, 2]).all()
    assert told[:, 0].max() <= 3.0
    assert budget.epsilon(1e-6) >= budget.epsilon(1e-5)


def test_the_odometer_adds_its_orders_shares():
    odometer = Odometer(1e-4, orders=(5.0, 9.0))
    odometer.spend(Gaussian(10.0))
    by_hand = min(a / 200 + math.log(2 / 1e-4) / (a - 1) for a in (5.0, 9.0))
    assert odometer.epsilon == pytest.approx(by_hand)


def test_bad_budgets_are_refused():
    for bad in (0.0, -1.0, float("nan"), math.inf):
        with pytest.raises(ValueError, match="epsilon must be positive"):
            Filter(bad, 1e-5)
    for bad in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="delta must lie"):
            Filter(1.0, bad)
    with pytest.raises(ValueError, match="orders must be above 1"):
        Filter(1.0, 1e-5, orders=(0.5,))
    with pytest.raises(NoGuarantee, match="leave anything to spend"):
        Filter(0.1, 1e-5, orders=(2.0,))
    with pytest.raises(NoGuarantee, match="does not allow one such step"):
        Filter(0.1, 1e-5, plan=Gaussian(0.0))
    with pytest.raises(ValueError, match="not both"):
        Filter(1.0, 1e-5, plan=STEP, orders=(2.0,))
    with pytest.raises(ValueError, match="count must be a whole number"):
        Filter(1.0, 1e-5).spend(STEP, -1)


def test_each_watched_order_has_its_share_of_delta():
    """Which order survives may depend on the answers, so together they may claim no more than delta."""
    one, two = Filter(3.0, 1e-5, orders=(5.0,)), Filter(3.0, 1e-5, orders=(5.0, 5.0))
    room = [
        3.0 - (math.log(4 / 5) - (math.log(1e-5 / n) + math.log(5)) / 4) for n in (1, 2)
    ]  # Balle et al., Theorem 21
    noises = [math.sqrt(5 / 2 / r) for r in room]  # one Gaussian answer of this noise fills it
    for budget, noise in zip((one, two), noises, strict=True):
        assert budget.fits(Gaussian(noise * 1.0001))
        assert not budget.fits(Gaussian(noise * 0.9999))


def test_the_order_suits_gaussians():
    order = best_order(1.0, 1e-5)
    allowed = lambda a: 1.0 - (math.log((a - 1) / a) - (math.log(1e-5) + math.log(a)) / (a - 1))  # noqa: E731
    assert all(allowed(order) / order >= allowed(a) / a - 1e-9 for a in np.linspace(2, 100, 500))
