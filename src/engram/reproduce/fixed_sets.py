"""What the informed adversary's reproductions share: who holds which records, and how models are trained on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engram.access import Informed, Lab
from engram.attacks import attack
from engram.data import digits, from_idx, from_npz
from engram.data.dataset import Dataset
from engram.measure import recovery
from engram.models import MLP
from engram.reproduce.cells import Bench
from engram.seed import Seed
from engram.target import Target, releasing
from engram.train import SGD, FullBatch, Given, Recipe
from engram.train.loop import started
from engram.types import Arrays, Floats, Piece, Recovered

MNIST = "mnist-train-images-idx3-ubyte.gz"
CIFAR = "cifar10_20k_5k.npz"


@dataclass(frozen=True, eq=False)
class World:
    """All records, cut apart: what the adversary holds of the training, what is public, and what it seeks."""

    fixed: Dataset
    public: Dataset
    sought: Dataset

    @property
    def held(self) -> Floats:
        return np.concatenate([self.fixed.x, self.public.x])


def world(bench: Bench, fixed: int, shadows: int, sought: int, *, name: str = "fixed") -> World:
    """A random cut of the handwritten digits; at paper scale of MNIST, if it is there."""
    data = mnist(bench) if bench.scale == "paper" else None
    return cut(bench, digits() if data is None else data, fixed, shadows, sought, name)


def cut(bench: Bench, data: Dataset, fixed: int, shadows: int, sought: int, name: str) -> World:
    order = bench.seed.child("informed", name).numpy().permutation(len(data))
    ends = np.cumsum([fixed, sought, shadows])
    first, second, third = np.split(order[: ends[-1]], ends[:-1])
    return World(data.take(first), data.take(third), data.take(second))


def recipe(world: World, activation: str, *, epochs: int, width: int = 10, start: Seed | None = None) -> Recipe:
    """Table IV: one hidden layer, full batch, momentum; `start` None: the initialisation is drawn anew each time."""
    inputs = int(np.prod(world.fixed.x.shape[1:]))
    plain = Recipe(
        MLP(inputs, len(world.fixed.classes), width=width, activation=activation), epochs,
        optimiser=SGD(0.2, momentum=0.9), sampler=FullBatch(),
    )  # fmt: skip
    return plain if start is None else replace(plain, start=Given(started(plain, start).state_dict()))


def released(bench: Bench, world: World, recipe: Recipe, name: str) -> Target:
    """A model for each sought record; `name` sets the streams apart from those of other rows."""
    lab = Lab(bench.seed.child("released", name), bench.chunks, bench.device)
    return releasing(
        recipe, world.fixed, world.sought, world.public, name=name, lab=lab, track=bench.track
    )  # fmt: skip


def seen(bench: Bench, target: Target, name: str) -> Informed:
    """The handle of an adversary with shadows of its own."""
    lab = Lab(bench.seed.child("adversary", name), bench.chunks, bench.device)
    handle = target.handle(Informed, lab)
    assert isinstance(handle, Informed)
    return handle


def attacked(
    bench: Bench,
    world: World,
    recipe: Recipe,
    row: str,
    which: str = "reconstructor",
    knobs: Mapping[str, Any] | None = None,
) -> Arrays:
    """What an attack says of every sought record, and how far off that is. Stored as it is done."""
    piece = Piece(f"informed/{bench.scale}/{row}/{which}/{sorted((knobs or {}).items())}/{bench.seed.number}")

    def work(_: Piece) -> Arrays:
        handle = seen(bench, released(bench, world, recipe, row), row)
        said = attack(which, knobs)(handle, seed=bench.seed.child(row, which), track=bench.track)
        assert isinstance(said, Recovered)
        return off(said, world)

    (done,) = bench.chunks.run([piece], work)
    return done


def off(said: Recovered, world: World) -> Arrays:
    """[record] each"""
    x = world.sought.x
    return {
        "guesses": np.asarray(said.guesses),
        "mse": recovery.error(np.asarray(said.guesses), x),
        "nearest": recovery.error(recovery.nearest(x, world.held), x),
        "identified": recovery.own_is_nearest(np.asarray(said.guesses), x),
        "left": np.asarray(said.certificates),
        "right": np.asarray(said.labels) == world.sought.y,
    }


def mnist(bench: Bench) -> Dataset | None:
    path = bench.data / MNIST if bench.data else None
    return from_idx(path) if path and path.is_file() else None


def cifar(bench: Bench) -> Dataset | None:
    path = bench.data / CIFAR if bench.data else None
    return from_npz(path, x="x_train", y="y_train", images=True) if path and path.is_file() else None
