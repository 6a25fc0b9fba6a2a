from __future__ import annotations

import numpy as np
import pytest
import torch
from contract.targets import lab
from torch import nn

from engram.access import Knowledge, Labels, Weights
from engram.attacks.boundary import measured
from engram.attacks.carlini_wagner import CarliniWagner
from engram.data import dataset
from engram.hopskipjump import HopSkipJump
from engram.population import Answering
from engram.seed import Seed


@pytest.fixture(scope="module")
def plane():
    """A linear model of two classes: the exact distance is |w x + b| / |w|."""
    stream = np.random.default_rng(0)
    x = stream.normal(size=(50, 10)).astype(np.float32)
    w, b = stream.normal(size=10).astype(np.float32), np.float32(0.3)
    model = nn.Linear(10, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(np.stack([-w, w]) / 2))
        model.bias.copy_(torch.tensor([-b / 2, b / 2]))
    y = (x @ w + b > 0).astype(int)
    return dataset(x, y), model, np.abs(x @ w + b) / np.linalg.norm(w)


def test_the_distance_to_a_plane_is_found(plane):
    records, model, exact = plane
    handle = Weights(records, Answering(model), knowledge=Knowledge(), lab=lab())
    found = CarliniWagner(steps=300, searches=10).distances(handle)
    assert (found >= exact * (1 - 1e-4)).all()
    assert np.median(found / exact) < 1.03


def test_it_bounds_what_labels_tell(plane):
    records, model, exact = plane
    handle = Labels(records, Answering(model), knowledge=Knowledge(), lab=lab())
    found = measured(handle, HopSkipJump(2500), Seed(0), handle.numbers()).values
    assert (found >= exact * (1 - 1e-4)).all()
    assert np.median(found / exact) < 1.05


def test_the_module_is_a_copy(plane):
    records, model, _ = plane
    handle = Weights(records, Answering(model), knowledge=Knowledge(), lab=lab())
    with torch.no_grad():
        handle.module().weight.zero_()
    assert model.weight.any()
