from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from torch import nn

from engram.access import Informed, Knowledge, Lab, Release, Unsuited
from engram.attacks.stationarity import Optimum, Stationarity, missing
from engram.chunks.local import Memory
from engram.data import dataset
from engram.models import MLP
from engram.seed import Seed
from engram.train import SGD, CrossEntropy, FullBatch, Recipe

sklearn_datasets = pytest.importorskip("sklearn.datasets")
TARGETS = range(0, 120, 12)


@pytest.fixture(scope="module")
def digits():
    bunch = sklearn_datasets.load_digits()
    return bunch.data[:120] / 16, bunch.target[:120]


def softmax_fit(x, y, penalty, intercept_penalty=0.0):
    """Newton's method to the last digit, all classes at once. With intercept_penalty 0 the last class's is held at 0."""
    n, d = x.shape
    classes, one = 10, np.concatenate([x, np.ones((n, 1))], 1)
    ridge = np.tile(np.append(np.full(d, penalty), intercept_penalty), classes)
    w, wanted = np.zeros(classes * (d + 1)), np.eye(classes)[y]
    free = np.ones(len(w), bool)
    free[-1] = intercept_penalty > 0
    for _ in range(60):
        p = softmax(one @ w.reshape(classes, -1).T, axis=1)
        g = ((p - wanted).T @ one).ravel() + ridge * w
        hessian = np.einsum("nc,ce,ni,nj->ciej", p, np.eye(classes), one, one, optimize=True)
        hessian -= np.einsum("nc,ne,ni,nj->ciej", p, p, one, one, optimize=True)
        hessian = hessian.reshape(len(w), -1) + np.diag(ridge)
        w[free] -= np.linalg.solve(hessian[np.ix_(free, free)], g[free])
        if np.abs(g).max() < 1e-13:
            break
    return w.reshape(classes, -1)[:, :-1], w.reshape(classes, -1)[:, -1]


def sigmoid_fit(x, y, penalty):
    one, w = np.concatenate([x, np.ones((len(x), 1))], 1), np.zeros(x.shape[1] + 1)
    ridge = np.append(np.full(x.shape[1], penalty), 0)
    for _ in range(40):
        p = 1 / (1 + np.exp(-one @ w))
        w -= np.linalg.solve((one.T * (p * (1 - p))) @ one + np.diag(ridge), one.T @ (p - y) + ridge * w)
    return w[None, :-1], w[-1:]


def ridge_fit(x, y, penalty):
    one = np.concatenate([x, np.ones((len(x), 1))], 1)
    w = np.linalg.solve(one.T @ one + np.diag(np.append(np.full(x.shape[1], penalty), 0)), one.T @ y).T
    return w[:, :-1], w[:, -1]


def without(x, y, k):
    return np.delete(x, k, 0), np.delete(y, k, 0)


@pytest.mark.parametrize("intercept_penalty", [0.0, 0.3])
def test_logistic_regression_gives_its_record_back(digits, intercept_penalty):
    x, y = digits
    weights, intercept = softmax_fit(x, y, 1.0, intercept_penalty)
    for k in TARGETS:
        optimum = Optimum(weights, intercept, *without(x, y, k), penalty=1.0, intercept_penalty=intercept_penalty)
        found = missing(optimum)
        assert np.abs(found.x - x[k]).max() < 1e-8
        assert found.y == y[k]
        assert found.certificate < 1e-8


