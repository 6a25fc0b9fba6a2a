from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engram.data import dataset
from engram.models import MLP, SmallCNN
from engram.seed import Seed
from engram.train import SGD, Adam, Batches, CrossEntropy, Drops, Fresh, FullBatch, Given, Patience, Recipe, fit
from engram.train.loop import started
from engram.train.unrolled import Unrolled, shares

TABLE = Recipe(MLP(inputs=6, classes=3, width=5, activation="elu"), epochs=12, sampler=FullBatch())
IMAGES = Recipe(SmallCNN(size=8, width=2), epochs=3, sampler=FullBatch())
OPTIMISERS = [
    SGD(0.2),
    SGD(0.2, momentum=0.9),
    SGD(0.1, momentum=0.8, weight_decay=0.01, nesterov=True),
    SGD(0.2, momentum=0.5, weight_decay=0.02, schedule=Drops()),
]


def known(recipe, seed=3):
    return replace(recipe, start=Given(started(replace(recipe, start=Fresh()), Seed(seed)).state_dict()))


def records(n, shape=(6,), classes=3, seed=0):
    stream = np.random.default_rng(seed)
    return dataset(stream.normal(size=(n, *shape)).astype(np.float32), stream.integers(0, classes, n))


def unrolled(recipe, data, **how):
    return Unrolled(known(recipe), data.take(range(len(data) - 1)), **how)


def last(data, dtype=torch.float64):
    return torch.as_tensor(data.x[-1:]).to(dtype), torch.as_tensor(data.y[-1:])


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize(("recipe", "shape"), [(TABLE, (6,)), (IMAGES, (1, 8, 8))])
def test_the_run_is_that_of_the_training_loop(recipe, shape, optimiser):
    recipe, data = replace(recipe, optimiser=optimiser), records(20, shape)
    run = unrolled(recipe, data, dtype=torch.float32)
    made = run.named(run(*last(data))[0])
    module = fit(known(recipe), data, seed=Seed(9))
    for name, w in module.named_parameters():
        torch.testing.assert_close(made[name], w.detach(), rtol=2e-5, atol=2e-6, msg=name)


