from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engram.access import Informed, Knowledge, Lab, Unknown
from engram.access.informed import released
from engram.attacks.inversion import Inversion, Solver, inverted
from engram.chunks.local import Memory
from engram.data import dataset
from engram.models import MLP
from engram.seed import Seed
from engram.train import SGD, Adam, FullBatch, Given, Recipe, fit
from engram.train.loop import started
from engram.train.unrolled import Unrolled

CLASSES, NUMBERS, FIXED, TARGETS = 3, 8, 150, 4
SMALL = Inversion(starts=4, kept=3)


def world(activation="elu", start=3, dtype=torch.float64):
    """Blobs, one a class; the run on the fixed records, and records of the same kind that it has not seen."""
    stream = np.random.default_rng(0)
    centres = stream.normal(size=(CLASSES, NUMBERS))
    y = stream.integers(0, CLASSES, FIXED + TARGETS)
    x = (centres[y] + 0.7 * stream.normal(size=(len(y), NUMBERS))).astype(np.float32)
    recipe = Recipe(MLP(NUMBERS, CLASSES, 6, activation=activation), 40, SGD(0.2, momentum=0.9), FullBatch())
    recipe = replace(recipe, start=Given(started(recipe, Seed(start)).state_dict()))
    data = dataset(x, y)
    return Unrolled(recipe, data.take(range(FIXED)), dtype=dtype), data.take(range(FIXED, len(y))), recipe, data


def told(records):
    return torch.as_tensor(records.x).double(), torch.as_tensor(records.y)


def error(found, x):
    return (found.x - x).square().mean(1)


def nearest(run, x):
    return torch.cdist(x, run.x).square().min(1).values / NUMBERS


def test_the_record_and_its_label_come_back_to_rounding():
    run, unseen, *_ = world()
    x, y = told(unseen)
    found = inverted(run, run(x, y), (run.x, run.y), seed=Seed(0), search=SMALL)
    assert error(found, x).max() < 1e-18
    assert (found.y == y).all()
    assert found.residuals.max() < 1e-9


def test_weights_of_the_training_loop_itself_are_inverted():
    """float32, another order of sums: its rounding is what limits the record."""
    run, unseen, recipe, data = world()
    x, y = told(unseen)
    models = [fit(recipe, data.take([*range(FIXED), FIXED + k]), seed=Seed(9)) for k in range(2)]
    released = torch.stack([run.flat(dict(m.named_parameters())) for m in models])
    found = inverted(run, released, (run.x, run.y), seed=Seed(0), search=SMALL)
    assert error(found, x[:2]).max() < 1e-7
    assert 1e-12 < found.residuals.max() < 1e-3
    assert (found.y == y[:2]).all()


def test_without_the_start_nothing_is_found():
    """The control: the same search, the same weights, another initialisation."""
    run, unseen, *_ = world()
    x, y = told(unseen)
    other, *_ = world(start=4)
    found = inverted(other, run(x, y), (run.x, run.y), seed=Seed(0), search=SMALL)
    assert error(found, x).median() > nearest(run, x).median()
    assert found.residuals.min() > 0.1


def test_weights_of_no_record_are_not_explained():
    """The control of the certificate: noise as large as a record's trace."""
    run, unseen, *_ = world()
    x, y = told(unseen)
    ends = run(x, y)
    noise = torch.randn(ends.shape, generator=torch.Generator().manual_seed(1)).double()
    size = (ends[0] - ends[1]).norm() / noise.norm(dim=1, keepdim=True)
    found = inverted(run, ends[:1] + size * noise, (run.x, run.y), seed=Seed(0), search=SMALL)
    assert found.residuals.min() > 0.05


def test_starts_name_several_labels():
    run, unseen, *_ = world()
    x, y = told(unseen)
    solver = Solver.of(run, (run.x, run.y), Inversion(starts=4), Seed(0))
    _, labels = solver.started(solver.response.seen(run(x, y)), None)
    assert all(len(row.unique()) == CLASSES for row in labels)
    assert (labels[:, 0] == y).double().mean() >= 0.8


def test_kinks_leave_some_records_and_the_certificate_says_which():
    """ReLU: every record that is said to be explained is right; the others are said not to be."""
    run, unseen, *_ = world("relu")
    x, y = told(unseen)
    found = inverted(run, run(x, y), (run.x, run.y), seed=Seed(0), search=SMALL)
    sure = found.residuals < 1e-6
    assert (error(found, x)[sure] < 1e-9).all()
    assert sure.any()
    assert (found.residuals[error(found, x) > 1e-4] > 1e-4).all()


def test_the_same_seed_says_the_same():
    run, unseen, *_ = world()
    x, y = told(unseen)
    ends = run(x[:2], y[:2])
    first, again = (
        inverted(run, ends, (run.x, run.y), seed=Seed(0), search=Inversion(starts=2, steps=4)) for _ in range(2)
    )
    torch.testing.assert_close(first.x, again.x, rtol=0, atol=0)


@pytest.mark.parametrize("knob", ["starts", "kept", "settle", "steps", "renew"])
def test_a_search_of_nothing_is_refused(knob):
    with pytest.raises(ValueError, match=knob):
        Inversion(**{knob: 0})


def handle(recipe, data, others=None):
    fixed, missing = data.take(range(FIXED)), data.take(range(FIXED, FIXED + 2))
    lab = Lab(Seed(1), Memory())
    return Informed(released(recipe, fixed, missing, lab), knowledge=Knowledge(recipe, others), lab=lab), missing


def test_an_informed_adversary_gets_the_record_of_each_release():
    """Shadow training in stacks and in float32 made the weights; the search repeats the run in float64."""
    *_, recipe, data = world()
    target, missing = handle(recipe, data, others=data.take(range(FIXED + 2, len(data))))
    said = Inversion(starts=3, kept=2)(target, seed=Seed(0))
    assert said.guesses.shape == missing.x.shape
    assert np.square(said.guesses - missing.x).mean(1).max() < 1e-7
    assert (said.labels == missing.y).all()
    assert said.certificates.max() < 1e-3
    assert (said.scores == -said.certificates).all()


def test_a_run_that_cannot_be_repeated_is_not_tried():
    *_, recipe, data = world()
    target, _ = handle(recipe, data)
    target.knowledge = Knowledge(replace(recipe, optimiser=Adam()))
    with pytest.raises(Unknown, match="SGD"):
        Inversion()(target, seed=Seed(0))


def test_a_guess_is_a_start_under_the_label_that_explains_the_weights():
    """Also where no known record has that label."""
    run, unseen, *_ = world()
    x, y = told(unseen)
    one = run.y == (y[0] + 1) % CLASSES
    solver = Solver.of(run, (run.x[one], run.y[one]), SMALL, Seed(0))
    starts, labels = solver.started(solver.response.seen(run(x, y)), x + 0.01)
    assert starts.shape[1] == SMALL.starts + 1
    torch.testing.assert_close(starts[:, 0], x + 0.01)
    assert labels[0, 0] == y[0]
    assert (labels[:, 0] == y).double().mean() >= 0.75
