from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from contract.targets import leaky

from engram.data import dataset
from engram.models import MLP
from engram.target import Target, embedded, load


@pytest.fixture(scope="module")
def target():
    return leaky()


def test_a_record_on_both_sides_is_refused(target):
    x = target.records.x.copy()
    x[np.flatnonzero(~target.member)[0]] = x[np.flatnonzero(target.member)[0]]
    with pytest.raises(ValueError, match="occur both among members and among non-members"):
        dataclasses.replace(target, records=dataset(x, target.records.y))


@pytest.mark.parametrize(
    ("member", "error", "told"),
    [
        (np.ones(160, bool), ValueError, "all records are of one kind"),
        (np.ones(160), TypeError, "one bool a record"),
        (np.arange(159) > 3, ValueError, "lengths must agree"),
    ],
)
def test_a_wrong_truth_is_refused(target, member, error, told):
    with pytest.raises(error, match=told):
        dataclasses.replace(target, member=member)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (MLP(inputs=12, classes=3)(), "must answer one number a class, 4 of them, got shape"),
        (MLP(inputs=13, classes=4)(), "does not take records of shape"),
        (torch.nn.LSTM(12, 4), "got shape tuple"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(target, model, told):
    with pytest.raises(ValueError, match=told):
        Target(model, target.records, target.member)


def test_the_identity_follows_weights_records_truth_and_recipe(target):
    turned = dataclasses.replace(target, member=~target.member)
    other = leaky(seed=1)
    assert target.identity() == leaky().identity()
    assert len({target.identity(), turned.identity(), other.identity()}) == 3
    assert dataclasses.replace(target, name="another").identity() == target.identity()


def test_auditing_mode_is_given_back(target):
    target.model.train()
    target.answer(torch.zeros(3, 12))
    assert target.model.training
    target.model.eval()


def test_the_embedded_target_has_learned_its_members_by_heart():
    made = embedded()
    answers = made.answer(torch.as_tensor(made.records.x)).argmax(-1).numpy()
    assert (answers == made.records.y)[made.member].all()
    assert 0.8 < (answers == made.records.y)[~made.member].mean() < 1
    assert made.identity() == embedded().identity()


def write(folder, text):
    path = folder / "target.py"
    path.write_text(text)
    return path


def test_a_target_file_may_define_it_or_make_it(tmp_path, target, monkeypatch):
    monkeypatch.syspath_prepend("tests")
    head = "from contract.targets import leaky\n"
    assert load(write(tmp_path, head + "target = leaky()")).identity() == target.identity()
    assert load(write(tmp_path, head + "def target():\n    return leaky()")).identity() == target.identity()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ny = 1 / 0\n", r"line 2: ZeroDivisionError: division by zero"),
        ("target = 5", "must define `target`"),
        ("", "must define `target`"),
        ("def target(:", "SyntaxError"),
    ],
)
def test_a_file_that_makes_no_target_says_where(tmp_path, text, told):
    with pytest.raises(ValueError, match=told):
        load(write(tmp_path, text))


def test_a_missing_file_and_a_model_file_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="engram new"):
        load(tmp_path / "none.py")
    (tmp_path / "model.pt").write_bytes(b"x")
    with pytest.raises(ValueError, match="a target file is a Python file"):
        load(tmp_path / "model.pt")
