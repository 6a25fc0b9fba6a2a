from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from engram.data import dataset
from engram.models import MLP
from engram.seed import Seed
from engram.train import Adam, Batches, Cosine, Fresh, FullBatch, Given, Patience, Plain, Recipe, fit, fit_many
from engram.train.loop import started

RECIPE = Recipe(MLP(inputs=5, classes=3, width=16), epochs=30, optimiser=Adam(0.01), sampler=Batches(8))


def records(n=60, seed=0):
    stream = np.random.default_rng(seed)
    x = stream.normal(size=(n, 5)).astype(np.float32)
    return dataset(x, x[:, :3].argmax(1))


def test_it_learns():
    data = records(200)
    model = fit(RECIPE, data, seed=Seed(0))
    assert not model.training
    right = (model(torch.tensor(data.x)).argmax(1).numpy() == data.y).mean()
    assert right > 0.95


def test_it_is_the_textbook_loop():
    """The same numbers as torch's own optimiser on torch's own loss, batch by batch."""
    data, seed = records(), Seed(4)
    recipe = replace(RECIPE, epochs=3)
    model, stream = started(recipe, seed), seed.child("batches").numpy()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    x, y = torch.tensor(data.x), torch.tensor(data.y)
    for _ in range(3):
        order = stream.permutation(60)
        for start in range(0, 60, 8):
            batch = order[start : start + 8]
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    ours = fit(recipe, data, seed=seed).state_dict()
    for name, w in model.state_dict().items():
        torch.testing.assert_close(ours[name], w, rtol=1e-5, atol=1e-6)


def test_the_same_seed_trains_the_same_model_and_another_another():
    data = records()
    a, b, c = (fit(RECIPE, data, seed=Seed(s)).state_dict() for s in (1, 1, 2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)


def test_the_global_random_state_is_left_as_it_was():
    before = torch.get_rng_state()
    fit(replace(RECIPE, build=MLP(inputs=5, classes=3, dropout=0.5)), records(), seed=Seed(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_given_weights_are_where_it_starts():
    weights = {name: torch.full_like(w, 0.25) for name, w in RECIPE.build().state_dict().items()}
    model = fit(replace(RECIPE, start=Given(weights), epochs=0), records(), seed=Seed(0))
    assert all((w == 0.25).all() for w in model.state_dict().values())
    assert isinstance(RECIPE.start, Fresh)


def test_a_schedule_reaches_the_optimiser():
    """Half a cosine: the last epoch of a long training moves little, without a schedule it moves on."""
    data, moved = records(), {}
    for schedule in (None, Cosine()):
        recipe = replace(RECIPE, optimiser=Adam(0.05, schedule=schedule), sampler=FullBatch(), epochs=40)
        last = Kept([])
        fit(replace(recipe, step=last), data, seed=Seed(0))
        moved[schedule] = float((last.values[-1] - last.values[-2]).abs().max())
    assert moved[Cosine()] < 0.1 * moved[None]
    assert [Cosine()(t) for t in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0])


@dataclass(frozen=True)
class Kept:
    """The plain step; keeps the weights after each."""

    values: list
    beside: ClassVar[float] = 0.0

    def __call__(self, training):
        plain = Plain()(training)

        def take(batch):
            plain(batch)
            self.values.append(training.models.flat.values.detach().clone())

        return take


def test_patience_keeps_the_best_and_never_trains_on_what_it_held_out():
    stream = np.random.default_rng(0)
    noise = dataset(stream.normal(size=(60, 5)).astype(np.float32), stream.integers(0, 3, 60))
    patient = replace(RECIPE, epochs=200, stop=Patience(3, 0.25))
    stopped, driven = (fit(r, noise, seed=Seed(0)) for r in (patient, replace(patient, stop=None)))
    x, y = torch.tensor(noise.x), torch.tensor(noise.y)
    by_heart = (driven(x).argmax(1) == y).float().mean()
    assert by_heart == 1.0  # without patience, noise is learned by heart
    assert (stopped(x).argmax(1) == y).float().mean() < 0.9


def test_what_is_done_before_is_done_to_every_batch():
    seen = []

    def blank(x):
        seen.append(x.shape)
        return x * 0

    model = fit(replace(RECIPE, before=(blank,), epochs=2), records(), seed=Seed(0))
    assert len(seen) == 2 * 8
    first = dict(model.named_parameters())["1.weight"]
    assert torch.equal(first, started(RECIPE, Seed(0))[1].weight)  # no record, no gradient of the first layer


@dataclass(frozen=True)
class Counting:
    """A step that only looks."""

    seen: list
    beside: ClassVar[float] = 0.25

    def __call__(self, training):
        x, _, _ = training.beside
        return lambda batch: self.seen.append((batch.epoch, batch.x.shape, x.shape, batch.y.shape))


def test_a_step_gets_every_batch_and_the_records_it_asked_to_have_held_out():
    seen = []
    fit_many(
        replace(RECIPE, step=Counting(seen), epochs=2), records(), np.arange(40)[None].repeat(2, 0), [Seed(0), Seed(1)]
    )
    assert [epoch for epoch, *_ in seen] == [0] * 4 + [1] * 4
    assert sum(x[1] for _, x, _, _ in seen) == 2 * 30  # a quarter is beside
    assert {beside for _, _, beside, _ in seen} == {(2, 10, 5)}


def test_a_model_without_records_is_refused():
    with pytest.raises(ValueError, match="at least one training record"):
        fit_many(RECIPE, records(), np.zeros((1, 0), int), [Seed(0)])
    with pytest.raises(ValueError, match="too few to hold some out"):
        fit(replace(RECIPE, stop=Patience(1, 0.9)), records(1), seed=Seed(0))


@pytest.mark.parametrize(
    ("knobs", "told"),
    [({"epochs": -1}, "epochs must be at least 0"), ({"build": 3}, "build must be callable")],
)
def test_a_recipe_that_cannot_be_played_is_refused(knobs, told):
    with pytest.raises((ValueError, TypeError), match=told):
        Recipe(**{"build": RECIPE.build, **knobs})
