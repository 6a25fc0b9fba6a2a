"""What every attack on an update must satisfy: found by name, so a line in the table is a column here."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from contract.targets import lab
from contract.test_attacks import _reached

from engram.access import Gradients
from engram.attacks import ATTACKS, attack, kind
from engram.data import dataset
from engram.models import GPT, MLP
from engram.seed import Seed
from engram.store import Store, Told
from engram.target import sharing
from engram.train import Recipe
from engram.train.loop import started

NAMES = sorted(name for name in ATTACKS if kind(name).asks is Gradients)
RECORDS = {"recursive": 1}
KNOBS = {"deep-leakage": {"steps": 200}, "inverting-gradients": {"steps": 20}, "spear": {"draws": 512, "block": 256}}


def shared(name, seed=0):
    """A target that this attack answers."""
    stream, records = np.random.default_rng(seed), RECORDS.get(name, 2)
    y = stream.integers(0, 4, records)
    if name == "dager":
        recipe, x = Recipe(GPT(vocabulary=100, length=5, classes=4, width=32)), stream.integers(0, 100, (records, 5))
    else:
        activation = "sigmoid" if name in ("recursive", "deep-leakage") else "relu"
        recipe, x = (
            Recipe(MLP(inputs=12, classes=4, width=40, activation=activation)),
            stream.uniform(size=(records, 12)),
        )
    records = dataset(x, y, classes=tuple("abcd"))
    return sharing(recipe, started(recipe, Seed(seed)), records, name=name, seed=Seed(seed))


def said(name, target, seed=0) -> Sequence:
    told = attack(name, KNOBS.get(name))(target.handle(Gradients, lab()), seed=Seed(seed))
    return told if isinstance(told, Sequence) else [told]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_says_the_same(name):
    """To rounding: a solver may round the last bit by where its arrays lie in memory."""
    target = shared(name)
    for a, b in zip(said(name, target), said(name, target), strict=True):
        np.testing.assert_allclose(a.guesses, b.guesses, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(a.certificates, b.certificates, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_guesses_are_as_many_as_their_scores_and_shaped_like_records(name):
    target = shared(name)
    for one in said(name, target):
        assert len(one.guesses) == len(one.scores) == len(one.certificates) > 0
        if one.kind != "labels":
            assert one.guesses.shape[1:] == target.records.x.shape[1:]


@pytest.mark.parametrize("name", NAMES)
def test_model_update_and_global_streams_are_left_as_they_were(name):
    target = shared(name)
    handle = target.handle(Gradients, lab())
    weights, mode = copy.deepcopy(handle.model.state_dict()), handle.model.training
    tensors = [t.clone() for t in handle.update.tensors]
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    attack(name, KNOBS.get(name))(handle, seed=Seed(0))
    assert all(torch.equal(w, weights[k]) for k, w in handle.model.state_dict().items())
    assert handle.model.training == mode
    assert all(torch.equal(a, b) for a, b in zip(tensors, handle.update.tensors, strict=True))
    assert torch.equal(torch.get_rng_state(), torch_before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


@pytest.mark.parametrize("name", NAMES)
def test_evidence_survives_the_store(name, tmp_path):
    told = said(name, shared(name))
    with Store(tmp_path / "engram.db") as store:
        run = store.begin("x", {}).id
        store.tell(run, *(Told(name, "", one, {}) for one in told))
        for before, after in zip(told, store.told(run), strict=True):
            np.testing.assert_array_equal(before.guesses, after.evidence.guesses)
            if before.labels is not None:
                np.testing.assert_array_equal(before.labels, after.evidence.labels)


@pytest.mark.parametrize("name", NAMES)
def test_no_true_record_can_be_reached_from_the_handle(name):
    target = shared(name)
    truth = target.records.x.astype(float)
    for thing in _reached(target.handle(Gradients, lab()), depth=5):
        if isinstance(thing, np.ndarray | torch.Tensor) and tuple(thing.shape) == truth.shape:
            assert not np.allclose(np.asarray(thing).astype(float), truth)
