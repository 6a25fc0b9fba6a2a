"""Small targets with a known leak, and with none."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from engram.access import Lab
from engram.chunks.local import Memory
from engram.data import dataset
from engram.models import MLP
from engram.seed import Seed
from engram.target import Target, trained
from engram.train import Adam, FullBatch, Given, Recipe
from engram.train.loop import started

LEARNED_BY_HEART = Recipe(MLP(inputs=12, classes=4, width=64), epochs=60, optimiser=Adam(0.01), sampler=FullBatch())
UNTRAINED = replace(LEARNED_BY_HEART, epochs=0)


def noise(records: int = 160, seed: int = 0):
    """Records whose labels follow from nothing, so that whoever gets one right has seen it."""
    stream = np.random.default_rng(seed)
    return dataset(stream.normal(size=(records, 12)).astype(np.float32), stream.integers(0, 4, records), name="noise")


def leaky(seed: int = 0) -> Target:
    return trained(LEARNED_BY_HEART, noise(), name="leaky", seed=Seed(seed))


def tight(seed: int = 0) -> Target:
    """A model that has seen nothing: whatever an attack finds in it is an error of the attack."""
    return trained(UNTRAINED, noise(), name="tight", seed=Seed(seed))


def as_images(target: Target) -> Target:
    """The same model and the same records, seen as images of one channel, 3 x 4."""
    records = replace(target.records, x=target.records.x.reshape(-1, 1, 3, 4))
    return replace(target, records=records)


@functools.cache
def from_one_start(epochs: int, seed: int = 0) -> Target:
    """Trained like the others, but from weights that everybody knows; the same records are members."""
    start = Given(started(LEARNED_BY_HEART, Seed(7)).state_dict())
    recipe = replace(LEARNED_BY_HEART, epochs=epochs, start=start)
    return trained(recipe, noise(), name="from one start", seed=Seed(seed))


def lab(seed: int = 0) -> Lab:
    return Lab(Seed(seed).child("shadows"), Memory())
