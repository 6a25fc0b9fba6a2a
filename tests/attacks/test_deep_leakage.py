from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gradients import batch, handle, seen

from engram.access import Unknown
from engram.attacks.deep_leakage import DeepLeakage
from engram.attacks.inverting_gradients import InvertingGradients, variation
from engram.measure.recovery import error, matched
from engram.models import MLP
from engram.seed import Seed
from engram.train import Recipe, Update
from engram.train.loop import started

SMOOTH = Recipe(MLP(inputs=12, classes=5, width=32, activation="sigmoid"))


def worst(said, records):
    return error(said.guesses[matched(said.guesses, records.x)], records.x).max()


@pytest.mark.parametrize("labels", ["first", "joint"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_smooth_network_gives_its_batch_away(size, labels):
    records = batch(size)
    said = DeepLeakage(steps=800, labels=labels, restarts=3)(seen(SMOOTH, records), seed=Seed(0))
    assert worst(said, records) < 1e-12
    assert said.certificates.max() < 1e-8
    assert sorted(said.labels) == sorted(records.y)


def test_records_may_take_turns():
    records = batch(2)
    said = DeepLeakage(steps=600, order="turns")(seen(SMOOTH, records), seed=Seed(0))
    assert worst(said, records) < 1e-8


def test_local_steps_are_played_again():
    records = batch(2)
    said = DeepLeakage(steps=800)(seen(SMOOTH, records, rate=0.5, steps=3), seed=Seed(0))
    assert worst(said, records) < 1e-8


def test_local_steps_are_not_one_gradient():
    """The control: whoever takes the weight difference for a gradient explains less of it."""
    records = batch(2)
    told = seen(SMOOTH, records, rate=5.0, steps=8)
    wrong = handle(SMOOTH, told.model, Update(told.update.gradient, 2), records)
    assert DeepLeakage(steps=300)(wrong, seed=Seed(0)).certificates.min() > 1e-4


def test_single_precision_is_enough():
    records = batch(2)
    said = DeepLeakage(steps=800)(seen(SMOOTH, records, dtype=torch.float32), seed=Seed(0))
    assert worst(said, records) < 1e-6


def noise_like(told, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return tuple(t.std() * torch.randn(t.shape, generator=stream, dtype=t.dtype) for t in told)


@pytest.mark.parametrize("attack", [DeepLeakage(steps=200), InvertingGradients(steps=200)])
def test_pure_noise_recovers_nothing_and_the_certificate_says_so(attack):
    records = batch(2)
    told = seen(SMOOTH, records)
    said = attack(handle(SMOOTH, told.model, Update(noise_like(told.update.tensors), 2), records), seed=Seed(0))
    assert worst(said, records) > 0.02
    assert said.certificates.min() > 0.1


@pytest.mark.parametrize("attack", [DeepLeakage(steps=600), InvertingGradients(steps=200)])
def test_the_gradient_of_another_model_recovers_nothing_and_the_certificate_says_so(attack):
    records = batch(2)
    told = seen(SMOOTH, records)
    said = attack(handle(SMOOTH, started(SMOOTH, Seed(9)), told.update, records), seed=Seed(0))
    assert worst(said, records) > 1e-3
    assert said.certificates.min() > 1e-3


def test_a_network_with_kinks_is_named_in_the_evidence():
    relu = Recipe(MLP(inputs=12, classes=5, width=16))
    attack = DeepLeakage(steps=3)
    assert "kinks" in attack(seen(relu, batch(1)), seed=Seed(0)).variant
    assert "kinks" not in attack(seen(SMOOTH, batch(1)), seed=Seed(0)).variant


def test_a_direction_is_enough_to_come_near():
    """The cosine forgets the gradient's length, so this also holds for a loss that is scaled on one side."""
    records = batch(1, seed=3)
    told = seen(SMOOTH, records)
    scaled = handle(SMOOTH, told.model, Update(tuple(7 * t for t in told.update.tensors), 1), records)
    said = InvertingGradients(steps=600, smoothness=0.0)(scaled, seed=Seed(0))
    assert worst(said, records) < 1e-3


def test_variation_is_that_of_neighbours():
    stripes = torch.tensor([[0.0, 1.0], [0.0, 1.0]]).view(1, 1, 1, 2, 2)
    assert variation(stripes).item() == 1.0
    assert variation(torch.rand(3, 4, 12)).tolist() == [0, 0, 0]


def test_the_size_of_the_batch_must_be_known():
    told = seen(SMOOTH, batch(2))
    unknown = handle(SMOOTH, told.model, replace(told.update, batch=None), batch(2))
    for attack in (DeepLeakage(), InvertingGradients()):
        with pytest.raises(Unknown, match="set the knob batch"):
            attack(unknown, seed=Seed(0))
    assert len(DeepLeakage(steps=2, batch=2)(unknown, seed=Seed(0)).guesses) == 2


def test_knobs_are_checked():
    with pytest.raises(ValueError, match="did you mean joint"):
        DeepLeakage(labels="joined")
    with pytest.raises(ValueError, match="restarts must be at least 1"):
        DeepLeakage(restarts=0)
    assert np.isfinite(DeepLeakage().enough)
