"""Small batches, networks and the handles on what they share."""

from __future__ import annotations

import numpy as np
import torch
from contract.targets import lab

from engram.access import Gradients
from engram.access.handle import Knowledge
from engram.data import dataset
from engram.seed import Seed
from engram.train import Recipe, shared
from engram.train.loop import started


def batch(records=4, shape=(12,), classes=5, seed=0):
    stream = np.random.default_rng(seed)
    x = stream.uniform(size=(records, *shape)).astype(np.float32)
    return dataset(x, stream.integers(0, classes, records), classes=tuple(map(str, range(classes))))


def seen(recipe: Recipe, records, *, model=None, seed=0, dtype=torch.float64, **local) -> Gradients:
    """The handle of an adversary who sees one update of these records."""
    model = started(recipe, Seed(seed)) if model is None else model
    update = shared(recipe, model, records, seed=Seed(seed), dtype=dtype, **local)
    return handle(recipe, model, update, records)


def handle(recipe, model, update, records) -> Gradients:
    return Gradients(
        model, recipe.loss, update, shape=records.x.shape[1:], classes=len(records.classes),
        knowledge=Knowledge(recipe), lab=lab(),
    )  # fmt: skip
