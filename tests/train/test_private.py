from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn

from engram.data import dataset
from engram.defences import defence
from engram.models import MLP, SmallCNN
from engram.seed import Seed
from engram.train import SGD, Adam, CrossEntropy, Poisson, Private, Recipe, Stack, fit, fit_many
from engram.train.loop import started
from engram.train.private import clipped_sums, ghost_sums, instantiated_sums, squared_norm
from engram.train.steps import Batch

RECIPE = Recipe(MLP(inputs=5, classes=3, width=7), epochs=2, optimiser=SGD(0.5), sampler=Poisson(0.25))
PRIVATE = replace(RECIPE, step=Private(noise_multiplier=1.0, clip_norm=0.1, rate=0.25))


def records(n=40, seed=0):
    stream = np.random.default_rng(seed)
    return dataset(stream.normal(size=(n, 5)).astype(np.float32), stream.integers(0, 3, n))


def by_hand(module, x, y, clip):
    """The sum of clipped gradients, one record after another, in float64."""
    module = module.double()
    total = [torch.zeros_like(p) for p in module.parameters()]
    for i in range(len(x)):
        module.zero_grad()
        nn.functional.cross_entropy(module(x[i : i + 1].double()), y[i : i + 1]).backward()
        grads = [p.grad for p in module.parameters()]
        norm = torch.cat([g.flatten() for g in grads]).norm()
        for t, g in zip(total, grads, strict=True):
            t += g * min(1.0, clip / norm)
    return total


