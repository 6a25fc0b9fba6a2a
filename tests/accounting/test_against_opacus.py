"""The comparison that Opacus' users make: its formula and its orders, transcribed from the paper."""

from __future__ import annotations

import numpy as np
from oracles import accounting as oracle

from engram.accounting import curve, to_epsilon
from engram.accounting.calibration import training


def test_never_above_the_grid_of_orders():
    stream = np.random.default_rng(0)
    gains = []
    for _ in range(200):
        rate, noise = 10 ** stream.uniform(-4, -0.05), 10 ** stream.uniform(-0.5, 1.3)
        steps, delta = int(10 ** stream.uniform(0, 5)), 10 ** stream.uniform(-9, -3)
        theirs = oracle.epsilon_on_a_grid(rate, noise, steps, delta)
        ours = to_epsilon(curve(training(noise, rate, steps)), delta).epsilon
        assert ours <= max(0.0, theirs) * (1 + 1e-9) + 1e-12, (rate, noise, steps, delta)
        gains.append(ours / theirs if theirs > 0 else 1.0)
    assert min(gains) < 0.5  # where the grid ends


def test_equal_at_an_order_that_both_know():
    stream = np.random.default_rng(1)
    for _ in range(20):
        rate, noise, order = (
            10 ** stream.uniform(-3, -0.3),
            10 ** stream.uniform(-0.2, 1),
            stream.integers(11, 100) / 10,
        )
        theirs = oracle.moments_accountant(rate, noise, [order])[0]
        assert abs(curve(training(noise, rate, 1))(order) - theirs) < 1e-12 + 1e-7 * theirs  # theirs: plain log-sum-exp
