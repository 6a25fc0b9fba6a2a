"""What holds for every defence; what is special to one is in its own file."""

from __future__ import annotations

import dataclasses
import pkgutil
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from contract.targets import LEARNED_BY_HEART, lab, leaky

import engram.defences
from engram.access import Probabilities
from engram.defences import DEFENCES, defence, function, knobs_of, known
from engram.seed import Seed
from engram.signals import confidence
from engram.train import Recipe, fit

PART = {
    "augmentation": "before",
    "clipped-sharing": "share",
    "early-stopping": "stop",
    "gaussian-sharing": "share",
    "half-sharing": "share",
    "int8-sharing": "share",
    "l2": "optimiser",
    "label-smoothing": "loss",
    "laplace-sharing": "share",
    "pruned-sharing": "share",
    "private": {"sampler", "step"},
    "rounded-outputs": "after",
    "top-k-outputs": "after",
}


def changed(before: Recipe, after: Recipe) -> set[str]:
    return {f.name for f in dataclasses.fields(Recipe) if getattr(before, f.name) != getattr(after, f.name)}


def test_table_and_folder_agree():
    places = {place.partition(":")[0].rpartition(".")[2] for place in DEFENCES.values()}
    assert places == {m.name for m in pkgutil.iter_modules(engram.defences.__path__)}
    assert set(PART) == set(DEFENCES)


@pytest.mark.parametrize("name", DEFENCES)
def test_it_changes_the_part_it_is_about_and_no_other(name):
    before = dataclasses.asdict(LEARNED_BY_HEART)
    assert changed(LEARNED_BY_HEART, defence(name)(LEARNED_BY_HEART)) == set(
        PART[name] if isinstance(PART[name], set) else {PART[name]}
    )
    assert dataclasses.asdict(LEARNED_BY_HEART) == before


@pytest.mark.parametrize("name", DEFENCES)
def test_each_knob_reaches_the_recipe(name):
    for knob, default in knobs_of(name).items():
        other = (
            8.0
            if default is None
            else not default
            if isinstance(default, bool)
            else default + 1
            if isinstance(default, int)
            else default / 2
        )
        if knob == "delta":  # moves nothing unless the noise follows from a budget
            continue
        assert defence(name, {knob: other})(LEARNED_BY_HEART) != defence(name)(LEARNED_BY_HEART)
        assert defence(name, {knob: default})(LEARNED_BY_HEART) == defence(name)(LEARNED_BY_HEART)


@pytest.mark.parametrize("name", DEFENCES)
def test_a_first_line_says_what_you_get(name):
    assert (function(name).__doc__ or "").splitlines()[0].endswith(".")


def test_defences_can_be_combined():
    both = defence("top-k-outputs", {"classes": 2})(defence("rounded-outputs")(defence("l2")(LEARNED_BY_HEART)))
    assert changed(LEARNED_BY_HEART, both) == {"after", "optimiser"}
    assert [type(mask).__name__ for mask in both.after] == ["Rounded", "Top"]


OF_TABLES = [name for name, part in PART.items() if part != "share" and name != "augmentation"]


@pytest.mark.parametrize("name", OF_TABLES)
def test_the_adversary_trains_its_shadows_with_the_defence(name):
    """Shadows of the handle are those of the defended recipe: other signals than the undefended ones."""
    target = leaky()
    armed = dataclasses.replace(target, recipe=defence(name)(target.recipe))
    plain, copied = (t.handle(Probabilities, lab()).population(4) for t in (target, armed))
    assert armed.handle(Probabilities, lab()).knowledge.recipe == armed.recipe
    np.testing.assert_array_equal(plain.member, copied.member)
    assert not np.array_equal(plain.of(confidence), copied.of(confidence))


@pytest.mark.parametrize(
    ("name", "knobs", "told"),
    [
        ("l3", {}, "no defence is called 'l3'; did you mean l2? Known: "),
        ("l2", {"weigth_decay": 1}, "no knob of l2 is called 'weigth_decay'; did you mean weight_decay?"),
        ("l2", {"weight_decay": 0}, "weight_decay must be positive and finite, got 0"),
        ("l2", {"weight_decay": float("inf")}, "weight_decay must be positive and finite, got inf"),
        ("l2", {"weight_decay": float("nan")}, "weight_decay must be positive and finite, got nan"),
        ("l2", {"weight_decay": "much"}, "weight_decay must be a number, got 'much'"),
        ("label-smoothing", {"smoothing": 1}, r"smoothing must lie in \(0, 1\), got 1"),
        ("label-smoothing", {"smoothing": "much"}, "smoothing must be a number, got 'much'"),
        ("early-stopping", {"patience": 0}, "patience must be at least 1, got 0"),
        ("early-stopping", {"patience": 2.5}, "patience must be a whole number, got 2.5"),
        ("early-stopping", {"held_out": 1.0}, r"held_out must lie in \(0, 1\), got 1.0"),
        ("rounded-outputs", {"digits": 0}, "digits must be at least 1, got 0"),
        ("rounded-outputs", {"digits": 1.5}, "digits must be a whole number, got 1.5"),
        ("rounded-outputs", {"digits": float("inf")}, "digits must be a whole number, got inf"),
        ("rounded-outputs", {"digits": "two"}, "digits must be a whole number, got 'two'"),
        ("top-k-outputs", {"classes": 0}, "classes must be at least 1, got 0"),
        ("top-k-outputs", {"classes": 2.5}, "classes must be a whole number, got 2.5"),
    ],
)
def test_a_wrong_knob_is_refused_in_a_sentence(name, knobs, told):
    with pytest.raises((ValueError, TypeError), match=told.replace("?", "[?]")):
        defence(name, knobs)(LEARNED_BY_HEART)


def test_an_installed_package_may_add_one(monkeypatch):
    added = EntryPoint("noisy", "contract.targets:noise", "engram.defences")
    monkeypatch.setattr(
        engram.defences.importlib.metadata, "entry_points", lambda group: [added] * (group == "engram.defences")
    )
    assert set(known()) == {*DEFENCES, "noisy"}
    assert function("noisy").__name__ == "noise"


def test_ours_cannot_be_replaced_from_outside(monkeypatch):
    added = EntryPoint("l2", "contract.targets:noise", "engram.defences")
    monkeypatch.setattr(engram.defences.importlib.metadata, "entry_points", lambda group: [added] * bool(group))
    assert function("l2").__name__ == "l2"


def test_augmentation_of_what_is_no_image_is_refused():
    armed = defence("augmentation")(LEARNED_BY_HEART)
    with pytest.raises(
        ValueError, match=r"needs images, \[record, channel, row, column\], got records of shape \(12,\)"
    ):
        fit(armed, leaky().records, seed=Seed(0))
