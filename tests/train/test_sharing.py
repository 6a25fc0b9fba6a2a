from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gradients import batch, seen

from engram.models import MLP, ResNet20
from engram.seed import Seed
from engram.train import SGD, CrossEntropy, FullBatch, Recipe, Update, fit, shared, summed
from engram.train.loop import started
from engram.train.sharing import passed, statistics, trainable

RECIPE = Recipe(MLP(inputs=12, classes=5, width=16))


def halved(tensors):
    return [t / 2 for t in tensors]


def noisy(tensors):
    return [t + torch.randn_like(t) for t in tensors]


def test_a_gradient_is_that_of_the_mean_loss():
    records, model = batch(), started(RECIPE, Seed(0))
    loss = torch.nn.functional.cross_entropy(model(torch.as_tensor(records.x)), torch.as_tensor(records.y))
    expected = torch.autograd.grad(loss, list(model.parameters()))
    made = shared(RECIPE, model, records, seed=Seed(0))
    assert made.batch == 4
    for a, b in zip(made.tensors, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_local_steps_end_where_training_ends():
    recipe = replace(RECIPE, epochs=3, optimiser=SGD(0.1), sampler=FullBatch())
    records, model = batch(), started(recipe, Seed(0))
    trained = fit(recipe, records, seed=Seed(0))
    made = shared(recipe, model, records, seed=Seed(0), rate=0.1, steps=3)
    for before, change, after in zip(model.parameters(), made.tensors, trained.parameters(), strict=True):
        torch.testing.assert_close(before + change, after)


def test_one_local_step_gives_the_gradient_back():
    records, model = batch(), started(RECIPE, Seed(0))
    told, step = (shared(RECIPE, model, records, seed=Seed(0), rate=rate) for rate in (None, 0.5))
    for a, b in zip(told.gradient, step.gradient, strict=True):
        torch.testing.assert_close(a, b)


def test_the_true_batch_costs_nothing_and_another_does():
    for local in ({}, {"rate": 0.1, "steps": 4}):
        records = batch()
        handle = seen(RECIPE, records, **local)
        x, y = torch.as_tensor(records.x), torch.as_tensor(records.y)
        assert handle.unexplained(x, y) < 1e-12
        assert handle.unexplained(x.flip(0), y.flip(0)) < 1e-12
        assert max(handle.residual(x, y)) < 1e-12
        assert handle.unexplained(x + 0.01, y) > 1e-4


def test_a_loss_that_is_scaled_on_one_side_is_seen():
    """The self-test that other tools lack: the gradient of half the loss looks like that of another batch."""
    records = batch()
    handle = seen(replace(RECIPE, share=(halved,)), records)
    assert handle.unexplained(torch.as_tensor(records.x), torch.as_tensor(records.y)) == pytest.approx(1)


def test_shares_of_classes_mix_the_losses_of_the_classes():
    records = batch()
    handle = seen(replace(RECIPE, loss=CrossEntropy(0.1)), records)
    sure = torch.nn.functional.one_hot(torch.as_tensor(records.y), 5).double()
    assert handle.unexplained(torch.as_tensor(records.x), sure) < 1e-12
    assert handle.unexplained(torch.as_tensor(records.x), torch.full_like(sure, 0.2)) > 0.1


def test_what_is_shared_passes_through_the_recipe_and_leaves_the_global_stream():
    records, model, before = batch(), started(RECIPE, Seed(0)), torch.get_rng_state()
    plain = shared(RECIPE, model, records, seed=Seed(0))
    half = shared(replace(RECIPE, share=(halved, halved)), model, records, seed=Seed(0))
    torch.testing.assert_close(half.tensors[0], plain.tensors[0] / 4)
    recipe = replace(RECIPE, share=(noisy,))
    one, same, other = (passed(recipe, plain.tensors, Seed(s)) for s in (1, 1, 2))
    assert torch.equal(one[0], same[0])
    assert not torch.equal(one[0], other[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_in_training_mode_looks_at_its_batch_and_forgets_it():
    recipe = Recipe(ResNet20(classes=5))
    records, model = batch(3, (3, 8, 8)), started(recipe, Seed(0)).train()
    mean = model.bn1.running_mean.clone()
    handle = seen(recipe, records, model=model)
    assert torch.equal(model.bn1.running_mean, mean)
    assert handle.unexplained(torch.as_tensor(records.x), torch.as_tensor(records.y)) < 1e-12


def test_a_sum_of_participants_is_the_gradient_of_all_their_records():
    records, model = batch(6), started(RECIPE, Seed(0))
    parts = [shared(RECIPE, model, records.take(rows), seed=Seed(0)) for rows in (np.arange(4), np.arange(4, 6))]
    whole = shared(RECIPE, model, records, seed=Seed(0))
    assert summed(parts).batch == 6
    for a, b in zip(summed(parts).tensors, whole.tensors, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t[:-1], "has 3 tensors, the model 4"),
        (lambda t: [t[1], *t[1:]], r"1.weight is \(16, 12\), the update has \(16,\)"),
        (lambda t: [*t[:2], t[2] * torch.nan, t[3]], "80 numbers of 3.weight are not"),
    ],
)
def test_an_update_that_does_not_fit_names_the_first_tensor(change, told):
    model = started(RECIPE, Seed(0))
    update = Update(tuple(change(list(shared(RECIPE, model, batch(), seed=Seed(0)).tensors))))
    with pytest.raises(ValueError, match=told):
        update.fits(model)


@pytest.mark.parametrize(
    ("knobs", "told"),
    [({"steps": 2}, "say which, with rate"), ({"rate": 0.0}, "rate must be positive"), ({"batch": 0}, "at least 1")],
)
def test_a_senseless_update_is_refused(knobs, told):
    with pytest.raises(ValueError, match=told):
        Update((torch.zeros(1),), **knobs)


def test_weights_before_and_after_are_an_update_in_any_form():
    records, model = batch(), started(RECIPE, Seed(0))
    told = shared(RECIPE, model, records, seed=Seed(0), rate=0.1, steps=3, dtype=torch.float64)
    before = {name: w.double().numpy() for name, w in trainable(model).items()}
    after = {name: before[name] + t.numpy() for name, t in zip(before, told.tensors, strict=True)}
    backwards = dict(reversed(after.items()))
    for one, other in ((before, backwards), (list(before.values()), list(after.values()))):
        made = Update.between(one, other, rate=0.1, steps=3, batch=4)
        assert (made.rate, made.steps, made.batch) == (0.1, 3, 4)
        for a, b in zip(made.tensors, told.tensors, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([np.zeros(3)], [np.zeros(2)], r"tensor 0 is \(3,\) before and \(2,\) after"),
        ([np.zeros(3)], [np.zeros(3)] * 2, "1 tensors before and 2 after"),
        ({"a": np.zeros(3)}, {"b": np.zeros(3)}, "'a' is in one of them only"),
        ({"a": np.zeros(3)}, [np.zeros(3)], "give both alike"),
    ],
)
def test_weights_that_do_not_belong_together_are_refused(before, after, told):
    with pytest.raises(ValueError, match=told):
        Update.between(before, after, rate=0.1)


def test_what_batch_norm_saw_is_shared_on_request_and_never_under_aggregation():
    recipe = Recipe(ResNet20(classes=5))
    records, model = batch(3, (3, 8, 8)), started(recipe, Seed(0)).train()
    update = shared(recipe, model, records, seed=Seed(0), normalised=True)
    given = model.conv1(torch.as_tensor(records.x))
    torch.testing.assert_close(update.statistics[0], given.mean((0, 2, 3)))
    torch.testing.assert_close(update.statistics[1], given.var((0, 2, 3), unbiased=False))
    assert len(update.statistics) == 2 * 19
    assert shared(recipe, model, records, seed=Seed(0)).statistics == ()
    assert summed([update, update]).statistics == ()
    assert statistics(started(RECIPE, Seed(0)), trainable(started(RECIPE, Seed(0))), torch.zeros(1, 12)) == ()
