from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engram.data import dataset
from engram.models import MLP
from engram.seed import Seed
from engram.train import SGD, FullBatch, Given, Recipe
from engram.train.loop import started
from engram.train.response import Response, rounded
from engram.train.unrolled import Unrolled

CLASSES, NUMBERS = 3, 6
SGDS = [SGD(0.2, momentum=0.9), SGD(0.2, momentum=0.5, nesterov=True, weight_decay=0.02)]


def known(n=30, activation="elu", sgd=SGDS[0], epochs=25):
    recipe = Recipe(MLP(NUMBERS, CLASSES, 5, activation=activation), epochs, sgd, FullBatch())
    stream = np.random.default_rng(0)
    fixed = dataset(stream.normal(size=(n, NUMBERS)).astype(np.float32), stream.integers(0, CLASSES, n))
    return Unrolled(replace(recipe, start=Given(started(recipe, Seed(3)).state_dict())), fixed)


def some(records=4):
    stream = torch.Generator().manual_seed(5)
    return torch.randn(records, NUMBERS, generator=stream).double(), torch.arange(records) % CLASSES


def answered(run, looks=12, smooth=None):
    x, y = some()
    return Response.around(run, x[:1], y[:1], looks=looks, seed=Seed(0), smooth=smooth)


@pytest.mark.parametrize("sgd", SGDS)
def test_around_its_own_record_value_and_slopes_are_exact(sgd):
    run, (x, y) = known(sgd=sgd), some()
    response = answered(run)
    torch.testing.assert_close(response(x[:1], y[:1]), response.seen(run(x[:1], y[:1])), rtol=1e-10, atol=1e-12)
    _, moved = run.pushed(x[:1].expand(NUMBERS, -1), y[:1].expand(NUMBERS), torch.eye(NUMBERS))
    torch.testing.assert_close(response.slopes(x[:1], y[:1])[0].T, response.seen(moved), rtol=1e-9, atol=1e-12)


def test_slopes_are_those_of_the_response_everywhere():
    response, (x, y), h = answered(known()), some(), 1e-6
    slopes = response.slopes(x, y)
    for k in range(NUMBERS):
        step = h * torch.eye(NUMBERS).double()[k]
        apart = (response(x + step, y) - response(x - step, y)) / (2 * h)
        torch.testing.assert_close(slopes[..., k], apart, rtol=1e-5, atol=1e-8)


def left_out(n):
    """How much of what other records leave in the weights the response does not see."""
    run, (x, y) = known(n), some()
    response = answered(run)
    told, base = response.seen(run(x, y)), response.seen(run(x[:1], y[:1]))
    return float((response(x, y) - told)[1:].norm() / (told - base)[1:].norm())


def test_what_it_leaves_out_falls_as_the_records_grow():
    few, many = left_out(20), left_out(320)
    assert many < 0.1
    assert many < few / 5


def test_only_kinks_are_rounded():
    smooth = nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    told, x = rounded(smooth, 1e-4), torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(told(x), smooth(x), rtol=0, atol=1e-3)
    assert isinstance(told[2][0], nn.Softplus)
    assert isinstance(smooth[2][0], nn.ReLU)
    assert not any(isinstance(m, nn.ReLU) for m in told.modules())


def test_looks_are_the_same_for_the_same_seed():
    run = known()
    torch.testing.assert_close(answered(run).looks, answered(run).looks, rtol=0, atol=0)


@pytest.mark.parametrize("records", [1, 4])
def test_shares_of_classes_are_answered_too(records):
    response, (x, y) = answered(known()), some(records)
    soft = nn.functional.one_hot(y, CLASSES).double()
    torch.testing.assert_close(response(x, soft), response(x, y), rtol=1e-10, atol=1e-12)


def test_a_rounded_response_sees_more_of_a_network_with_kinks():
    """Digits: the curvature that records crossing kinks have on average is there only when the kinks are rounded."""
    held = pytest.importorskip("sklearn.datasets").load_digits()
    data = dataset((held.data / 16).astype(np.float32), held.target)
    recipe = Recipe(MLP(64, 10, 10, activation="relu"), 60, SGDS[0], FullBatch())
    run = Unrolled(replace(recipe, start=Given(started(recipe, Seed(0)).state_dict())), data.take(range(300)))
    x, y = torch.as_tensor(data.x[300:308]).double(), torch.as_tensor(data.y[300:308])
    ends, mean, unsure = run(x, y), run.x.mean(0, keepdim=True), torch.full((1, 10), 0.1).double()

    def off(smooth):
        response = Response.around(run, mean, unsure, looks=8, seed=Seed(0), smooth=smooth)
        return float((response(x, y) - response.seen(ends)).norm(dim=1).median())

    assert off(0.03) < 0.9 * off(None)
