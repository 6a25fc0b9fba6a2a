from __future__ import annotations

import pytest
import torch
from gradients import batch, handle, seen
from torch import nn

from engram.access import Unknown
from engram.attacks.recursive import Recursive
from engram.models import MLP, LeNet, SmallCNN
from engram.seed import Seed
from engram.train import Recipe, Update
from engram.train.loop import started

SMALL = Recipe(LeNet(channels=1, size=8, classes=5))


def test_the_network_of_the_paper_gives_its_record_away_to_rounding():
    """Three seeds here; the hundred are in benchmarks/gradient_leakage.py."""
    for seed in range(3):
        records = batch(1, (1, 8, 8), seed=seed)
        said = Recursive()(seen(SMALL, records, seed=seed), seed=Seed(0))
        assert ((said.guesses - records.x) ** 2).mean() < 1e-16
        assert said.certificates.max() < 1e-9
        assert said.labels.tolist() == records.y.tolist()


def test_single_precision_is_enough():
    records = batch(1, (1, 8, 8))
    said = Recursive()(seen(SMALL, records, dtype=torch.float32), seed=Seed(0))
    assert ((said.guesses - records.x) ** 2).mean() < 1e-6


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu", "sigmoid"])
def test_linear_networks_are_inverted_too(activation):
    recipe = Recipe(MLP(inputs=12, classes=5, width=20, depth=2, activation=activation))
    records = batch(1)
    said = Recursive()(seen(recipe, records), seed=Seed(0))
    assert ((said.guesses - records.x) ** 2).mean() < 1e-12


def noisy(told, amount):
    stream = torch.Generator().manual_seed(0)
    parts = told.update.tensors
    return Update(tuple(t + amount * t.std() * torch.randn(t.shape, generator=stream, dtype=t.dtype) for t in parts), 1)


def test_a_little_noise_shows_in_the_record_and_in_the_certificate():
    records = batch(1, (1, 8, 8))
    told = seen(SMALL, records)
    said = Recursive()(handle(SMALL, told.model, noisy(told, 1e-6), records), seed=Seed(0))
    assert said.certificates.min() > 1e-7
    assert ((said.guesses - records.x) ** 2).mean() > 1e-14


def test_much_noise_is_refused():
    records = batch(1, (1, 8, 8))
    told = seen(SMALL, records)
    with pytest.raises(Unknown, match="it was altered"):
        Recursive()(handle(SMALL, told.model, noisy(told, 0.3), records), seed=Seed(0))


def test_the_update_of_another_model_is_refused():
    records = batch(1, (1, 8, 8))
    told = seen(SMALL, records)
    with pytest.raises(Unknown, match="of another model"):
        Recursive()(handle(SMALL, started(SMALL, Seed(9)), told.update, records), seed=Seed(0))


@pytest.mark.parametrize(
    ("recipe", "size", "shape", "told"),
    [
        (SMALL, 2, (1, 8, 8), "answers one record, the update is of 2"),
        (Recipe(SmallCNN(classes=5)), 1, (1, 8, 8), "cannot invert a ReLU"),
        (Recipe(lambda: nn.Sequential(nn.Linear(12, 5, bias=False))), 1, (12,), "last linear layer with a bias"),
        (Recipe(LeNet(channels=3, size=64, classes=5)), 1, (3, 64, 64), "answers up to 6000"),
        (Recipe(MLP(inputs=12, classes=5)), 1, (12,), "cannot invert a ReLU"),
    ],
)
def test_what_it_cannot_invert_is_refused(recipe, size, shape, told):
    with pytest.raises(Unknown, match=told):
        Recursive()(seen(recipe, batch(size, shape)), seed=Seed(0))
