"""Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022, row by row.

Table III (activations, with the nearest record held as the oracle), figures 10 to 12 and 14 to 16: membership from a loss
under a known and an unknown start, another fixed set, a start near convergence, private training, epochs, zero gradients.
Beside the paper: inversion of the training run, and the bound of Hayes, Mahloujifar, Balle 2023.
Differs from the paper: "smoke" and "laptop" run handwritten digits of 8 x 8 pixels with hundreds of shadows, so what is
published on MNIST is not to be reached there, only its order; "paper" runs MNIST, if it is in the folder given by --data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from scipy.stats import t as student

from engram.access import Informed
from engram.accounting.reconstruction import success
from engram.data.dataset import Dataset
from engram.defences import defence
from engram.measure.ranks import ranked
from engram.measure.rates import clopper_pearson
from engram.measure.recovery import error, nearest
from engram.measure.roc import auc, auc_interval
from engram.models import ReleasedCNN
from engram.population import Asked, OneMore, population
from engram.reconstruction import Study, learned
from engram.reproduce.cells import Bench, Cell
from engram.reproduce.fixed_sets import World, attacked, cifar, cut, recipe, released, seen, world
from engram.seed import Seed
from engram.signals import loss
from engram.train import SGD, FullBatch, Given, Recipe, fit
from engram.train.loop import started
from engram.train.sharing import functional, left_by, trainable
from engram.types import Arrays, Floats

PUBLISHED = {
    "relu": 0.0182, "max(-0.5, x)": 0.0096, "elu": 0.0089, "sigmoid": 0.0085, "softplus": 0.0083, "silu": 0.0091,
    "leaky_relu": 0.0092, "tanh": 0.0086, "celu": 0.0077, "selu": 0.0083, "gelu": 0.0088, "identity": 0.0085,
}  # fmt: skip
START = Seed(1)  # public: the adversary knows where training starts
CLIP = 10.0  # of the paper's private training


@dataclass(frozen=True)
class Size:
    """How much of the table a scale runs."""

    fixed: int
    shadows: int
    sought: int
    epochs: int
    study: dict[str, int]  # of the reconstructor
    activations: tuple[str, ...]
    inverted: tuple[str, ...]
    longer: tuple[int, ...]  # epochs
    few: tuple[int, ...]  # shadows of another fixed set
    epsilons: tuple[float, ...]
    models: int  # for each of the four distributions of figure 10


SIZES = {
    "smoke": Size(60, 150, 20, 20, {"width": 64, "epochs": 20}, ("relu", "elu"), ("elu",), (), (), (), 10),
    "laptop": Size(
        500, 1197, 100, 100, {"width": 500, "epochs": 100}, tuple(PUBLISHED), ("elu", "relu"), (10, 30, 300), (0, 100, 400),
        (10.0, 1e3, 1e5), 100,
    ),
    "paper": Size(
        10_000, 49_000, 1000, 100, {"width": 1000, "epochs": 100}, tuple(PUBLISHED), ("elu", "relu"), (10, 30, 300),
        (0, 100, 1000, 4000), (1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e6), 1000,
    ),
}  # fmt: skip


def cells(bench: Bench) -> Iterator[Cell]:
    """Every row of this scale, each stored as it is done."""
    size = SIZES[bench.scale]
    here = world(bench, size.fixed, size.shadows, size.sought)
    made = partial(recipe, here, epochs=size.epochs, start=START)
    yield from _baselines(here)
    by = {name: attacked(bench, here, made(name), name, knobs=size.study) for name in size.activations}
    yield from _activations(by, judged=bench.scale != "smoke")
    yield from _shares("elu", by["elu"])
    yield from _inverted(bench, size, here, made)
    yield from _unknown(bench, size, here)
    yield from _near_convergence(bench, size, here, made, by["elu"])
    yield from _longer(bench, size, here)
    yield from _another_fixed_set(bench, size, here, made)
    yield from _private(bench, size, here, made)
    yield from _membership(bench, size, here)
    yield from _zero_gradients(size, here)
    if bench.scale == "paper":
        yield from colour(bench, cifar(bench))


def colour(
    bench: Bench,
    data: Dataset | None,
    cut_at: tuple[int, int, int] = (4000, 15_000, 1000),
    epochs: int = 100,
    width: int = 1024,
) -> Iterator[Cell]:
    """Tables V and VI: pictures in colour, with a reconstructor of a quarter of the paper's width and two of its losses."""
    row = "CIFAR-10, reduced reconstructor"
    if data is None:
        yield Cell(row, "mean MSE", None, None, note="needs cifar10_20k_5k.npz in the folder given by --data")
        return
    here = cut(bench, data, *cut_at, "colour")
    side = data.x.shape[-1]
    for activation in ("elu", "relu"):
        plain = Recipe(
            ReleasedCNN(data.x.shape[1], side, len(data.classes), activation), epochs, optimiser=SGD(0.01, momentum=0.9),
            sampler=FullBatch(),
        )  # fmt: skip
        known = replace(plain, start=Given(started(plain, START).state_dict()))
        knobs = {"kind": "cnn", "width": width, "epochs": epochs, "rate": 1e-4}
        told = attacked(bench, here, known, f"colour {activation}", knobs=knobs)
        yield mean(f"{row}, {activation}", "mean MSE", told["mse"])
        yield mean(f"{row}, {activation}", "nearest record held", told["nearest"])


