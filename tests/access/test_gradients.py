from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from contract.targets import lab, leaky
from gradients import batch

from engram.access import Gradients, Labels
from engram.models import MLP
from engram.seed import Seed
from engram.target import NotGranted, sharing
from engram.train import Recipe
from engram.train.loop import started

RECIPE = Recipe(MLP(inputs=12, classes=5, width=16))


@pytest.fixture(scope="module")
def target():
    return sharing(RECIPE, started(RECIPE, Seed(0)), batch(), name="shared", seed=Seed(0))


def test_the_handle_has_the_update_and_no_record(target):
    handle = target.handle(Gradients, lab())
    assert not hasattr(handle, "records")
    assert (handle.shape, handle.classes, handle.queries) == ((12,), 5, 1)
    assert "no record" in str(handle.knowledge)
    for held in vars(handle).values():
        if isinstance(held, np.ndarray | torch.Tensor):
            assert tuple(held.shape)[:1] != (len(target.records),)


def test_the_adversary_works_on_a_copy(target):
    handle = target.handle(Gradients, lab())
    with torch.no_grad():
        next(handle.model.parameters()).zero_()
    assert any(p.any() for p in target.model.parameters())
    assert next(target.model.parameters()).any()


def test_who_sees_gradients_is_granted_nothing_else(target):
    with pytest.raises(NotGranted, match="granted Gradients only"):
        target.handle(Labels, lab())
    with pytest.raises(NotGranted, match="asks for Gradients"):
        leaky().handle(Gradients, lab())


def test_an_update_and_its_access_come_together(target):
    with pytest.raises(ValueError, match="needs the update that was shared"):
        dataclasses.replace(target, update=None)
    with pytest.raises(ValueError, match="give both"):
        dataclasses.replace(leaky(), update=target.update)
    with pytest.raises(ValueError, match="some are said to be no members"):
        dataclasses.replace(target, member=np.arange(4) > 1)


def test_the_identity_follows_the_update(target):
    other = dataclasses.replace(target.update, batch=None)
    assert dataclasses.replace(target, update=other).identity() != target.identity()


def test_the_records_themselves_explain_what_they_left(target):
    assert target.self_test() < 1e-6
    other = dataclasses.replace(target, records=batch(seed=7))
    assert other.self_test() > 0.1


@pytest.mark.parametrize("factor", [0.5, 4.0])
def test_a_loss_that_averages_differently_is_an_error_that_says_by_how_much(target, factor):
    """Of four records, a sum instead of a mean is four times as long."""
    told = dataclasses.replace(target.update, tensors=tuple(factor * t for t in target.update.tensors))
    with pytest.raises(ValueError, match=f"{factor:g} times what the mean loss of these records leaves"):
        dataclasses.replace(target, update=told)
    guarded = dataclasses.replace(RECIPE, share=(lambda tensors: tensors,))
    assert dataclasses.replace(target, update=told, recipe=guarded).self_test() > 0.1
