"""Attacks on updates, and trainings on altered ones, as stored pieces: what the rows of deep leakage are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import nn

from engram.access import Gradients, Lab, Unknown
from engram.access.handle import Knowledge
from engram.attacks import attack
from engram.data import digits
from engram.data.dataset import Dataset
from engram.data.fingerprints import fingerprint
from engram.defences import defence
from engram.measure.recovery import error, matched
from engram.models import MLP
from engram.reproduce.cells import Bench
from engram.seed import Seed
from engram.train import Recipe, shared, summed
from engram.train.loop import started
from engram.train.recipe import Build
from engram.train.sharing import functional, left_by, passed, trainable
from engram.types import Arrays, Floats, Piece, Recovered, T

TESTED = 597  # digits
Guard = tuple[str, dict[str, float]]
Local = tuple[float, int]  # rate and number of local steps


def attacked(
    bench: Bench,
    build: Build,
    records: Dataset,
    batch: int,
    seeds: int,
    steps: int,
    *,
    named: str = "deep-leakage",
    guard: Guard | None = None,
    local: Local | None = None,
    parties: int = 1,
    enough: float = 1e-26,
) -> Arrays:
    """For each seed another network and batch: the worst error, the residual and the steps, [seed]; infinite if refused.

    With `local`, the update is of so many local steps; with several `parties`, only the sum of their updates is seen, each
    of `batch` records.
    """
    knobs = {"steps": steps, "enough": enough, "restarts": 1} if named == "deep-leakage" else {}
    recipe = Recipe(build)
    recipe = recipe if guard is None else defence(guard[0], guard[1])(recipe)
    told = fingerprint(recipe, records.x[:1], records.name, batch, named, knobs, local, parties, bench.seed)
    pieces = [Piece(f"deep-leakage/{told}/{k}", {"seed": k}) for k in range(seeds)]

    def work(piece: Piece) -> Arrays:
        seed = bench.seed.child(records.name, batch, piece.part["seed"])
        chosen = records.take(seed.numpy().choice(len(records), batch * parties, replace=False))
        model = _widened(started(recipe, seed), seed).to(bench.device)
        count = _Steps()
        said = said_of(recipe, model, chosen, named, knobs, seed, bench, count, local, parties)
        if said is None:
            return {"mse": np.array(np.inf), "residual": np.array(np.inf), "steps": np.array(0)}
        return {"mse": _worst(said, chosen), "residual": said.certificates.max(), "steps": np.array(count.steps)}

    found = list(bench.track(bench.chunks.run(pieces, work), f"{named}, batch {batch}", total=len(pieces)))
    return {key: np.array([float(one[key]) for one in found]) for key in found[0]}


def _worst(said: Recovered, records: Dataset) -> Floats:
    guesses = np.asarray(said.guesses)
    pairs = matched(guesses, records.x)
    if (pairs < 0).any():
        return np.array(np.inf)
    return np.array(error(guesses[pairs], records.x).max())


def said_of(
    recipe: Recipe,
    model: nn.Module,
    records: Dataset,
    named: str,
    knobs: dict[str, float],
    seed: Seed,
    bench: Bench,
    count: _Steps | None = None,
    local: Local | None = None,
    parties: int = 1,
) -> Recovered | None:
    """What the attack says of the update that these records leave; None where it refuses."""
    rate, steps = local or (None, 1)
    rows = np.array_split(np.arange(len(records)), parties)
    updates = [
        shared(recipe, model, records.take(own), seed=seed, rate=rate, steps=steps, dtype=torch.float64) for own in rows
    ]
    update = summed(updates) if parties > 1 else updates[0]
    handle = Gradients(
        model, recipe.loss, update, shape=records.x.shape[1:], classes=len(records.classes),
        knowledge=Knowledge(recipe), lab=Lab(seed, bench.chunks, bench.device),
    )  # fmt: skip
    try:
        said: Recovered = attack(named, knobs)(handle, seed=seed.child(named), track=count or _Steps())  # type: ignore[assignment]
    except (Unknown, ValueError):
        return None
    return said


class _Steps:
    """A track that counts."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:  # noqa: ARG002
        for item in items:
            self.steps += 1
            yield item


def _widened(model: nn.Module, seed: Seed) -> nn.Module:
    """Residual networks are drawn as the paper draws: evenly from -0.5 to 0.5, or sigmoid leaves no gradient to match."""
    if any(isinstance(m, nn.BatchNorm2d) for m in model.modules()):
        stream = torch.Generator().manual_seed(seed.child("weights").number)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.rand(p.shape, generator=stream) - 0.5)
    return model.eval()


def accuracy_of(bench: Bench, name: str, knobs: dict[str, float], steps: int, batch: int = 32) -> float:
    """Accuracy on held-out digits of a network that was trained on updates altered in this way."""
    seed, recipe = bench.seed.child("training"), Recipe(MLP())
    recipe = recipe if name == "none" else defence(name, knobs)(recipe)
    (told,) = bench.chunks.run(
        [Piece(f"deep-leakage/training/{fingerprint(recipe, steps, batch, seed)}")],
        lambda _: {"accuracy": np.array(_trained_on(recipe, steps, batch, seed))},
    )
    return float(told["accuracy"])


def _trained_on(recipe: Recipe, steps: int, batch: int, seed: Seed) -> float:
    data, stream = digits(), seed.numpy()
    order = stream.permutation(len(data))
    train, test = data.take(order[TESTED:]), data.take(order[:TESTED])
    model = functional(started(recipe, seed))
    weights = trainable(model)
    x, y = torch.as_tensor(train.x), torch.as_tensor(train.y)
    for k in range(steps):
        rows = torch.as_tensor(stream.integers(0, len(train), batch))
        told = passed(recipe, left_by(model, recipe.loss, weights, x[rows], y[rows]), seed.child(k))
        weights = {n: w - 0.1 * g for (n, w), g in zip(weights.items(), told, strict=True)}
    answers = torch.func.functional_call(model, weights, (torch.as_tensor(test.x),)).argmax(-1).numpy()
    return float((answers == test.y).mean())
