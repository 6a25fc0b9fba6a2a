from __future__ import annotations

import numpy as np
import pytest
import torch
from gradients import batch, handle, seen
from oracles.leakage import spear as slow_spear

from engram.access import Unknown
from engram.attacks.linear_layer import LinearLayer
from engram.attacks.spear import Spear, kernels, pull
from engram.data import dataset
from engram.measure.recovery import error, matched
from engram.models import MLP, SmallCNN
from engram.seed import Seed
from engram.train import Recipe, Update
from engram.train.loop import started

RELU = Recipe(MLP(inputs=60, classes=5, width=80))


def centred(records, inputs=60, seed=0):
    stream = np.random.default_rng(seed)
    names = tuple("abcde")
    return dataset(stream.normal(size=(records, inputs)), stream.integers(0, 5, records), classes=names)


def worst(said, records):
    return np.sqrt(error(said.guesses[matched(said.guesses, records.x)], records.x).max())


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_every_record_of_a_batch_to_rounding(size):
    records = centred(size)
    said = Spear(block=256)(seen(RELU, records), seed=Seed(0))
    assert len(said.guesses) == size
    assert worst(said, records) < 1e-9
    assert said.certificates.tolist() == [0] * size


def test_it_says_what_the_paper_says_of_all_kernels():
    recipe = Recipe(MLP(inputs=20, classes=5, width=14))
    records = centred(3, inputs=20)
    told = seen(recipe, records)
    slow = slow_spear(told.update.tensors[0].numpy(), told.update.tensors[1].numpy(), 3)
    fast = Spear(block=64)(told, seed=Seed(0)).guesses
    np.testing.assert_allclose(fast[matched(fast, slow)], slow, rtol=1e-6, atol=1e-8)


def test_another_model_is_contradicted():
    """The records follow from the gradient alone; only the certificate looks at the weights, and it must object."""
    records = centred(4)
    told = seen(RELU, records)
    said = Spear(draws=512, block=256)(handle(RELU, started(RELU, Seed(9)), told.update, records), seed=Seed(0))
    assert said.certificates.min() > 0.2


def noisy(told, deviation):
    stream = torch.Generator().manual_seed(0)
    size = told.update.tensors[0].std()
    return Update(
        tuple(
            t + deviation * size * torch.randn(t.shape, generator=stream, dtype=t.dtype) for t in told.update.tensors
        ), told.update.batch,
    )  # fmt: skip


def test_noise_leaves_no_clear_rank():
    records = centred(4)
    told = seen(RELU, records)
    with pytest.raises(Unknown, match="no clear rank"):
        Spear()(handle(RELU, told.model, noisy(told, 0.1), records), seed=Seed(0))


def test_a_little_noise_is_borne():
    records = centred(3)
    told = seen(RELU, records)
    said = Spear(draws=2048, block=256)(handle(RELU, told.model, noisy(told, 1e-8), records), seed=Seed(0))
    assert worst(said, records) < 1e-4


def test_equal_records_are_below_the_rank():
    records = centred(4).take([0, 1, 2, 2])
    with pytest.raises(Unknown, match="rank 3, below the 4 records"):
        Spear()(seen(RELU, records), seed=Seed(0))


def test_more_records_than_the_layer_can_tell_are_refused_with_the_limit():
    with pytest.raises(Unknown, match=r"no clear rank|units are alive"):
        Spear()(seen(RELU, centred(100)), seed=Seed(0))
    wide = Recipe(MLP(inputs=90, classes=5, width=90))
    with pytest.raises(Unknown, match="answers batches up to 64"):
        Spear()(seen(wide, centred(70, inputs=90)), seed=Seed(0))


@pytest.mark.parametrize(
    ("recipe", "shape"),
    [
        (Recipe(SmallCNN(classes=5)), (1, 8, 8)),
        (Recipe(MLP(inputs=12, classes=5, activation="sigmoid")), (12,)),
    ],
)
def test_a_network_without_such_a_layer_is_refused(recipe, shape):
    with pytest.raises(Unknown, match=r"followed by"):
        Spear()(seen(recipe, batch(2, shape)), seed=Seed(0))


def test_a_pulled_direction_is_sparser_than_its_start():
    stream = torch.Generator().manual_seed(0)
    sparse = torch.randn(100, 5, generator=stream, dtype=torch.float64).relu()
    rows = sparse @ torch.randn(5, 5, generator=stream, dtype=torch.float64)
    rows = rows[rows.norm(dim=1) > 0]
    rows = rows / rows.norm(dim=1, keepdim=True)
    start = torch.randn(50, 5, generator=stream, dtype=torch.float64)
    start = start / start.norm(dim=1, keepdim=True)
    assert ((pull(rows, start) @ rows.T).abs().sum(1) < (start @ rows.T).abs().sum(1)).double().mean() > 0.9
    q = kernels(rows, torch.arange(4).expand(50, -1), start)
    assert (rows[:4] @ q).abs().max() < 1e-9


def test_a_linear_layer_gives_one_record_away_at_once():
    for recipe in (RELU, Recipe(MLP(inputs=60, classes=5, width=80, activation="tanh"))):
        records = centred(1)
        said = LinearLayer()(seen(recipe, records), seed=Seed(0))
        assert worst(said, records) < 1e-12
        assert len(said.guesses) == 1
        assert said.certificates.max() < 1e-12


def test_of_a_batch_it_gives_those_that_units_met_alone():
    records = centred(3)
    said = LinearLayer()(seen(RELU, records), seed=Seed(0))
    assert worst(said, records) < 1e-10
    assert (said.scores >= 2).all()


def test_units_that_met_several_records_agree_on_nothing():
    smooth = Recipe(MLP(inputs=60, classes=5, width=80, activation="tanh"))
    with pytest.raises(Unknown, match="no two units"):
        LinearLayer()(seen(smooth, centred(2)), seed=Seed(0))


def test_pure_noise_agrees_on_nothing():
    records = centred(1)
    told = seen(RELU, records)
    stream = torch.Generator().manual_seed(0)
    noise = Update(tuple(torch.randn(t.shape, generator=stream, dtype=t.dtype) for t in told.update.tensors), 1)
    with pytest.raises(Unknown, match="no two units"):
        LinearLayer()(handle(RELU, told.model, noise, records), seed=Seed(0))
