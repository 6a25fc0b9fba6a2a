from __future__ import annotations

import numpy as np
import pytest
import torch
from gradients import batch, seen
from oracles.leakage import distance

from engram.matching import Matcher, counted_labels, kinks, met, numbers_told, squared, turned
from engram.models import MLP, SmallCNN
from engram.seed import Seed
from engram.train import Recipe
from engram.train.loop import started

RECIPE = Recipe(MLP(inputs=12, classes=5, width=16, activation="sigmoid"))


def test_many_guesses_at_once_cost_what_the_paper_says_of_each():
    handle = seen(RECIPE, batch())
    model, weights, told = handle.exact()
    x = torch.randn(3, 4, 12, dtype=torch.float64)
    soft = torch.randn(3, 4, 5, dtype=torch.float64).softmax(-1)
    made = squared(Matcher(model, handle.loss, weights)(x, soft), [t[None] for t in told])
    for k in range(3):
        assert made[k].item() == pytest.approx(distance(model, x[k], soft[k], told), rel=1e-10)


def test_stacked_weights_give_each_problem_its_own_model():
    handles = [seen(RECIPE, batch(seed=s), seed=s) for s in (0, 1)]
    parts = [h.exact() for h in handles]
    weights = {name: torch.stack([w[name] for _, w, _ in parts]) for name in parts[0][1]}
    told = [torch.stack(pair) for pair in zip(*(t for _, _, t in parts), strict=True)]
    records = [batch(seed=s) for s in (0, 1)]
    x = torch.tensor(np.stack([r.x for r in records])).double()
    y = torch.tensor(np.stack([r.y for r in records]))
    made = Matcher(parts[0][0], RECIPE.loss, weights, stacked=True)(x, y)
    assert squared(made, told).max() < 1e-24
    assert squared(made, [t.flip(0) for t in told]).min() > 1e-3


def test_the_angle_forgets_the_length():
    a = [torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)]
    assert turned(a, [3 * t for t in a]).abs().max() < 1e-12
    torch.testing.assert_close(turned(a, [-t for t in a]), torch.full((2,), 2.0, dtype=torch.float64))


def test_layers_come_in_the_order_in_which_a_record_meets_them():
    model = started(Recipe(SmallCNN()), Seed(0))
    layers = met(model, (1, 8, 8))
    assert [layer.name for layer in layers] == ["conv1", "conv2", "linear"]
    assert [(layer.weight, layer.bias) for layer in layers] == [(0, 1), (2, 3), (4, 5)]
    assert layers[2].inputs == (128,)
    assert model.training


@pytest.mark.parametrize("records", [1, 4, 8, 16])
def test_labels_of_an_untrained_network_are_counted(records):
    for seed in range(5):
        truth = batch(records, seed=seed)
        handle = seen(RECIPE, truth, seed=seed)
        counts = counted_labels(handle.update, handle.model, handle.shape, records)
        assert counts.tolist() == np.bincount(truth.y, minlength=5).tolist()


def test_labels_of_pure_noise_are_no_better_than_chance():
    """Of 40 batches of one record, five classes: more than 18 right have a chance below one in two thousand."""
    right = 0
    for seed in range(40):
        handle = seen(RECIPE, batch(1, seed=seed), seed=seed)
        stream = torch.Generator().manual_seed(seed)
        for t in handle.update.tensors:
            t.copy_(torch.randn(t.shape, generator=stream, dtype=t.dtype))
        right += int(counted_labels(handle.update, handle.model, handle.shape, 1).argmax() == batch(1, seed=seed).y[0])
    assert right <= 18


def test_kinks_are_seen():
    assert kinks(started(Recipe(MLP()), Seed(0)))
    assert not kinks(started(RECIPE, Seed(0)))


def test_an_update_tells_as_many_numbers_as_its_slope_has_rank():
    """The rank of d update / d (records and mixed labels) cannot exceed it, and with many records reaches it nearly."""
    model = started(RECIPE, Seed(0))
    for records in (1, 2, 3):
        handle = seen(RECIPE, batch(records))
        model, weights, _ = handle.exact()
        x = torch.randn(records, 12, dtype=torch.float64)
        made = Matcher(model, handle.loss, weights)
        y = torch.as_tensor(batch(records).y)
        slope = torch.autograd.functional.jacobian(
            lambda at, y=y, made=made: torch.cat([t.flatten() for t in made(at[None], y[None])]), x
        )
        rank = int(torch.linalg.matrix_rank(slope.flatten(1)))
        assert rank == 12 * records <= numbers_told(model, (12,), records)
    assert numbers_told(model, (12,), 100) == sum(p.numel() for p in model.parameters())
    assert numbers_told(model, (12,), 1) == (12 + 16 - 1) + 16 + (16 + 5 - 1) + 5