def by_hand(recipe, data, x, y):
    """The run by torch's own optimiser and one graph through nothing: float64, the record appended."""
    module = started(known(recipe), Seed(0)).double()
    s = recipe.optimiser
    sgd = torch.optim.SGD(module.parameters(), s.rate, s.momentum, weight_decay=s.weight_decay, nesterov=s.nesterov)
    xs = torch.cat([torch.as_tensor(data.x[:-1]).double(), x])
    ys = torch.cat([torch.as_tensor(data.y[:-1]), y])
    for epoch in range(recipe.epochs):
        sgd.param_groups[0]["lr"] = s.rate * (s.schedule(epoch / recipe.epochs) if s.schedule else 1)
        sgd.zero_grad()
        nn.functional.cross_entropy(module(xs), ys).backward()
        sgd.step()
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_run_in_float64_agrees_to_rounding(optimiser):
    recipe, data = replace(TABLE, optimiser=optimiser), records(20)
    x, y = last(data)
    torch.testing.assert_close(unrolled(recipe, data)(x, y)[0], by_hand(recipe, data, x, y), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_derivatives_are_those_of_differences(optimiser):
    recipe, data = replace(TABLE, optimiser=optimiser), records(20)
    run, (x, y) = unrolled(recipe, data), last(data)
    stream = torch.Generator().manual_seed(1)
    dx, out = torch.randn(x.shape, generator=stream).double(), torch.randn(len(run.start), generator=stream).double()
    h = 1e-6
    apart = (by_hand(recipe, data, x + h * dx, y) - by_hand(recipe, data, x - h * dx, y)) / (2 * h)
    end, pushed = run.pushed(x, y, dx)
    torch.testing.assert_close(pushed[0], apart, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(end, run(x, y), rtol=0, atol=0)
    (pulled,) = torch.autograd.grad(run(x.requires_grad_(), y), x, out[None])
    torch.testing.assert_close((pulled * dx).sum(), out @ pushed[0], rtol=1e-10, atol=0)


def test_guesses_do_not_depend_on_each_other():
    recipe, data = replace(TABLE, optimiser=OPTIMISERS[1]), records(20)
    run = unrolled(recipe, data)
    x, y = torch.as_tensor(data.x[:4]).double().requires_grad_(), torch.as_tensor(data.y[:4])
    together = run(x, y)
    (pulled,) = torch.autograd.grad(together.sum(), x)
    for k in range(4):
        one = x[k : k + 1].detach().requires_grad_()
        alone = run(one, y[k : k + 1])
        torch.testing.assert_close(together[k], alone[0], rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(pulled[k], torch.autograd.grad(alone.sum(), one)[0][0], rtol=1e-9, atol=1e-13)


def test_a_certain_share_is_its_label_and_shares_have_a_slope():
    recipe, data = replace(TABLE, optimiser=OPTIMISERS[1], loss=CrossEntropy(0.1)), records(20)
    run, (x, y) = unrolled(recipe, data), last(data)
    soft = nn.functional.one_hot(y, 3).double().requires_grad_()
    torch.testing.assert_close(run(x, soft), run(x, y), rtol=1e-12, atol=1e-14)
    out, h = torch.randn(len(run.start), generator=torch.Generator().manual_seed(2)).double(), 1e-6
    (slope,) = torch.autograd.grad(run(x, soft), soft, out[None])
    step = torch.tensor([[h, -2 * h, h]]).double()
    apart = ((run(x, soft + step) - run(x, soft - step)) @ out).item() / 2
    assert abs(apart) > 1e-12
    assert (slope * step).sum().item() == pytest.approx(apart, rel=1e-6)


def test_memory_does_not_grow_with_the_records():
    """What is kept for the way back: one row of weights a step and guess."""
    recipe, data = replace(TABLE, optimiser=OPTIMISERS[1]), records(200)
    x, y = last(data)
    end = unrolled(recipe, data)(x.requires_grad_(), y)
    assert sum(w.numel() for w in end.grad_fn.path) == recipe.epochs * end.shape[1]


class Noisy(nn.Sequential):
    def __init__(self, layer):
        super().__init__(nn.Linear(6, 4), layer, nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"start": Fresh()}, "Given"),
        ({"optimiser": Adam()}, "SGD"),
        ({"sampler": Batches(4)}, "FullBatch"),
        ({"stop": Patience()}, "early stopping"),
        ({"before": (torch.abs,)}, "augmentation"),
        ({"build": lambda: Noisy(nn.BatchNorm1d(4))}, "BatchNorm1d"),
        ({"build": lambda: Noisy(nn.Dropout(0.5))}, "Dropout"),
    ],
)
def test_what_cannot_be_repeated_is_refused_by_name(changes, named):
    recipe = replace(TABLE, optimiser=OPTIMISERS[0])
    recipe = replace(known(replace(recipe, build=changes.pop("build", recipe.build))), **changes)
    with pytest.raises(ValueError, match=named):
        Unrolled(recipe, records(10))


def test_tokens_are_refused():
    tokens = dataset(np.arange(60).reshape(10, 6) % 5, np.arange(10) % 3)
    with pytest.raises(ValueError, match="int64"):
        Unrolled(known(replace(TABLE, optimiser=OPTIMISERS[0])), tokens)


def test_smoothed_labels_are_shares_of_the_classes():
    recipe, data = replace(TABLE, optimiser=OPTIMISERS[1]), records(20)
    x, y = last(data)
    w = torch.randn(1, len(unrolled(recipe, data).start), generator=torch.Generator().manual_seed(0)).double()
    smoothed = unrolled(replace(recipe, loss=CrossEntropy(0.3)), data)
    soft = 0.7 * nn.functional.one_hot(y, 3).double() + 0.1
    models = smoothed.wearing(w)
    torch.testing.assert_close(
        shares(CrossEntropy(), models(x[:, None]), soft[:, None]),
        shares(CrossEntropy(0.3), models(x[:, None]), y[:, None]),
    )
