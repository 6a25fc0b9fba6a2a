"""What holds for every defence; what is special to one is in its own file."""

from __future__ import annotations

import dataclasses
import pkgutil
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch
from contract.targets import LEARNED_BY_HEART, lab, leaky, noise
from train.test_stack import apart, halves

import engram.defences
from engram.access import Probabilities
from engram.data import fingerprint
from engram.defences import DEFENCES, defence, function, knobs_of, known
from engram.defences.memguard import WIDTHS
from engram.models.opponents import AnswerNet
from engram.population import Answering
from engram.seed import Seed
from engram.signals import confidence
from engram.train import SGD, Batches, FullBatch, Poisson, Recipe, fit
from engram.train.loop import started

PART = {
    "adversarial-regularisation": {"step"},
    "augmentation": {"before"},
    "clipped-sharing": {"share"},
    "dropout": {"build"},
    "early-stopping": {"stop"},
    "gaussian-sharing": {"share"},
    "half-sharing": {"share"},
    "int8-sharing": {"share"},
    "l2": {"optimiser"},
    "label-smoothing": {"loss"},
    "laplace-sharing": {"share"},
    "memguard": {"after"},
    "memguard-optimised": {"after"},
    "private": {"sampler", "step"},
    "pruned-sharing": {"share"},
    "relaxloss": {"step"},
    "rounded-outputs": {"after"},
    "top-k-outputs": {"after"},
    "transfer": {"build", "start"},
}
TRAINED = sorted(name for name in DEFENCES if PART[name] != {"share"})  # what changes the model or its answers
SMALL = {"width": 16}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """What a defence cannot do without: files of weights."""
    folder = tmp_path_factory.mktemp("weights")
    torch.save(started(LEARNED_BY_HEART, Seed(9)).state_dict(), folder / "public.pt")
    torch.save(classifier().state_dict(), folder / "classifier.pt")
    return {
        "memguard-optimised": {"classifier": str(folder / "classifier.pt"), "steps": 30},
        "transfer": {"weights": str(folder / "public.pt")},
    }


def classifier():
    """Drawn at random, with its border among the answers of small networks."""
    net = started(Recipe(AnswerNet(4, WIDTHS, 0.0)), Seed(3))
    p = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
    with torch.no_grad():
        net[-1].bias += net(p).mean(0).flip(0)
    return net


def changed(before: Recipe, after: Recipe) -> set[str]:
    names = [f.name for f in dataclasses.fields(Recipe)]
    return {name for name in names if fingerprint(getattr(before, name)) != fingerprint(getattr(after, name))}


def test_table_and_folder_agree():
    places = {place.partition(":")[0].rpartition(".")[2] for place in DEFENCES.values()}
    assert places == {m.name for m in pkgutil.iter_modules(engram.defences.__path__)}
    assert set(PART) == set(DEFENCES)


@pytest.mark.parametrize("name", DEFENCES)
def test_it_changes_the_part_it_is_about_and_no_other(name, given):
    before = dataclasses.asdict(LEARNED_BY_HEART)
    assert changed(LEARNED_BY_HEART, defence(name, given.get(name))(LEARNED_BY_HEART)) == PART[name]
    assert dataclasses.asdict(LEARNED_BY_HEART) == before


@pytest.mark.parametrize("name", DEFENCES)
def test_each_knob_reaches_the_recipe(name, given):
    needed = given.get(name, {})
    plain = fingerprint(defence(name, needed)(LEARNED_BY_HEART))
    for knob, default in {**knobs_of(name), **needed}.items():
        if isinstance(default, str) or knob == "delta":  # a path; or what counts only where there is a budget
            continue
        if default is None:
            other = 8.0
        else:
            other = default + 1 if type(default) is int else not default if isinstance(default, bool) else default / 2
        assert fingerprint(defence(name, {**needed, knob: other})(LEARNED_BY_HEART)) != plain
        assert fingerprint(defence(name, {**needed, knob: default})(LEARNED_BY_HEART)) == plain


@pytest.mark.parametrize("name", DEFENCES)
def test_a_first_line_says_what_you_get(name):
    assert (function(name).__doc__ or "").splitlines()[0].endswith(".")


def test_defences_can_be_combined():
    both = defence("top-k-outputs", {"classes": 2})(defence("rounded-outputs")(defence("l2")(LEARNED_BY_HEART)))
    assert changed(LEARNED_BY_HEART, both) == {"after", "optimiser"}
    assert [type(mask).__name__ for mask in both.after] == ["Rounded", "Top"]


@pytest.mark.parametrize("name", TRAINED)
def test_the_adversary_trains_its_shadows_with_the_defence(name, given):
    """Shadows of the handle are those of the defended recipe: other signals than the undefended ones."""
    plain, copied = (lit(guard).population(4) for guard in (lambda recipe: recipe, small(name, given)))
    assert fingerprint(lit(small(name, given)).knowledge.recipe) == fingerprint(small(name, given)(LEARNED_BY_HEART))
    np.testing.assert_array_equal(plain.member, copied.member)
    assert not np.array_equal(plain.of(confidence), copied.of(confidence))


def small(name, given):
    knobs = {knob: value for knob, value in SMALL.items() if knob in knobs_of(name)}
    return defence(name, {**knobs, **given.get(name, {})})


def lit(guard):
    """A handle on the leaky target, its records laid out as images, behind a defence."""
    target = leaky()
    records = dataclasses.replace(target.records, x=target.records.x.reshape(-1, 1, 3, 4))
    armed = dataclasses.replace(target, records=records, recipe=guard(target.recipe))
    return armed.handle(Probabilities, lab())


STACKED = {
    "adversarial-regularisation": 3e-5, "early-stopping": 2e-5, "l2": 2e-5, "label-smoothing": 2e-5, "relaxloss": 3e-5,
    "transfer": 2e-5,
}  # fmt: skip


@pytest.mark.parametrize("sampler", [FullBatch(), Batches(8), Poisson(0.3)], ids=["full", "batches", "poisson"])
@pytest.mark.parametrize("name", STACKED)
def test_stacked_models_equal_models_trained_alone(name, sampler, given):
    """Of the defences that draw nothing but from streams of each model's own."""
    recipe = dataclasses.replace(small(name, given)(LEARNED_BY_HEART), epochs=6, sampler=sampler, optimiser=SGD(0.05))
    apart(recipe, halves(), noise(40), STACKED[name])


@pytest.mark.parametrize("name", [name for name in TRAINED if name != "rounded-outputs"])
def test_answers_stay_probabilities(name, given):
    recipe = dataclasses.replace(small(name, given)(LEARNED_BY_HEART), epochs=2, before=())
    target = leaky()
    model = fit(recipe, target.records, seed=Seed(0))
    p = Answering(model, recipe.after)(torch.as_tensor(target.records.x))
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(len(p), dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "knobs", "told"),
    [
        ("l3", {}, "no defence is called 'l3'; did you mean l2? Known: adversarial-regularisation, augmentation,"),
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
