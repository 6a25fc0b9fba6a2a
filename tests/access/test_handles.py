from __future__ import annotations

import numpy as np
import pytest
from contract.targets import lab, leaky, noise

from engram.access import IMPLIES, Labels, OutOfQueries, Probabilities, Unknown
from engram.signals import loss, margin
from engram.target import NotGranted


@pytest.fixture(scope="module")
def target():
    return leaky()


def test_a_labels_handle_cannot_be_asked_for_more(target):
    handle = target.handle(Labels, lab())
    assert not hasattr(handle, "probabilities")
    assert not hasattr(handle, "signal")
    assert handle.labels(target.records.x).dtype == np.int64


def test_labels_agree_with_probabilities(target):
    p = target.handle(Probabilities, lab()).probabilities(target.records.x)
    np.testing.assert_array_equal(target.handle(Labels, lab()).labels(target.records.x), p.argmax(1))
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert p.dtype == np.float64


def test_a_signal_is_that_of_the_answers(target):
    handle = target.handle(Probabilities, lab())
    p = handle.probabilities(target.records.x)
    expected = -np.log(p[np.arange(len(p)), target.records.y])
    np.testing.assert_allclose(handle.signal(loss)[0], expected, rtol=1e-12)


def test_queries_are_counted_and_a_budget_holds(target):
    import dataclasses

    handle = dataclasses.replace(target, budget=200).handle(Labels, lab())
    handle.labels(target.records.x)
    assert handle.queries == 160
    with pytest.raises(OutOfQueries, match="160 more queries were asked, 40 of 200 are left"):
        handle.labels(target.records.x)
    assert handle.queries == 160


def test_access_is_granted_downwards_only(target):
    import dataclasses

    label_only = dataclasses.replace(target, access=Labels)
    assert isinstance(label_only.handle(Labels, lab()), Labels)
    with pytest.raises(NotGranted, match="asks for Probabilities, and the adversary is granted Labels only"):
        label_only.handle(Probabilities, lab())
    assert all(kind in weaker for kind, weaker in IMPLIES.items())


def test_without_a_recipe_there_are_no_shadows(target):
    import dataclasses

    handle = dataclasses.replace(target, recipe=None).handle(Probabilities, lab())
    with pytest.raises(Unknown, match="need the training recipe"):
        handle.population(4)


def test_other_records_join_the_shadows_but_are_not_candidates(target):
    import dataclasses

    handle = dataclasses.replace(target, others=noise(60, seed=9)).handle(Probabilities, lab())
    shadow = handle.population(4)
    assert shadow.of(margin).shape == (4, 1, 160)
    assert shadow.member.shape == (4, 160)
    assert set(shadow.member.sum(0)) == {2}
    assert "60 other records" in str(handle.knowledge)


def test_attacks_on_one_target_share_their_shadows(target):
    where = lab()
    first = target.handle(Probabilities, where).population(4)
    trained = len(where.chunks._done)
    second = target.handle(Labels, where).population(4)
    assert len(where.chunks._done) == trained
    np.testing.assert_array_equal(first.of(margin), second.of(margin))
