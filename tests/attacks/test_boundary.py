"""Label-only attacks: what they may see, what they cost, and what they answer to bad input."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from contract.targets import as_images, lab, leaky, noise

from engram.access import Knowledge, Labels, OutOfQueries, Probabilities, Unknown, Unsuited, Weights
from engram.attacks import attack
from engram.attacks.augmentation import judged
from engram.attacks.boundary import features, measured
from engram.attacks.yoqo import YOQO
from engram.audit import Plan, audit
from engram.data import dataset
from engram.hopskipjump import HopSkipJump
from engram.measure import judge
from engram.moved import copies
from engram.population import Answering
from engram.seed import Seed
from engram.store import Store
from engram.types import quiet

FEW = {
    "augmentation": {"shadows": 2},
    "boundary": {"shadows": 2, "queries": 40},
    "combined": {"shadows": 2, "queries": 40},
    "noise": {"shadows": 2, "queries": 10},
    "yoqo": {"shadows": 4, "queries": 4, "steps": 10},
}
IMAGES = ("augmentation", "combined")


@pytest.fixture(scope="module")
def target():
    return dataclasses.replace(leaky(), access=Labels)


@pytest.fixture(scope="module")
def shared():
    return lab()


def fit_for(name, target):
    return as_images(target) if name in IMAGES else target


def said(name, target, where, **knobs):
    handle = fit_for(name, target).handle(Labels, where)
    found = attack(name, {**FEW[name], **knobs})(handle, seed=Seed(0))
    return (found if isinstance(found, list) else [found]), handle


@pytest.mark.parametrize("name", FEW)
def test_it_sees_labels_and_nothing_else(name, target, shared, monkeypatch):
    """The target's probabilities are replaced by others with the same label: not a bit of the evidence may change."""
    before, _ = said(name, target, shared)
    answer = Answering.__call__

    def masked(self, x):
        p = answer(self, x)
        return torch.nn.functional.one_hot(p.argmax(1), p.shape[1]).double() if self.model is target.model else p

    monkeypatch.setattr(Answering, "__call__", masked)
    after, _ = said(name, target, shared)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a.values, b.values)
        np.testing.assert_array_equal(a.claims, b.claims)


@pytest.mark.parametrize("name", FEW)
def test_its_handle_has_no_probabilities(name, target, shared):
    handle = fit_for(name, dataclasses.replace(target, access=Weights)).handle(Labels, shared)
    for more in ("probabilities", "signal", "module"):
        assert not hasattr(handle, more)
    for shadow in handle.rehearsals(2):
        assert type(shadow.handle) is Labels
    assert attack(name).asks is Labels


def test_augmentation_asks_as_many_copies_as_its_budget_buys(target, shared):
    """A record's answer, its two turns and its four shifts: seven queries a record, or what there is of them."""
    for budget, spent, variants in (
        (160 * 7, 160 * 7, ["rotation by 4 degrees, 3 copies", "translation by 1, 5 copies"]),
        (160 * 6, 160 * 6, ["rotation by 4 degrees, 3 copies", "translation by 1, 5 copies, of which the budget left 4"]),
        (160 * 5 + 3, 160 * 5, ["rotation by 4 degrees, 3 copies", "translation by 1, 5 copies, of which the budget left 3"]),
        (160 * 3, 160 * 3, ["rotation by 4 degrees, 3 copies"]),
        (160 * 2, 160 * 2, ["rotation by 4 degrees, 3 copies, of which the budget left 2"]),
        (160, 160, ["rotation by 4 degrees, 3 copies, of which the budget left 1"]),
    ):  # fmt: skip
        found, handle = said("augmentation", dataclasses.replace(target, budget=budget), shared)
        assert handle.queries == spent
        assert [scores.variant for scores in found] == variants
    gap = attack("gap")(target.handle(Labels, shared), seed=Seed(0))
    np.testing.assert_array_equal(found[0].claims, gap.claims)  # one copy is the record itself
    with pytest.raises(OutOfQueries, match="one query a record"):
        said("augmentation", dataclasses.replace(target, budget=159), shared)


@pytest.mark.parametrize("name", ["boundary", "combined", "noise", "yoqo"])
def test_a_budget_is_shared_evenly_and_it_is_said(name, target, shared):
    poor = dataclasses.replace(target, budget=160 * 20)
    found, handle = said(name, poor, shared, queries=30)
    assert 160 <= handle.queries <= 160 * 20
    assert all("budget" in scores.variant for scores in found)
    assert not any("budget" in scores.variant for scores in said(name, target, shared)[0])