def _baselines(here: World) -> Iterator[Cell]:
    x = here.sought.x
    yield mean("nearest record held", "mean MSE", error(nearest(x, here.held), x))
    yield mean("mean record", "mean MSE", error(np.broadcast_to(here.held.mean(0), x.shape), x))


def _activations(by: dict[str, Arrays], *, judged: bool) -> Iterator[Cell]:
    """The claim of table III: ReLU is the outlier. Judged on differences for the same records."""
    for name, told in by.items():
        cell = mean(name, "mean MSE", told["mse"], PUBLISHED[name])
        if name == "relu" and judged and len(by) > 2:
            others = np.mean([t["mse"] for other, t in by.items() if other != "relu"], 0)
            low, high = interval(told["mse"] - others)
            note = f"above the mean of the others by {low:.2g} to {high:.2g}"
            cell = replace(cell, holds=True if low > 0 else False if high < 0 else None, note=note)
        yield cell


def _shares(row: str, told: Arrays, note: str = "") -> Iterator[Cell]:
    """How often the guess is nearer than all that is held, nearer to its own record than to others, and rightly labelled."""
    for column, right in (
        ("beats nearest", told["mse"] < told["nearest"]), ("identified", told["identified"]), ("label right", told["right"]),
    ):  # fmt: skip
        low, high = clopper_pearson(int(right.sum()), len(right))
        yield Cell(row, column, None, float(right.mean()), low, high, len(right), note=note)


def _inverted(bench: Bench, size: Size, here: World, made: Callable[[str], Recipe]) -> Iterator[Cell]:
    """Beyond the paper: the training run is solved for the record."""
    for name in size.inverted:
        told = attacked(bench, here, made(name), name, "inversion")
        row = f"{name}, inversion"
        median = float(np.median(told["mse"]))
        low, high = np.quantile(told["mse"], (0.05, 0.95))
        holds = median < 1e-4 if name == "elu" else None
        yield Cell(
            row, "median MSE", None, median, float(low), float(high), len(told["mse"]), holds, "5 and 95 % quantiles"
        )
        yield mean(row, "mean MSE", told["mse"])
        yield from _shares(row, told)


def _unknown(bench: Bench, size: Size, here: World) -> Iterator[Cell]:
    """The control: who does not know the start must find nothing."""
    told = attacked(bench, here, recipe(here, "elu", epochs=size.epochs), "elu, unknown start", knobs=size.study)
    yield mean("elu, unknown start", "mean MSE", told["mse"])
    for cell in _shares("elu, unknown start", told):
        blind = cell.column == "identified" and (cell.low or 0) <= 3 / len(here.sought)
        yield replace(cell, holds=blind, note="must be near chance") if cell.column == "identified" else cell


