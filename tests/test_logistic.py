from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from engram.logistic import fitted


def drawn(n=300, seed=0):
    stream = np.random.default_rng(seed)
    x = stream.normal(size=(n, 3)) * (1, 5, 0.2) + 1
    group = stream.integers(0, 4, n)
    member = stream.random(n) < 1 / (1 + np.exp(-(x[:, 0] - 0.3 * x[:, 1] * (group - 1))))
    return x, member, group


def test_it_is_the_minimum_that_a_general_minimiser_finds():
    x, member, group = drawn()
    found = fitted(x, member, group, 5, ridge=1.0, towards=10.0)
    z = np.concatenate([np.ones((len(x), 1)), (x - x.mean(0)) / x.std(0)], 1)

    def cost(w, rows, centre, ridge):
        a = z[rows] @ w
        return np.logaddexp(0, a).sum() - member[rows] @ a + ridge / 2 * ((w - centre) ** 2).sum()

    common = minimize(cost, np.zeros(4), (np.ones(len(x), bool), np.zeros(4), 1.0), tol=1e-12).x
    for g in range(4):
        own = minimize(cost, common, (group == g, common, 10.0), tol=1e-12).x
        np.testing.assert_allclose(found.weights[g], own, atol=1e-4)
    np.testing.assert_allclose(found.weights[4], common, atol=1e-4)  # a class without records is like all


def test_it_is_silent_where_features_say_nothing():
    stream = np.random.default_rng(0)
    told = stream.normal(size=(4000, 3))
    model = fitted(told, stream.random(4000) < 0.5, stream.integers(0, 4, 4000), 4)
    assert np.abs(model(told, np.zeros(4000, int))).mean() < 0.15


def test_a_feature_that_never_changes_does_no_harm():
    x, member, group = drawn()
    flat = np.concatenate([x, np.full((len(x), 1), 7.0)], 1)
    assert np.isfinite(fitted(flat, member, group, 4)(flat, group)).all()