@pytest.mark.parametrize("name", ["boundary", "combined", "noise", "yoqo"])
def test_a_budget_below_the_least_is_refused(name, target, shared):
    with pytest.raises(OutOfQueries, match="budget leaves"):
        said(name, dataclasses.replace(target, budget=100), shared)


def test_a_budget_that_others_eat_ends_the_walk_with_what_it_has(target, shared):
    handle = dataclasses.replace(target, budget=160 * 40).handle(Labels, shared)
    ask, count = handle.labels, 0

    def shared_with_others(x):
        nonlocal count
        count += 1
        if count == 6:
            handle.queries = handle.budget - 10
        return ask(x)

    handle.labels = shared_with_others
    found = attack("boundary", FEW["boundary"])(handle, seed=Seed(0))
    assert all("broken off by the budget" in scores.variant for scores in found)
    assert judge(found[0], target.member, seed=Seed(0))[0].low > 0.5  # gap at the least


@pytest.mark.parametrize("name", IMAGES)
def test_records_that_are_no_images_are_refused(name, target, shared):
    handle = target.handle(Labels, shared)
    with pytest.raises(Unsuited, match=r"these records have shape \(12,\); use the attacks noise or boundary"):
        attack(name)(handle, seed=Seed(0))
    assert handle.queries == 0


@pytest.mark.parametrize("name", ["boundary", "noise", "yoqo", "carlini-wagner"])
def test_tokens_are_refused(name, target, shared):
    one = attack(name)
    handle = dataclasses.replace(target, access=Weights).handle(one.asks, shared)
    handle.records = dataset(np.arange(24).reshape(2, 12), [0, 1])
    with pytest.raises(Unsuited, match="these are int64, not real numbers"):
        one(handle, seed=Seed(0))


@pytest.mark.parametrize("name", FEW)
def test_without_a_recipe_there_are_no_shadows_to_play_on(name, target, shared):
    with pytest.raises(Unknown, match="training recipe"):
        said(name, dataclasses.replace(target, recipe=None), shared)


@pytest.mark.parametrize("name", FEW)
def test_a_model_of_one_answer_tells_nothing_and_does_not_break(name, target, shared):
    handle = fit_for(name, target).handle(Labels, shared)
    handle._answer = lambda x: torch.nn.functional.one_hot(torch.zeros(len(x), dtype=torch.int64), 4).double()
    found = attack(name, FEW[name])(handle, seed=Seed(0))
    found = found if isinstance(found, list) else [found]
    wrong = target.records.y != 0
    for scores in found:
        assert np.isfinite(scores.values).all()
        if "against shadows" not in scores.variant and name in ("boundary", "noise", "yoqo"):
            assert (scores.values[wrong] == 0).all()
    if name == "boundary":
        assert all(f"no boundary found for {(~wrong).sum()} records" in scores.variant for scores in found)


@pytest.mark.parametrize("name", ["boundary", "noise", "carlini-wagner", "yoqo"])
def test_records_answered_wrongly_score_zero_and_are_not_claimed(name, target, shared):
    """The distance of a wrong answer is none, whoever measures it."""
    wrong = target.answer(torch.as_tensor(target.records.x)).argmax(1).numpy() != target.records.y
    assert wrong.sum() > 20
    one = attack(name, {**FEW.get(name, {}), **({"steps": 10} if name == "carlini-wagner" else {})})
    found = one(dataclasses.replace(target, access=Weights).handle(one.asks, shared), seed=Seed(0))
    plain = found[0] if isinstance(found, list) else found
    assert (plain.values[~wrong] > 0).mean() > 0.9
    if name != "yoqo":  # whose query may be answered rightly where the record is not
        assert (plain.values[wrong] == 0).all()
    else:
        assert (plain.values[wrong] == 0).mean() > 0.9
    assert not plain.claims[plain.values == 0].any()


def test_labels_that_are_text_are_numbered_on_the_way_in(shared):
    raw = noise()
    named = dataset(raw.x, np.array(["ant", "bee", "cat", "dog"])[raw.y])
    one = dataclasses.replace(leaky(), access=Labels, records=named)
    other = dataclasses.replace(leaky(), access=Labels)
    for a, b in zip(said("boundary", one, shared)[0], said("boundary", other, shared)[0], strict=True):
        np.testing.assert_array_equal(a.values, b.values)


