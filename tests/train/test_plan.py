from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import engram.train.plan
from engram.data import dataset
from engram.models import MLP, SmallCNN
from engram.train import Batches, FullBatch, Recipe
from engram.train.plan import planned, unstackable

DATA = dataset(np.zeros((50, 6), np.float32), np.arange(50) % 3)
RECIPE = Recipe(MLP(inputs=6, classes=3, width=32), sampler=Batches(10))


def test_a_block_shrinks_with_the_room_and_with_what_a_model_needs(monkeypatch):
    wide = replace(RECIPE, build=MLP(inputs=6, classes=3, width=512))
    full = replace(RECIPE, sampler=FullBatch())
    assert planned(RECIPE, DATA, 25).block > planned(wide, DATA, 25).block > 1
    assert planned(full, DATA, 25).block < planned(RECIPE, DATA, 25).block
    before = planned(RECIPE, DATA, 25).block
    monkeypatch.setattr(engram.train.plan, "CACHE", engram.train.plan.CACHE // 4)
    assert planned(RECIPE, DATA, 25).block in (before // 4, before // 4 - 1, before // 4 + 1)


def test_a_model_that_fills_the_cache_is_trained_alone_and_the_plan_says_why(monkeypatch):
    monkeypatch.setattr(engram.train.plan, "CACHE", 1000)
    plan = planned(RECIPE, DATA, 25)
    assert (plan.block, plan.stacked) == (1, False)
    assert "fills the cache" in plan.reason


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(6, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.cell(x[:, None])[0][:, 0])


def averaging():
    return nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, momentum=None))


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (Recurrent, "cell is a LSTM"),
        (averaging, "1 averages over all batches"),
        (lambda: nn.Linear(6, 3).half(), "not all float32"),
    ],
)
def test_what_cannot_be_stacked_says_why(build, why):
    assert why in unstackable(build())
    assert unstackable(RECIPE.build()) == ""


def test_a_recurrent_recipe_is_planned_one_by_one():
    plan = planned(replace(RECIPE, build=Recurrent), DATA, 25)
    assert not plan.stacked
    assert plan.block == 1


def test_threads_are_those_of_the_plan_and_given_back():
    plan, before = replace(planned(RECIPE, DATA, 25), threads=1), torch.get_num_threads()
    with plan.in_force():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_planning_times_nothing_and_draws_nothing():
    state = torch.get_rng_state()
    assert planned(RECIPE, DATA, 25) == planned(RECIPE, DATA, 25)
    assert torch.equal(torch.get_rng_state(), state)


def test_large_images_are_trained_one_by_one_on_a_processor():
    small, large = (planned(Recipe(SmallCNN(size=s)), images(s), 25) for s in (8, 28))
    assert small.stacked
    assert not large.stacked
    assert "784 pixels fill the cores" in large.reason


def images(size):
    return dataset(np.zeros((50, 1, size, size), np.float32), np.arange(50) % 3)