def _near_convergence(
    bench: Bench, size: Size, here: World, made: Callable[[str], Recipe], from_start: Arrays
) -> Iterator[Cell]:
    """Figure 12: an adversary who first sees the model when it has nearly converged."""
    before = fit(made("elu"), here.public.take(range(len(here.public) // 2)), seed=bench.seed.child("before"))
    late = replace(made("elu"), start=Given({k: w.detach().clone() for k, w in before.state_dict().items()}))
    told = attacked(bench, here, late, "elu, start near convergence", knobs=size.study)
    low, high = interval(told["mse"] - from_start["mse"])
    note = f"above that from the start by {low:.2g} to {high:.2g}"
    yield replace(
        mean("elu, start near convergence", "mean MSE", told["mse"]), note=note,
        holds=True if low > 0 else False if high < 0 else None,
    )  # fmt: skip


def _longer(bench: Bench, size: Size, here: World) -> Iterator[Cell]:
    """Figure 15: more epochs."""
    for epochs in size.longer:
        longer = recipe(here, "elu", epochs=epochs, start=START)
        yield mean(
            f"elu, {epochs} epochs", "mean MSE", attacked(bench, here, longer, f"elu {epochs}", knobs=size.study)["mse"]
        )


def _another_fixed_set(bench: Bench, size: Size, here: World, made: Callable[[str], Recipe]) -> Iterator[Cell]:
    """Figure 11: a reconstructor of one fixed set, fine-tuned on few shadows of another, against one from scratch.

    Its inputs are taken about where the other set leads: the mean of its shadows, or with none the model without a record.
    """
    if not size.few:
        return
    half = len(here.public) // 2
    there = World(here.public.take(range(size.fixed)), here.public.take(range(half, 2 * half)), here.sought)
    here = replace(here, public=here.public.take(range(half, 2 * half)))
    study = Study(size.study["width"], epochs=size.study["epochs"])
    seed = bench.seed.child("transfer")

    def shadows(w: World, name: str) -> tuple[Informed, Floats, Dataset]:
        handle = seen(bench, released(bench, w, made("elu"), name), name)
        shadow = handle.shadows(half, track=bench.track)
        return handle, shadow.weights, shadow.records

    _, first, records = shadows(here, "one fixed set")
    whole = learned(first, records.x, study, seed=seed)
    handle, second, records = shadows(there, "another fixed set")
    weights = handle.weights
    for few in size.few:
        tuned = replace(whole, mean=handle.without().astype(np.float64))
        if few:
            start = {k: w.detach().clone() for k, w in whole.module.state_dict().items()}
            tuned = learned(second[:few], records.x[:few], replace(study, start=start), seed=seed, like=whole)
            scratch = learned(second[:few], records.x[:few], study, seed=seed)
            yield mean(f"another fixed set, {few} shadows", "from scratch", error(scratch(weights), there.sought.x))
        yield mean(f"another fixed set, {few} shadows", "fine-tuned", error(tuned(weights), there.sought.x))


def _private(bench: Bench, size: Size, here: World, made: Callable[[str], Recipe]) -> Iterator[Cell]:
    """Figure 14: private training, attacked by who knows it; and what no attack can exceed."""
    for epsilon in size.epsilons:
        guarded = defence("private", {"epsilon": epsilon, "clip_norm": CLIP, "rate": 1.0})(made("elu"))
        row = f"elu, epsilon {epsilon:g}"
        told = attacked(bench, here, guarded, row, knobs=size.study)
        yield mean(row, "mean MSE", told["mse"])
        identified = next(c for c in _shares(row, told) if c.column == "identified")
        most = success(guarded.step.noise_multiplier, 1.0, size.epochs, 1 / len(here.sought)).most  # type: ignore[attr-defined]
        holds = (identified.low or 0) <= most
        yield replace(identified, holds=holds, note=f"of {len(here.sought)}; no attack exceeds {most:.3g}")
        model = fit(guarded, here.fixed, seed=bench.seed.child("private accuracy"))
        with torch.no_grad():
            right = model(torch.as_tensor(here.public.x)).argmax(1).numpy() == here.public.y
        low, high = clopper_pearson(int(right.sum()), len(right))
        yield Cell(row, "accuracy", None, float(right.mean()), low, high, len(right))


def _membership(bench: Bench, size: Size, here: World) -> Iterator[Cell]:
    """Figure 10: the loss of one record, of models trained with it and of models trained with another instead."""
    n, x = len(here.fixed), here.fixed
    pool = replace(x, x=np.concatenate([here.sought.x[:1], here.public.x[:1], x.x]),
                   y=np.concatenate([here.sought.y[:1], here.public.y[:1], x.y]))  # fmt: skip
    own = np.repeat([0, 1], size.models)
    for row, start in (("known start", START), ("unknown start", None)):
        models = population(
            recipe(here, "elu", epochs=size.epochs, start=start), pool, OneMore(np.arange(2, n + 2), own),
            seed=bench.seed.child("figure 10", row), chunks=bench.chunks, asked=Asked((loss,)), records=1,
            device=bench.device, track=bench.track,
        )  # fmt: skip
        scores = ranked(-models.of(loss)[:, 0, 0], own == 0)
        value, (low, high) = auc(scores), auc_interval(scores)[:2]
        apart = value == 1.0 if start else high < 1.0
        yield Cell(f"loss of one record, {row}", "AUC", None, value, low, high, 2 * size.models, apart)


def _zero_gradients(size: Size, here: World) -> Iterator[Cell]:
    """Figure 16: the share of a record's gradient that is exactly zero, layer by layer; a black pixel's is, always."""
    for activation in ("relu", "elu"):
        for epochs in (0, size.epochs):
            plain = recipe(here, activation, epochs=epochs, start=START)
            model = functional(fit(plain, here.fixed, seed=START)) if epochs else functional(started(plain, START))
            shares = [_zeros(model, plain, here.sought.take([k])) for k in range(len(here.sought))]
            for layer in shares[0]:
                told = np.array([share[layer] for share in shares])
                yield mean(f"zero gradients, {activation}, epoch {epochs}", layer, told)


def _zeros(model: torch.nn.Module, plain: Recipe, record: Dataset) -> dict[str, float]:
    weights = trainable(model)
    made = left_by(model, plain.loss, weights, torch.as_tensor(record.x), torch.as_tensor(record.y))
    return {name: float((g == 0).float().mean()) for name, g in zip(weights, made, strict=True) if g.ndim > 1}


def mean(row: str, column: str, values: Floats, published: float | None = None) -> Cell:
    """Over records, with Student's interval."""
    return Cell(row, column, published, float(values.mean()), *interval(values), len(values))


def interval(values: Floats, level: float = 0.95) -> tuple[float, float]:
    half = float(student.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return float(values.mean()) - half, float(values.mean()) + half
