from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engram.data import dataset
from engram.models import MLP, SmallCNN
from engram.seed import Seed
from engram.train import SGD, Adam, Batches, FullBatch, Patience, Recipe, Stack, fit_many
from engram.train.loop import started

MODELS = 3
TABLE = Recipe(MLP(inputs=6, classes=3, width=9, depth=2), epochs=4, optimiser=Adam(0.01), sampler=Batches(8))
IMAGES = Recipe(SmallCNN(size=8, width=4), epochs=2, optimiser=SGD(0.05, momentum=0.9), sampler=Batches(16))


class Normalised(nn.Module):
    """Batch normalisation, a parameter used twice, a buffer, and a frozen weight: what stacking may get wrong."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.last = nn.Linear(6, 3)
        self.last.bias.requires_grad_(False)
        self.register_buffer("shift", torch.randn(6))

    def forward(self, x):
        return self.last(self.second(self.norm(self.first(x)).relu()) + self.shift)


def records(recipe, n=40, seed=0):
    stream = np.random.default_rng(seed)
    shape = (1, 8, 8) if recipe.build == IMAGES.build else (6,)
    return dataset(stream.normal(size=(n, *shape)).astype(np.float32), stream.integers(0, 3, n))


def halves(n=40, models=MODELS):
    return np.stack([np.random.default_rng(m).permutation(n)[: n // 2] for m in range(models)])


def apart(recipe, rows, data, tolerance=2e-5):
    """Stacked models against the same models trained one by one; the largest difference must be rounding."""
    seeds = [Seed(0).child("model", m) for m in range(len(rows))]
    many = fit_many(recipe, data, rows, seeds).weights()
    for m, seed in enumerate(seeds):
        alone = fit_many(recipe, data, rows[m : m + 1], [seed], stacked=False).weights()
        assert alone.keys() == many.keys()
        for name, w in alone.items():
            torch.testing.assert_close(many[name][m], w[0], rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.parametrize(
    "recipe",
    [
        TABLE,
        replace(TABLE, sampler=FullBatch()),
        replace(TABLE, stop=Patience(2, 0.2), epochs=12),
        replace(TABLE, optimiser=Adam(0.01, weight_decay=0.1, decoupled=True)),
        IMAGES,
        replace(
            TABLE, build=Normalised, optimiser=SGD(0.05)
        ),  # Adam would blow up the rounding of a bias that a norm cancels
    ],
    ids=["table", "full batch", "patience", "adamw", "images", "normalised, tied, frozen"],
)
def test_stacked_models_equal_models_trained_alone(recipe):
    apart(recipe, halves(), records(recipe))


@pytest.mark.parametrize("width", [8, 70], ids=["one product over all models", "one for each"])
def test_models_that_share_a_full_batch_equal_models_trained_alone(width):
    recipe = replace(TABLE, build=MLP(inputs=6, classes=3, width=width), sampler=FullBatch())
    rows = np.tile(np.arange(20), (MODELS, 1))
    apart(recipe, rows, records(recipe))


def test_shared_and_own_records_give_the_same_outputs():
    recipe = TABLE
    modules = [started(recipe, Seed(m)) for m in range(MODELS)]
    stack = Stack(modules, MODELS)
    x = torch.randn(5, 6)
    alone = torch.stack([module(x) for module in modules])
    torch.testing.assert_close(stack(x, shared=True), alone)
    torch.testing.assert_close(stack(x.expand(MODELS, 5, 6)), alone)


def test_the_last_of_several_dimensions_is_the_linear_one():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))
    stack, x = Stack([module] * 2, 2), torch.randn(3, 7, 4)
    torch.testing.assert_close(stack(x, shared=True)[1], module(x))
    torch.testing.assert_close(stack(x.expand(2, 3, 7, 4))[0], module(x))


def test_models_of_a_stack_do_not_feel_each_other():
    """The gradient of one model's loss leaves the others' at zero."""
    stack = Stack([started(TABLE, Seed(m)) for m in range(MODELS)], MODELS)
    stack.backward(stack(torch.randn(5, 6), shared=True)[1].square().sum())
    for gradient in stack.flat.gradients:
        assert gradient[1].abs().sum() > 0
        assert not gradient[[0, 2]].any()


def test_dropout_differs_between_models():
    build = MLP(inputs=6, classes=3, width=64, dropout=0.5)
    stack = Stack([build()] * 2, 2)
    stack.train(True)
    a, b = stack(torch.randn(4, 6), shared=True)
    assert not torch.allclose(a, b)
    stack.train(False)
    a, b = stack(torch.randn(4, 6), shared=True)
    torch.testing.assert_close(a, b)


def test_a_stack_is_built_from_copies():
    module = started(TABLE, Seed(0))
    before = {name: w.clone() for name, w in module.state_dict().items()}
    stack = Stack([module] * 2, 2)
    stack.flat.values.add_(1.0)
    assert all(torch.equal(w, before[name]) for name, w in module.state_dict().items())
