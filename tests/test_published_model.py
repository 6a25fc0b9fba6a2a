"""A published model, attacked as anybody can check: the figures of a target that was not trained here."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from engram.data import dataset
from engram.measure.ranks import ranked
from engram.measure.roc import auc
from engram.models import ResNet20, load_weights, strip_prefix
from engram.population import Answering
from engram.signals import loss


@pytest.mark.data
def test_the_loss_of_resnet20_tells_members_of_cifar10_by_what_was_measured_elsewhere():
    folder = Path(os.environ.get("ENGRAM_DATA", "nowhere"))
    if not folder.is_dir():
        pytest.skip("ENGRAM_DATA does not name a folder of data")
    model = ResNet20(normalise=((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))()
    model.load_state_dict(strip_prefix(load_weights(folder / "resnet20-cifar10-12fca82f.th")))
    with np.load(folder / "cifar10_20k_5k.npz") as held:
        x, y = np.concatenate([held["x_train"], held["x_test"]]), np.concatenate([held["y_train"], held["y_test"]])
    records = dataset((x.astype(np.float32) / 255).transpose(0, 3, 1, 2), y.astype(np.int64))
    parts = [Answering(model)(torch.tensor(records.x[i : i + 1000])) for i in range(0, len(records), 1000)]
    phi = -loss(torch.cat(parts), torch.tensor(records.y)).numpy()
    assert auc(ranked(phi, np.arange(len(x)) < 20_000)) == pytest.approx(0.537, abs=0.005)
    assert (np.unique(phi).size / len(phi)) > 0.95  # float32 would leave a third of them tied at zero
