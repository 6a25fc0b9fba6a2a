from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engram import importance
from engram.data import dataset
from engram.importance import Gates, active_steps, at_random, by_row, selected, units
from engram.models import MLP
from engram.reconstruction import Reconstructing
from engram.seed import Seed
from engram.train import SGD, Batches, FullBatch, Given, Recipe
from engram.train.loop import started

READ_OFF = (importance.saliency, importance.gradient_times_input, importance.integrated_gradients)
NONE = dataset(np.zeros((1, 2), np.float32), np.zeros(1, int), classes=("a", "b"))
RECIPE = Recipe(MLP(inputs=6, classes=3, width=5), epochs=12, optimiser=SGD(0.5, momentum=0.9), sampler=FullBatch())
KNOWN = replace(RECIPE, start=Given(started(RECIPE, Seed(3)).state_dict()))


def records(n, seed=0):
    stream = np.random.default_rng(seed)
    return dataset(stream.normal(size=(n, 6)).astype(np.float32), stream.integers(0, 3, n), classes=tuple("abc"))


def linear(a, kept=None):
    """A reconstructor that answers `a` times the standardised weights."""
    a = torch.as_tensor(a, dtype=torch.float32)
    module = nn.Sequential(nn.Linear(a.shape[1], a.shape[0]))
    with torch.no_grad():
        module[0].weight.copy_(a)
        module[0].bias.fill_(1.0)
    kept = np.arange(a.shape[1]) if kept is None else kept
    n = max(kept) + 1
    return Reconstructing(module, np.zeros(n), np.ones(n), kept, (a.shape[0],), "cpu")


A = np.array([[3.0, 0.0, 1.0], [4.0, 0.0, -1.0]])
W = np.array([[1.0, 2.0, -1.0], [-3.0, 5.0, 1.0]])


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        (importance.saliency, [5.0, 0.0, 2**0.5]),
        (importance.columns, [5.0, 0.0, 2**0.5]),
        (importance.gradient_times_input, [10.0, 0.0, 2**0.5]),
        (importance.integrated_gradients, [10.0, 0.0, 2**0.5]),
    ],
)
def test_of_a_linear_reconstructor_each_importance_has_a_closed_form(score, wanted):
    np.testing.assert_allclose(score(W, NONE, linear(A)), wanted, rtol=1e-6)


@pytest.mark.parametrize("score", [*READ_OFF, importance.columns])
def test_what_the_reconstructor_is_not_shown_is_of_no_importance(score):
    weights = np.insert(W, 1, 7.0, axis=1)
    found = score(weights, NONE, linear(A, kept=np.array([0, 2, 3])))
    assert found[1] == 0
    np.testing.assert_allclose(found[[0, 2, 3]], score(W, NONE, linear(A)))


@pytest.mark.parametrize("score", [*READ_OFF, importance.columns])
def test_an_importance_that_is_read_off_a_reconstructor_asks_for_one(score):
    with pytest.raises(ValueError, match="read off a learned reconstructor, got none; use one of explained, gates"):
        score(W, NONE, None)


def test_on_the_way_from_the_mean_shadow_contributions_add_up_to_the_answer():
    stream = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=stream))
    rows = torch.randn((5, 4), generator=stream)
    for along in torch.eye(3):
        parts = importance.along_the_way(module, rows, along)  # [shadow, input]
        wanted = (module(rows) - module(torch.zeros(1, 4))).detach() @ along
        torch.testing.assert_close(parts.sum(1), wanted, atol=0.03, rtol=0)


def test_random_directions_stand_for_all_numbers_of_a_large_answer():
    """200 columns of the same length: their squared estimates have a deviation of 1/4 each, of 0.018 in the mean."""
    a = np.random.default_rng(0).normal(size=(400, 200))
    a[:, 0] = 0.0
    found = importance.saliency(np.zeros((2, 200)), NONE, linear(a))
    ratio = (found[1:] / np.linalg.norm(a, axis=0)[1:]) ** 2
    assert abs(ratio.mean() - 1) < 0.07
    assert 0.15 < ratio.std() < 0.35
    assert found[0] == 0


def traced(n=400, seed=0):
    """Records, and weights of which the first follows them, the second is noise, the third never moves."""
    stream = np.random.default_rng(seed)
    x = stream.uniform(size=(n, 6)).astype(np.float32)
    weights = np.stack([x @ np.arange(6.0), stream.normal(size=n), np.full(n, 0.3)], 1)
    return weights, dataset(x, np.zeros(n, int), classes=("a", "b"))


