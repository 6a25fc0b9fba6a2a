from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gradients import batch, handle, seen

from engram.access import Unknown
from engram.attacks.deep_leakage import DeepLeakage
from engram.attacks.inverting_gradients import InvertingGradients, unlike, variation
from engram.matching import Matcher, apart
from engram.measure.recovery import error, matched
from engram.minimise import Minimum
from engram.models import MLP, LeNet
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


def test_the_network_of_the_paper_on_pictures_of_full_size():
    """Three seeds; the hundred are in benchmarks/gradient_leakage.py. Grey, to be quick."""
    recipe = Recipe(LeNet(channels=1, size=16, classes=5))
    for seed in range(3):
        records = batch(1, (1, 16, 16), seed=seed)
        said = DeepLeakage()(seen(recipe, records, seed=seed), seed=Seed(seed))
        assert worst(said, records) < 1e-12
        assert said.labels.tolist() == records.y.tolist()


def test_a_start_that_ends_short_is_followed_by_the_next():
    records = batch(2)
    handle_ = seen(SMOOTH, records)
    good = DeepLeakage(restarts=1)._started(handle_, 2, Seed(0))[0]
    flat = Minimum(torch.cat([torch.full_like(good, 1e3), good]), torch.tensor([0.1, 0.2], dtype=good.dtype), 0, 0)
    model, weights, told = handle_.exact()
    y = torch.as_tensor(sorted(records.y))[None]
    matcher = Matcher(model, handle_.loss, weights)
    found = DeepLeakage()._refined(
        lambda z: apart(matcher(z.view(len(z), 2, 12), y.expand(len(z), -1)), told), flat, iter(range(2000))
    )
    assert int(found.costs.argmin()) == 1
    assert float(found.costs.min()) < 1e-18


def test_a_batch_of_more_numbers_than_the_update_tells_is_refused_with_the_limit():
    """A network of two units: 12 x 2 + 2 + 2 x 5 + 5 = 41 numbers, all of which can differ freely from two records on."""
    recipe = Recipe(MLP(inputs=12, classes=5, width=2, activation="sigmoid"))
    with pytest.raises(Unknown, match=r"4 records have 48 numbers, and at most 41 .* answers up to 3 of these records"):
        DeepLeakage()(seen(recipe, batch(4)), seed=Seed(0))
    DeepLeakage(steps=2)(seen(recipe, batch(3)), seed=Seed(0))


class Normed(torch.nn.Sequential):
    """A smooth network that normalises what it is given over the batch."""

    def __init__(self):
        super().__init__(
            torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.Sigmoid(), torch.nn.Flatten(),
            torch.nn.Linear(4 * 36, 5),
        )  # fmt: skip


def test_what_batch_norm_saw_brings_the_guess_nearer_and_a_lie_about_it_does_not():
    """The cost of the true batch is zero in both parts; statistics of other records pull away from it."""
    recipe, records = Recipe(Normed), batch(2, (1, 6, 6))
    model = started(recipe, Seed(0)).train()
    told = seen(recipe, records, model=model, normalised=True)
    attack = InvertingGradients(steps=60, smoothness=0.0, statistics=1.0)
    near = attack(told, seed=Seed(0))
    false = replace(told.update, statistics=tuple(5 * t + 1 for t in told.update.statistics))
    far = attack(handle(recipe, model, false, records), seed=Seed(0))
    assert error(near.guesses[matched(near.guesses, records.x)], records.x).mean() < worst(far, records)


def test_statistics_are_unlike_by_their_relative_distance():
    seen_, made = [torch.tensor([3.0, 4.0])], [torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 0.0]])]
    assert unlike(made, seen_).tolist() == [0, 1, 1]
