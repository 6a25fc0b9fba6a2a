from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import accounting as oracle

from engram.accounting.divergence import gaussian, laplace, psi, randomised_response
from engram.accounting.events import RandomisedResponse

ORDERS = np.array([1.01, 1.5, 2.0, 3.7, 64.0, 1000.0, 10_000.0])


def close(ours, reference, rel=1e-12):
    return abs(mp.mpf(float(ours)) - reference) <= rel * abs(reference)


def response(truth, answers, orders):
    event = RandomisedResponse(truth, answers)
    return randomised_response(event.truth, event.lie, event.gap, orders)


@pytest.mark.parametrize("t", [-30.0, -1.0, -0.06, -0.04, -1e-3, -1e-9, 1e-12, 1e-5, 0.049, 0.051, 2.0, 100.0])
def test_psi_keeps_its_digits(t):
    assert close(psi(np.array([t]))[0], mp.exp(mp.mpf(t)) - 1 - mp.mpf(t), 1e-13)


@pytest.mark.parametrize("scale", [0.05, 0.5, 2.0, 30.0, 1e4])
def test_laplace_equals_forty_digits(scale):
    ours = laplace(scale, ORDERS)
    assert all(close(o, oracle.laplace(scale, a)) for o, a in zip(ours, ORDERS, strict=True))


@pytest.mark.parametrize(
    ("truth", "answers"), [(0.75, 2), (0.999, 2), (0.5001, 2), (0.2, 2), (0.4, 5), (0.1, 5), (0.25, 3)]
)
def test_randomised_response_equals_forty_digits(truth, answers):
    ours = response(truth, answers, ORDERS)
    references = [oracle.randomised_response(truth, answers, a) for a in ORDERS]
    assert all(close(o, r, 1e-10) for o, r in zip(ours, references, strict=True))


def test_an_answer_without_information_costs_nothing():
    assert response(0.5, 2, ORDERS).max() == 0
    assert response(0.25, 4, ORDERS).max() < 1e-30


def test_the_limit_at_order_one_is_where_the_curve_goes():
    near = np.array([1.0, 1 + 1e-7])
    for at in (lambda a: laplace(2.0, a), lambda a: response(0.7, 3, a), lambda a: gaussian(2.0, a)):
        limit, beside = at(near)
        assert limit == pytest.approx(beside, rel=1e-6)
        assert limit > 0


def test_the_limit_at_infinity_is_the_pure_guarantee():
    far = np.array([1e7, np.inf])
    assert laplace(4.0, far) == pytest.approx([0.25, 0.25], rel=1e-5)
    assert response(0.75, 2, far) == pytest.approx(np.log([3.0, 3.0]), rel=1e-5)
    assert gaussian(1.0, far)[1] == np.inf


def test_no_noise_has_no_bound():
    assert np.isinf(laplace(0.0, ORDERS)).all()
    assert np.isinf(response(1.0, 2, ORDERS)).all()
    assert np.isinf(response(0.0, 2, ORDERS)).all()
    assert np.isinf(gaussian(0.0, ORDERS)).all()


@given(st.floats(0.05, 100.0), st.floats(1.0, 500.0), st.floats(1.0001, 4.0))
def test_curves_rise_with_the_order(scale, order, factor):
    orders = np.array([order, order * factor])
    for low, high in (
        laplace(scale, orders),
        response(1 / (1 + np.exp(-1 / scale)), 2, orders),
        gaussian(scale, orders),
    ):
        assert low <= high * (1 + 1e-12)
