from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engram import accounting
from engram.accounting import NoGuarantee, calibration
from engram.accounting.calibration import training


@settings(max_examples=10, deadline=None)
@given(st.floats(0.05, 20.0), st.floats(1e-4, 1.0), st.integers(1, 10**5), st.floats(-9, -3))
def test_noise_keeps_the_budget_and_wastes_none(epsilon, rate, steps, log_delta):
    delta = 10**log_delta
    noise = calibration.noise_multiplier(epsilon=epsilon, delta=delta, rate=rate, steps=steps)
    assert accounting.epsilon(training(noise, rate, steps), delta) <= epsilon
    assert accounting.epsilon(training(noise * (1 - 1e-4), rate, steps), delta) > epsilon


def test_rate_steps_and_clip_keep_the_budget_and_waste_none():
    budget = {"epsilon": 3.0, "delta": 1e-5}
    rate = calibration.rate(**budget, noise_multiplier=1.0, steps=1000)
    assert (
        accounting.epsilon(training(1.0, rate, 1000), 1e-5)
        <= 3
        < accounting.epsilon(training(1.0, rate * 1.0001, 1000), 1e-5)
    )
    steps = calibration.steps(**budget, noise_multiplier=1.0, rate=0.01)
    assert (
        accounting.epsilon(training(1.0, 0.01, steps), 1e-5)
        <= 3
        < accounting.epsilon(training(1.0, 0.01, steps + 1), 1e-5)
    )
    noise = calibration.noise_multiplier(**budget, rate=0.01, steps=1000)
    clip = calibration.clip_norm(**budget, noise=2.0, rate=0.01, steps=1000)
    assert clip == pytest.approx(2.0 / noise)


def test_groups_need_more_noise():
    budget = {"epsilon": 3.0, "delta": 1e-5, "rate": 0.01, "steps": 1000}
    assert calibration.noise_multiplier(**budget, group=4) > 2 * calibration.noise_multiplier(**budget)


def test_the_ends():
    budget = {"epsilon": 3.0, "delta": 1e-5}
    assert calibration.noise_multiplier(**budget, rate=0.0, steps=10) == 0
    assert calibration.noise_multiplier(**budget, rate=0.1, steps=0) == 0
    assert calibration.clip_norm(**budget, noise=1.0, rate=0.1, steps=0) == math.inf
    assert calibration.rate(**budget, noise_multiplier=1e6, steps=1) == 1
    assert calibration.rate(**budget, noise_multiplier=0.0, steps=1) == 0
    assert calibration.steps(**budget, noise_multiplier=0.0, rate=0.5) == 0


def test_impossible_budgets_are_refused():
    with pytest.raises(ValueError, match="epsilon must be positive"):
        calibration.noise_multiplier(epsilon=0.0, delta=1e-5, rate=0.1, steps=1)
    with pytest.raises(ValueError, match=r"delta must lie in \(0, 1\)"):
        calibration.noise_multiplier(epsilon=1.0, delta=0.0, rate=0.1, steps=1)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        calibration.noise_multiplier(epsilon=1.0, delta=1e-5, rate=0.1, steps=-1)
    with pytest.raises(NoGuarantee, match="no noise multiplier up to"):
        calibration.noise_multiplier(epsilon=1e-12, delta=1e-12, rate=1.0, steps=10**6)
    with pytest.raises(ValueError, match="cost next to nothing"):
        calibration.steps(epsilon=1.0, delta=1e-5, noise_multiplier=1.0, rate=0.0)