def test_a_parameter_without_a_trace_explains_nothing():
    found = importance.explained(*traced())
    assert found[0] > 0.99
    assert found[1] < 0.05
    assert found[2] == 0


def slow_active_steps(recipe, fixed, x, y):
    """One record, one model, one step at a time."""
    model = started(recipe, Seed(0))
    optimiser = torch.optim.SGD(model.parameters(), lr=recipe.optimiser.rate, momentum=recipe.optimiser.momentum)
    inputs = torch.tensor(np.concatenate([fixed.x, x[None]]))
    labels = torch.tensor(np.append(fixed.y, y))
    count = np.zeros(8)
    for _ in range(recipe.epochs):
        hidden = torch.nn.functional.linear(torch.tensor(x), model[1].weight, model[1].bias)
        count += np.append((hidden > 0).numpy(), [1, 1, 1])
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return count


def test_active_steps_are_those_of_a_slow_loop():
    fixed, more = records(20, 1), records(7, 2)
    wanted = [slow_active_steps(KNOWN, fixed, x, y) for x, y in zip(more.x, more.y, strict=True)]
    np.testing.assert_array_equal(active_steps(KNOWN, fixed, more), wanted)
    assert 0 < np.mean(wanted) < KNOWN.epochs


def test_what_leads_into_a_unit_shares_its_count():
    fixed, more = records(20, 1), records(7, 2)
    found = Gates(KNOWN, fixed)(np.zeros((7, 53)), more)
    counts = active_steps(KNOWN, fixed, more).mean(0)
    np.testing.assert_array_equal(found[:30].reshape(5, 6), np.repeat(counts[:5, None], 6, 1))
    np.testing.assert_array_equal(found[30:35], counts[:5])
    np.testing.assert_array_equal(found[35:], np.full(18, KNOWN.epochs))


def test_a_unit_that_is_never_active_is_of_no_importance():
    start = started(RECIPE, Seed(3)).state_dict()
    start["1.weight"][2], start["1.bias"][2] = 0.0, -1.0
    found = Gates(replace(RECIPE, start=Given(start)), records(20, 1))(np.zeros((7, 53)), records(7, 2))
    assert not found[12:18].any()
    assert found[32] == 0


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (replace(KNOWN, sampler=Batches(4)), "every step sees every record"),
        (replace(RECIPE, build=MLP(inputs=6, classes=3, width=5, activation="elu")), "alternate with ReLU, got ELU"),
    ],
)
def test_gates_are_only_counted_where_there_are_gates(recipe, told):
    with pytest.raises(ValueError, match=told):
        active_steps(recipe, records(20, 1), records(2, 2))


def test_the_fewest_that_hold_the_share_are_selected():
    weight = np.array([0.1, 0.5, 0.0, 0.4])
    assert selected(weight, 0.5).tolist() == [False, True, False, False]
    assert selected(weight, 0.51).tolist() == [False, True, False, True]
    assert selected(weight, 0.9).tolist() == [False, True, False, True]
    assert selected(weight, 0.95).tolist() == [True, True, False, True]
    with pytest.raises(ValueError, match="no parameter is of any importance"):
        selected(np.zeros(3), 0.5)


def test_the_control_is_as_large_and_drawn_evenly():
    chosen, among = np.arange(40) < 10, np.arange(40) < 30
    drawn = np.array([at_random(chosen, among, Seed(k)) for k in range(400)])
    assert (drawn.sum(1) == 10).all()
    assert not drawn[:, 30:].any()
    assert abs(drawn[:, :10].mean() - 1 / 3) < 0.03  # 8 standard deviations of its mean


def test_by_row_all_that_leads_into_a_unit_is_kept_or_dropped_together():
    unit = units(RECIPE)
    assert len(unit) == 6 * 5 + 5 + 5 * 3 + 3
    assert unit[:6].tolist() == [0] * 6
    assert unit[30:35].tolist() == [0, 1, 2, 3, 4]
    assert unit[-3:].tolist() == [5, 6, 7]
    weight = by_row(np.arange(53.0), unit)
    assert weight[0] == pytest.approx((0 + 1 + 2 + 3 + 4 + 5 + 30) / 7)
    assert len(np.unique(weight)) == 8