def test_two_classes_with_one_row_of_weights(digits):
    x, y = digits
    even = y % 2
    weights, intercept = sigmoid_fit(x, even, 0.5)
    for k in TARGETS:
        found = missing(Optimum(weights, intercept, *without(x, even, k), penalty=0.5, link="sigmoid"))
        assert np.abs(found.x - x[k]).max() < 1e-8
        assert found.y == even[k]


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("penalty", [1e-3, 2.0])
def test_ridge_gives_its_record_and_its_numbers_back(digits, outputs, penalty):
    x, y = digits
    told = np.random.default_rng(0).normal(size=(len(y), outputs)) + y[:, None]
    weights, intercept = ridge_fit(x, told, penalty)
    for k in TARGETS:
        found = missing(Optimum(weights, intercept, *without(x, told, k), penalty=penalty, link="identity"))
        assert np.abs(found.x - x[k]).max() < 1e-8
        assert np.abs(found.y - told[k]).max() < 1e-8
        assert np.isnan(found.certificate) == (outputs == 1)


def test_training_that_stopped_early_is_refused(digits):
    x, y = digits
    weights, intercept = softmax_fit(x, y, 1.0)
    optimum = Optimum(weights * 0.99, intercept, *without(x, y, 5), penalty=1.0)
    with pytest.raises(Unsuited, match=r"beside it there is .*train to the optimum"):
        missing(optimum)


def test_a_penalty_that_was_not_told_is_refused(digits):
    x, y = digits
    weights, intercept = softmax_fit(x, y, 1.0)
    with pytest.raises(Unsuited, match="say its penalty"):
        missing(Optimum(weights, intercept, *without(x, y, 5)))


def test_two_missing_records_are_refused(digits):
    """The gap is of rank two then."""
    x, y = digits
    weights, intercept = softmax_fit(x, y, 1.0)
    with pytest.raises(Unsuited, match="not the gradient of one record"):
        missing(Optimum(weights, intercept, *without(*without(x, y, 5), 7), penalty=1.0))


def test_no_missing_record_leaves_no_gap(digits):
    x, y = digits
    told = y[:, None].astype(float)
    weights, intercept = ridge_fit(x, told, 1.0)
    with pytest.raises(Unsuited, match="no gap"):
        missing(Optimum(weights, intercept, x, told, penalty=1.0, link="identity"))


def test_what_does_not_fit_is_refused(digits):
    x, y = digits
    optimum = Optimum(np.zeros((10, 64)), np.zeros(10), x, y)
    with pytest.raises(ValueError, match="weights must be"):
        replace(optimum, weights=np.zeros((10, 63)))
    with pytest.raises(ValueError, match="link"):
        replace(optimum, link="probit")


def handle(build, weights, intercept, x, y, k, **how):
    """The adversary's handle on one released model, without record k; weights rounded as a release in float32 is."""
    fixed = dataset(*without(x, y, k))
    weights = {"1.weight": weights[None].astype(np.float32), "1.bias": intercept[None].astype(np.float32)}
    knowledge = Knowledge(Recipe(build, optimiser=SGD(0.1, weight_decay=1 / len(y)), sampler=FullBatch(), **how))
    return Informed(Release(weights, fixed), knowledge=knowledge, lab=Lab(Seed(0), Memory()))


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_an_informed_adversary_reads_a_released_model(digits):
    """Rounded to float32, an optimum is stationary to some 1e-7 of all gradients, and the record right to 1e-3."""
    x, y = digits
    weights, intercept = softmax_fit(x, y, 1.0, 1.0)
    said = Stationarity()(handle(linear, weights, intercept, x, y, 24), seed=Seed(0))
    assert np.abs(said.guesses[0] - x[24]).max() < 1e-3
    assert said.labels == [y[24]]
    assert said.certificates[0] < 1e-3


def test_a_network_with_two_layers_is_not_convex(digits):
    x, y = digits
    target = handle(MLP(64, 10, 4), np.zeros((10, 64)), np.zeros(10), x, y, 24)
    with pytest.raises(Unsuited, match="one linear layer"):
        Stationarity()(target, seed=Seed(0))


def test_another_loss_is_refused(digits):
    x, y = digits
    target = handle(linear, np.zeros((10, 64)), np.zeros(10), x, y, 24, loss=CrossEntropy(0.1))
    with pytest.raises(Unsuited, match="another loss"):
        Stationarity()(target, seed=Seed(0))
