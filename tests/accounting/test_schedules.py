from __future__ import annotations

import numpy as np
import pytest

from engram.accounting import PoissonSampled, Schedule, curve
from engram.accounting.events import Composed, Gaussian
from engram.accounting.schedules import EXACT, _added, together

ORDERS = np.array([1.0, 1.1, 1.9, 2.0, 2.5, 6.0, 20.0, 64.0])


def random_pairs(seed, n):
    stream = np.random.default_rng(seed)
    return 10 ** stream.uniform(-0.1, 0.5, n), 10 ** stream.uniform(-2.5, -1.5, n), np.ones(n)


def test_a_schedule_of_equal_steps_is_a_repeated_step():
    step = PoissonSampled(0.01, Gaussian(1.2))
    assert curve(Schedule(np.full(500, 1.2), np.full(500, 0.01)))(3.3) == pytest.approx(
        curve(Composed((step, 500)))(3.3)
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_many_different_steps_are_bounded_from_above_and_closely(seed):
    pairs = random_pairs(seed, 2 * EXACT)
    exact, bound = _added(*pairs, ORDERS), together(*pairs)(ORDERS)
    assert (bound >= exact * (1 - 1e-11)).all()
    assert (bound[:5] <= exact[:5] * 1.1).all()


def test_steps_along_a_line_are_bounded_within_a_thousandth():
    pairs = np.linspace(2.0, 0.8, 2 * EXACT), np.full(2 * EXACT, 0.01), np.ones(2 * EXACT)
    exact, bound = _added(*pairs, ORDERS[:5]), together(*pairs)(ORDERS[:5])
    assert (bound >= exact * (1 - 1e-11)).all()
    assert (bound <= exact * 1.001).all()


def test_a_single_cell_is_bounded_too():
    """A wide cell, so that each inequality is far from equal."""
    from engram.accounting import schedules

    noise, rate, counts = random_pairs(3, 400)
    exact = _added(noise, rate, counts, ORDERS)
    cells, schedules.CELLS = schedules.CELLS, (1,)
    try:
        bound = together(noise, rate, counts)(ORDERS)
    finally:
        schedules.CELLS = cells
    assert (bound >= exact).all()


def test_free_steps_and_whole_batches_among_many():
    noise, rate, counts = random_pairs(2, 2 * EXACT)
    with_ends = [
        np.concatenate(pair) for pair in ((noise, [3.0, 0.0, np.inf]), (rate, [1.0, 0.0, 0.5]), (counts, [1.0] * 3))
    ]
    assert together(*with_ends)(ORDERS) == pytest.approx(together(noise, rate, counts)(ORDERS) + ORDERS / 18)
    assert np.isinf(together(noise, rate, counts)(np.array([2.0, np.inf]))).tolist() == [False, True]
    silent = [np.concatenate(pair) for pair in ((noise, [0.0]), (rate, [0.5]), (counts, [1.0]))]
    assert np.isinf(together(*silent)(ORDERS)).all()