@pytest.mark.parametrize("clip", [0.05, 1.0, 100.0])
@pytest.mark.parametrize("build", [RECIPE.build, SmallCNN(size=8, classes=3, width=2)], ids=["mlp", "cnn"])
def test_sums_are_those_of_a_loop_over_records(build, clip):
    recipe = replace(RECIPE, build=build)
    modules = [started(recipe, Seed(m)) for m in range(2)]
    shape = (5,) if build == RECIPE.build else (1, 8, 8)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 6, *shape, generator=draw), torch.randint(0, 3, (2, 6), generator=draw)
    present = torch.ones(2, 6, dtype=torch.bool)
    present[1, 4:] = False  # the second model drew fewer records
    sums = clipped_sums(Stack(modules, 2), CrossEntropy(), Batch(x, y, False, 0, present), clip)
    for m, there in ((0, 6), (1, 4)):
        for ours, theirs in zip(sums, by_hand(modules[m], x[m, :there], y[m, :there], clip), strict=True):
            torch.testing.assert_close(ours[m].double(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_both_ways_to_clip_agree(shared):
    stack = Stack([started(RECIPE, Seed(m)) for m in range(2)], 2)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=draw) if shared else torch.randn(2, 6, 5, generator=draw)
    batch = Batch(x, torch.randint(0, 3, (2, 6), generator=draw), shared, 0, torch.rand(2, 6, generator=draw) < 0.7)
    ghost, plain = (f(stack, CrossEntropy(), batch, 0.3) for f in (ghost_sums, instantiated_sums))
    for a, b in zip(ghost, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_network_that_is_not_all_linear_is_clipped_record_by_record():
    stack = Stack([started(replace(RECIPE, build=SmallCNN(size=8, classes=3, width=2)), Seed(0))], 1)
    batch = Batch(torch.randn(1, 3, 1, 8, 8), torch.zeros(1, 3, dtype=torch.int64), False, 0)
    assert ghost_sums(stack, CrossEntropy(), batch, 1.0) is None


def test_no_record_moves_the_sum_by_more_than_the_clip_norm():
    module, clip = started(RECIPE, Seed(0)), 0.01
    draw = torch.Generator().manual_seed(0)
    x, y = 100 * torch.randn(1, 50, 5, generator=draw), torch.randint(0, 3, (1, 50), generator=draw)
    for i in range(50):
        only = torch.zeros(1, 50, dtype=torch.bool)
        only[0, i] = True
        sums = clipped_sums(Stack([module], 1), CrossEntropy(), Batch(x, y, False, 0, only), clip)
        assert torch.cat([s.flatten() for s in sums]).double().norm() <= clip


def test_noise_has_the_deviation_it_says():
    """Of untrainable data: every step is noise alone. Accepts the stated scale, rejects 2/3 and 3/2 of it."""
    still = replace(PRIVATE, build=MLP(inputs=5, classes=3, width=200), epochs=1, sampler=Poisson(1.0))
    data, start = records(4), None
    rate, clip, sigma, expected = 0.5, 1e-9, 3e9, 1.0 * 4
    recipe = replace(still, step=Private(sigma, clip, 1.0), optimiser=SGD(rate))
    start = started(recipe, Seed(0)).state_dict()
    end = fit(recipe, data, seed=Seed(0)).state_dict()
    moved = torch.cat([(end[n] - start[n]).flatten() for n in start]).double() / rate * expected
    n, told = len(moved), sigma * clip
    low, high = chi2.ppf([1e-6, 1 - 1e-6], n) / n
    for scale, accepted in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        assert bool(low < float(moved.square().mean()) / (scale * told) ** 2 < high) == accepted


def test_the_divisor_is_the_expected_batch_and_an_empty_batch_is_a_step():
    recipe = replace(PRIVATE, step=Private(0.0, 1e9, 1e-3), sampler=Poisson(1e-3), epochs=1)
    start = started(recipe, Seed(0)).state_dict()
    end = fit(recipe, records(2), seed=Seed(3)).state_dict()  # 1,000 batches of which nearly all are empty
    assert all(torch.isfinite(w).all() for w in end.values())
    assert any(not torch.equal(end[n], start[n]) for n in start)


def test_stacked_private_models_equal_private_models_trained_alone():
    data, rows = records(), np.stack([np.random.default_rng(m).permutation(40)[:20] for m in range(3)])
    seeds = [Seed(0).child("model", m) for m in range(3)]
    many = fit_many(PRIVATE, data, rows, seeds).weights()
    for m, seed in enumerate(seeds):
        alone = fit_many(PRIVATE, data, rows[m : m + 1], [seed], stacked=False).weights()
        for name, w in alone.items():
            torch.testing.assert_close(many[name][m], w[0], rtol=2e-4, atol=2e-4)


def test_simulated_noise_repeats_and_released_noise_does_not():
    data = records()
    a, b = (fit(PRIVATE, data, seed=Seed(0)).state_dict() for _ in range(2))
    c, d = (fit(PRIVATE, data, seed=Seed(0), release=True).state_dict() for _ in range(2))
    assert all(torch.equal(a[n], b[n]) for n in a)
    assert all(not torch.equal(c[n], d[n]) for n in c)


def test_poisson_batches_are_drawn_record_by_record():
    stream = np.random.default_rng(0)
    batches = [p[0][p[0] >= 0] for _ in range(50) for p in Poisson(0.2)([stream], 100)]
    assert len(batches) == 250
    taken = np.bincount(np.concatenate(batches), minlength=100)
    assert 4900 * 0.9 < taken.sum() < 5000 * 1.1
    assert taken.min() > 20  # Binomial(250, 0.2): below that once in 10^6
    sizes = np.array(list(map(len, batches)))
    assert sizes.std() == pytest.approx(4.0, abs=0.8)
    assert all(len(set(b)) == len(b) for b in batches)


def test_epsilon_becomes_just_enough_noise():
    armed = defence("private", {"epsilon": 3.0, "rate": 0.1})(replace(RECIPE, epochs=20))
    assert armed.step.epsilon(20 * 10, 1e-5) == pytest.approx(3.0, rel=1e-4)
    assert armed.step.epsilon(20 * 10, 1e-5) <= 3.0
    assert armed.sampler == Poisson(0.1)


def test_batch_normalisation_is_refused_by_name():
    def normalised():
        return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    with pytest.raises(ValueError, match="1 is a BatchNorm1d, which mixes the records"):
        fit(replace(PRIVATE, build=normalised), records(), seed=Seed(0))


def test_it_learns_what_is_easy_and_forgets_who_taught_it():
    stream = np.random.default_rng(0)
    x = stream.normal(size=(400, 5)).astype(np.float32)
    easy = dataset(x, (x[:, 0] > 0).astype(int))
    recipe = defence("private", {"noise_multiplier": 1.0})(
        Recipe(MLP(inputs=5, classes=2, width=16), epochs=20, optimiser=Adam(0.02))
    )
    model = fit(recipe, easy, seed=Seed(0))
    assert (model(torch.tensor(x)).argmax(1).numpy() == easy.y).mean() > 0.9


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier must be at least 0"),
        ({"noise_multiplier": 1.0, "clip_norm": 0.0}, "clip_norm must be positive"),
        ({"noise_multiplier": 1.0, "rate": 0.0}, "rate must lie in"),
    ],
)
def test_impossible_steps_are_refused(knobs, told):
    with pytest.raises(ValueError, match=told):
        Private(**knobs)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_squared_norms_are_those_of_float64_at_any_scale(scale):
    rows = torch.randn(4, 5, 512, generator=torch.Generator().manual_seed(0)) * scale
    rows[0, 0] = 0.0
    rows[1, 1, 1:] *= 1e-7
    torch.testing.assert_close(squared_norm(rows), rows.double().square().sum(-1), rtol=2e-6, atol=0.0)
