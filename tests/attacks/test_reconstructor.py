from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from access.test_informed import KNOWN, PLAIN
from contract.targets import lab

from engram.access import Informed, Unknown
from engram.attacks import attack
from engram.data import digits
from engram.measure.recovery import of_missing
from engram.models import MLP
from engram.seed import Seed
from engram.target import releasing
from engram.train import Given
from engram.train.loop import started

SMALL = {"shadows": 300, "width": 128, "epochs": 40}


def released(known: bool):
    records = digits().take(np.random.default_rng(0).permutation(1797))
    recipe = replace(PLAIN, build=MLP(64, 10, width=8, activation="elu"), epochs=40)
    recipe = replace(recipe, start=Given(started(recipe, Seed(1)).state_dict())) if known else recipe
    fixed, missing, public = (records.take(range(*ends)) for ends in ((0, 50), (50, 90), (90, 400)))
    return releasing(recipe, fixed, missing, public, name="digits", lab=lab(1))


def worth(target, **knobs):
    said = attack("reconstructor", SMALL | knobs)(target.handle(Informed, lab()), seed=Seed(0))
    mean = np.broadcast_to(target.others.x.mean(0), target.records.x.shape)
    return said, {f.metric: f for f in of_missing(said, target.records.x, target.records.y, mean)}


def test_it_tells_the_record_from_the_weights():
    said, found = worth(released(known=True))
    assert found["beats_nearest"].low > 0.5  # nearest here is the mean of all that is public
    assert found["identified"].value > 0.3
    assert found["labels_right"].value > 0.6
    assert np.median(said.certificates) < 0.9
    assert "repeatable" not in said.variant


def test_it_tells_nothing_where_the_start_is_not_known():
    """The negative control: each model starts elsewhere, so the weights tell the start and not the record."""
    said, found = worth(released(known=False))
    assert found["identified"].low < 0.05
    assert found["mse"].value > found["nearest_mse"].value
    assert "training not repeatable: two runs lie" in said.variant
    assert np.median(said.certificates) > 0.9


def test_too_few_shadows_are_refused():
    with pytest.raises(
        Unknown, match="learns from at least 100 shadow models, each on a public record of its own, got 99"
    ):
        worth(released(known=True), shadows=99)


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"kind": "rnn"}, "no kind of reconstructor is called 'rnn'"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"shadows": 2.5}, "shadows must be a whole number"),
        ({"rate": 0}, "rate must be positive"),
    ],
)
def test_a_wrong_knob_is_refused(knobs, told):
    with pytest.raises((ValueError, TypeError), match=told):
        attack("reconstructor", knobs)


def test_the_network_for_pictures_answers_pictures():
    assert KNOWN.epochs
    target = released(known=True)
    said, _ = worth(target, kind="cnn", width=64, epochs=2)
    assert said.guesses.shape == target.records.x.shape