def test_rehearsals_are_stored_and_are_the_first_of_all_shadows(target):
    where = lab()
    trained = []
    run = where.chunks.run
    where.chunks.run = lambda pieces, work: run(pieces, lambda piece: trained.append(piece) or work(piece))
    handle = dataclasses.replace(target, access=Probabilities).handle(Probabilities, where)
    first = handle.rehearsals(2)
    again = handle.rehearsals(2)
    assert len(trained) == 1
    assert handle.queries == 0
    shadow = handle.population(4)
    for m, (a, b) in enumerate(zip(first, again, strict=True)):
        np.testing.assert_array_equal(a.member, shadow.member[m])
        assert a.handle.knowledge is handle.knowledge
        p = a.handle.probabilities(target.records.x)
        np.testing.assert_array_equal(p, b.handle.probabilities(target.records.x))
        told = np.log(p[np.arange(len(p)), target.records.y])
        np.testing.assert_allclose(-shadow.signals["loss"][m, 0], told, rtol=1e-3, atol=1e-5)


def test_an_audit_of_labels_tries_label_only_attacks(target, tmp_path):
    assert Plan().suited(Labels, images=True).attacks == ("gap", "augmentation", "noise", "boundary", "yoqo")
    assert "augmentation" not in Plan().suited(Labels, images=False).attacks
    with Store(tmp_path / "engram.db") as store:
        plan = Plan(attacks=("gap", "augmentation", "yoqo", "lira"), knobs={"yoqo": FEW["yoqo"]})
        run = audit(target, plan, store=store)
        found = {f.attack: f for f in store.findings(run.id) if f.metric == "auc"}
    assert found["yoqo"].low > found["gap"].low > 0.5
    assert "these records have shape" in found["augmentation"].reason
    assert "granted Labels only" in found["lira"].reason


def test_each_class_has_a_classifier_of_its_own(shared):
    """In class 0 members keep their label under the copies, in class 1 they alone lose it: no common weights tell both."""
    y = np.arange(400) % 2
    member = np.stack([np.arange(400) % 4 < 2, np.arange(400) % 4 >= 2])
    kept = (member ^ (y == 1)).astype(float)  # [shadow, record]
    told = np.stack([np.ones_like(kept), kept, kept], -1)
    handle = Labels(dataset(np.zeros((400, 1), np.float32), y), None, knowledge=Knowledge(), lab=shared)
    assert (judged(told[0], told, member, handle, "").claims == member[0]).all()


def test_combined_weighs_the_distance_of_every_copy_and_whether_it_is_right(target, shared):
    handle = as_images(target).handle(Labels, shared)
    shifts = copies(handle.images(), translation=1)
    told, broken = features(handle, HopSkipJump(39), Seed(0), shifts, quiet)
    assert told.shape == (160, 10)
    assert not broken
    for i, x in enumerate(shifts):
        one = measured(handle, HopSkipJump(39), Seed(0).child("copy", i), x)
        np.testing.assert_allclose(told[:, i], np.log1p(one.values))
        np.testing.assert_array_equal(told[:, 5 + i], handle.labels(x) == handle.records.y)


def test_what_is_played_on_shadows_is_kept_and_told_apart_by_all_it_depends_on(target):
    where = lab()
    played = []

    def shadow_is_asked(handle):
        played.append(handle.queries)
        return (handle.labels(target.records.x) == target.records.y).astype(float)

    handle = target.handle(Labels, where)
    told, member = handle.played(2, shadow_is_asked, "name", 1)
    again, _ = dataclasses.replace(target, name="other").handle(Labels, where).played(2, shadow_is_asked, "name", 1)
    np.testing.assert_array_equal(told, again)
    assert len(played) == 2
    assert handle.queries == 0
    for m, shadow in enumerate(handle.rehearsals(2)):
        np.testing.assert_array_equal(member[m], shadow.member)
        np.testing.assert_array_equal(told[m], shadow.handle.labels(target.records.x) == target.records.y)
    assert told[member].mean() > told[~member].mean() + 0.3
    handle.played(2, shadow_is_asked, "name", 2)
    handle.played(2, shadow_is_asked, "other", 1)
    masked = dataclasses.replace(target, recipe=dataclasses.replace(target.recipe, epochs=5))
    masked.handle(Labels, where).played(2, shadow_is_asked, "name", 1)
    assert len(played) == 8


def test_the_query_of_yoqo_keeps_its_label_where_the_record_was_seen_and_loses_it_where_not(target, shared):
    handle = target.handle(Labels, shared)
    played = handle.rehearsals(8)
    member = np.stack([s.member for s in played])
    x, y = handle.numbers(), target.records.y
    at = YOQO(steps=35).crafted([s.module for s in played], member, x, torch.as_tensor(y), quiet)
    kept = np.stack([s.handle.labels(at) == y for s in played])
    assert kept[member].mean() > kept[~member].mean() + 0.6
    plain = np.stack([s.handle.labels(x) == y for s in played])
    assert kept[~member].mean() < plain[~member].mean()
