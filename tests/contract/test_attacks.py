"""What every attack must satisfy, ours and any that is added: a line in the table is a column here."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from contract.targets import as_images, from_one_start, lab, leaky, tight

import engram.attacks
from engram.access import IMPLIES, Handle, Rehearsal, Weights
from engram.attacks import ATTACKS, attack, kind
from engram.measure import judge, shuffled, simultaneous
from engram.population import Population
from engram.seed import Seed
from engram.store import Store, Told
from engram.types import Scores

SHADOWS = 12
SMALL = {
    "shadows": SHADOWS,
    "epochs": 15,
    "rate": 0.05,
    "nudges": 3,
    "queries": 40,
    "steps": 20,
}  # what makes an attack that learns end in seconds
NAMES = sorted(name for name in ATTACKS if kind(name).question == "membership")
IMAGES = {"augmentation", "combined"}  # turn and shift records, so they are tried on the same records as images
CLOSE = {"calibrated-taylor"}  # compares models that stay close together, so they all start from the same weights
LEVEL = simultaneous(0.95, 3 * len(NAMES))  # three variants an attack at the most: all intervals hold together


def made(name):
    knobs = {f.name for f in dataclasses.fields(kind(name))}
    return attack(name, {knob: value for knob, value in SMALL.items() if knob in knobs})


def suited(name, target):
    if name in CLOSE:
        return dataclasses.replace(from_one_start(target.recipe.epochs), access=Weights)
    return as_images(target) if name in IMAGES else target


def said(name, target, where=None, seed=0) -> Sequence[Scores]:
    one = made(name)
    told = one(suited(name, target).handle(one.asks, where or lab()), seed=Seed(seed).child("attack"))
    return told if isinstance(told, Sequence) else [told]


@pytest.fixture(scope="module")
def target():
    return dataclasses.replace(leaky(), access=Weights)  # which implies all that these attacks ask for


@pytest.fixture(scope="module")
def shared():
    """Shadows are trained once for all attacks of this module."""
    return lab()


@pytest.mark.parametrize("name", NAMES)
def test_it_finds_a_leak(name, target, shared):
    for scores in said(name, target, shared):
        area = judge(scores, target.member[scores.ids], seed=Seed(0), level=LEVEL)[0]
        assert area.low > 0.5, (scores.variant, area)


@pytest.mark.parametrize("name", NAMES)
def test_it_finds_nothing_in_a_model_that_has_seen_nothing(name):
    target = dataclasses.replace(tight(), access=Weights)
    for scores in said(name, target):
        area = judge(scores, target.member[scores.ids], seed=Seed(0), level=LEVEL)[0]
        assert area.low <= 0.5 <= area.high, (scores.variant, area)


@pytest.mark.parametrize("name", NAMES)
def test_its_shuffled_control_covers_chance(name, target, shared):
    for scores in said(name, target, shared):
        control = shuffled(scores, target.member[scores.ids], seed=Seed(1), level=LEVEL)
        assert control.low <= 0.5 <= control.high


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_says_the_same(name, target):
    for a, b in zip(said(name, target), said(name, target), strict=True):
        np.testing.assert_array_equal(a.values, b.values)
        np.testing.assert_array_equal(a.claims, b.claims)


@pytest.mark.parametrize("name", NAMES)
def test_permuting_the_records_permutes_the_scores(name, target, shared):
    order = np.random.default_rng(0).permutation(len(target.records))
    one, target = made(name), suited(name, target)
    there = target.handle(one.asks, shared)
    turned = dataclasses.replace(target, records=target.records.take(order), member=target.member[order])
    here = turned.handle(one.asks, shared)
    here.population = lambda *args, **knobs: _turned(there.population(*args, **knobs), order)
    here.rehearsals = lambda *args, **knobs: [_replayed(s, order) for s in there.rehearsals(*args, **knobs)]
    for a, b in zip(_listed(one(there, seed=Seed(0))), _listed(one(here, seed=Seed(0))), strict=True):
        np.testing.assert_allclose(b.values, a.values[order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_model_records_and_global_streams_are_left_as_they_were(name, target, shared):
    weights = copy.deepcopy(target.model.state_dict())
    x, y = target.records.x.copy(), target.records.y.copy()
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    said(name, target, shared)
    assert all(torch.equal(w, weights[k]) for k, w in target.model.state_dict().items())
    np.testing.assert_array_equal(target.records.x, x)
    np.testing.assert_array_equal(target.records.y, y)
    assert torch.equal(torch.get_rng_state(), torch_before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


@pytest.mark.parametrize("name", NAMES)
def test_evidence_survives_the_store(name, target, shared, tmp_path):
    told = said(name, target, shared)
    with Store(tmp_path / "engram.db") as store:
        run = store.begin("x", {}).id
        store.tell(run, *(Told(name, "", scores, {}) for scores in told))
        for before, after in zip(told, store.told(run), strict=True):
            np.testing.assert_array_equal(before.values, after.evidence.values)
            np.testing.assert_array_equal(before.claims, after.evidence.claims)
            assert before.variant == after.evidence.variant


@pytest.mark.parametrize("name", NAMES)
def test_who_does_not_hold_the_model_asks_at_least_once_a_record_and_every_question_is_counted(name, target, shared):
    one, target = made(name), suited(name, target)
    handle, asked = target.handle(one.asks, shared), []
    answer = handle._answer
    handle._answer = lambda x: asked.append(len(x)) or answer(x)
    one(handle, seed=Seed(0))
    assert handle.queries == sum(asked) >= (0 if one.asks is Weights else len(target.records))


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_it_says_what_it_is(name):
    cls = kind(name)
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    assert cls.asks in IMPLIES
    assert cls.paper
    assert cls.question in ("membership", "records", "text", "weights", "planted")
    assert cls.__doc__


@pytest.mark.parametrize("handle", sorted(IMPLIES, key=lambda h: h.__name__))
def test_no_handle_holds_the_truth(handle, target):
    """Nothing that can be reached from a handle's attributes equals the truth or its negative."""
    held = list(_reached(target.handle(handle, lab()), depth=5)) if handle in IMPLIES[target.access] else []
    assert not any(_same(thing, target.member) for thing in held)


def test_table_and_folder_agree():
    folder = Path(engram.attacks.__file__).parent
    files = {f.stem for f in folder.glob("*.py")} - {"__init__"}
    assert files == {place.partition(":")[0].rpartition(".")[2] for place in ATTACKS.values()}


def _listed(told):
    return told if isinstance(told, Sequence) else [told]


def _turned(shadow: Population, order) -> Population:
    turned = {name: phi[:, :, order] for name, phi in shadow.signals.items()}
    return Population(shadow.member[:, order], turned, shadow.weights)


def _replayed(shadow: Rehearsal, order) -> Rehearsal:
    handle = copy.copy(shadow.handle)
    handle.records = handle.records.take(order)
    return Rehearsal(handle, shadow.module, shadow.member[order])


def _reached(thing, depth):
    yield thing
    if depth and (isinstance(thing, Handle) or dataclasses.is_dataclass(thing)) and not isinstance(thing, type):
        for value in vars(thing).values():
            yield from _reached(value, depth - 1)
    if depth and callable(thing) and getattr(thing, "__closure__", None):
        for cell in thing.__closure__:
            yield from _reached(cell.cell_contents, depth - 1)


def _same(thing, member) -> bool:
    if not isinstance(thing, np.ndarray | torch.Tensor) or tuple(thing.shape) != member.shape:
        return False
    return any(np.array_equal(np.asarray(thing).astype(float), m.astype(float)) for m in (member, ~member))
