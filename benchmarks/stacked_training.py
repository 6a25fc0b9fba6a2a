"""How much faster many models train as one stacked computation than in a loop of the same `fit`.

Both arms train the same models (same seeds, same records, same steps) and are interleaved; the loop trains a few of the
models and is scaled to all, since it is a sum. Before anything is timed, stacked weights are compared with looped ones.

    python benchmarks/stacked_training.py                      a curve over sizes, on two CPU cores
    python benchmarks/stacked_training.py --device cuda        the same, and 1,024 models of 784-10-10 at full batch
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rows import asked, finish

from engram.data import Dataset, dataset
from engram.models import MLP, SmallCNN
from engram.seed import Seed
from engram.train import SGD, Adam, Batches, FullBatch, Recipe
from engram.train.loop import fit_many
from engram.train.plan import planned
from engram.types import Ints

SAME = 1e-3  # stacked and looped training round differently, and training multiplies the difference


@dataclass(frozen=True)
class Case:
    name: str
    recipe: Recipe
    shape: tuple[int, ...]
    records: int
    shadows: int
    goal: str = ""
    halves: bool = True  # each model gets a half of the records, its own; else all get all
    looped: int = 4  # models that the loop trains
    repeats: int = 5


def cases(device: str) -> Iterator[Case]:
    def mlp(width: int, sampler: Any, epochs: int = 20) -> Recipe:
        return Recipe(MLP(inputs=64, classes=10, width=width), epochs=epochs, optimiser=Adam(1e-3), sampler=sampler)

    yield Case("MLP 64, batches of 32", mlp(64, Batches(32)), (64,), 500, 64, ">= 10 on two CPU cores")
    yield Case("MLP 128, batches of 64", mlp(128, Batches(64)), (64,), 500, 64, "never slower")
    yield Case("MLP 256, full batch", mlp(256, FullBatch(), 60), (64,), 500, 64, "never slower")
    yield Case("MLP 512, full batch", mlp(512, FullBatch(), 60), (64,), 150, 64, "never slower")
    yield Case("MLP 1024, batches of 128", mlp(1024, Batches(128), 5), (64,), 500, 64, "never slower", True, 2)
    cnn = Recipe(SmallCNN(channels=1, size=28), epochs=2, optimiser=Adam(1e-3), sampler=Batches(64))
    yield Case("small CNN, 28 x 28, batches of 64", cnn, (1, 28, 28), 512, 32, ">= 3 on a GPU, never slower", True, 2)
    if device != "cpu":
        narrow = Recipe(
            MLP(inputs=784, classes=10, width=10, activation="elu"), epochs=100,
            optimiser=SGD(0.01, momentum=0.9), sampler=FullBatch(),
        )  # fmt: skip
        yield Case("784-10-10 ELU, full batch of 10,000", narrow, (784,), 10_000, 1024, ">= 80 on an H200", False, 8)


def main() -> None:
    args = asked(__doc__ or "", only="")
    rows = [measured(case, args.device) for case in cases(args.device) if args.only in case.name]
    finish(rows, benchmark="stacked training", args=args)


def measured(case: Case, device: str) -> dict[str, Any]:
    data = made(case)
    plan = planned(case.recipe, data, case.records, device)
    block = min(plan.block, case.shadows)
    same(case, data, device)
    loops, stacks = [], []
    timed(lambda: looped(case, data, range(case.looped), device), device)  # warm up
    timed(lambda: stacked(case, data, block if plan.stacked else 1, plan.stacked, device), device)
    for _ in range(case.repeats):
        loops.append(timed(lambda: looped(case, data, range(case.looped), device), device) / case.looped * case.shadows)
        stacks.append(timed(lambda: stacked(case, data, block if plan.stacked else 1, plan.stacked, device), device))
    loop, stack = statistics.median(loops), statistics.median(stacks)
    return {
        "case": case.name, "models": case.shadows, "block": block, "stacked s": stack,
        "ms a model": 1e3 * stack / case.shadows,
        "loop s": loop, "ratio": loop / stack, "goal": case.goal, "note": plan.reason,
    }  # fmt: skip


def stacked(case: Case, data: Dataset, block: int, stack: bool, device: str) -> None:
    for start in range(0, case.shadows, block):
        many = range(start, min(start + block, case.shadows))
        if stack:
            fit_many(case.recipe, data, rows_of(case, many), seeds(many), device=device)
        else:
            looped(case, data, many, device)


def looped(case: Case, data: Dataset, models: range, device: str) -> None:
    for m in models:
        fit_many(case.recipe, data, rows_of(case, [m]), seeds([m]), stacked=False, device=device)


def same(case: Case, data: Dataset, device: str) -> None:
    """Two stacked models equal the same two trained alone, after one epoch."""
    from dataclasses import replace

    brief = replace(case.recipe, epochs=1)
    both = fit_many(brief, data, rows_of(case, range(2)), seeds(range(2)), device=device).weights()
    for m in range(2):
        alone = fit_many(brief, data, rows_of(case, [m]), seeds([m]), stacked=False, device=device).weights()
        for name, w in alone.items():
            apart = float((both[name][m] - w[0]).abs().max() / w.abs().max())
            assert apart < SAME, f"{case.name}: {name} of model {m} differs by {apart}"


def timed(work: Any, device: str) -> float:
    _wait(device)
    began = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def made(case: Case) -> Dataset:
    stream = np.random.default_rng(0)
    records = case.records * (1 + case.halves)
    x = stream.normal(size=(records, *case.shape)).astype(np.float32)
    return dataset(x, stream.integers(0, 10, records))


def rows_of(case: Case, models: Sequence[int]) -> Ints:
    """[model, record] which records each model is given"""
    if not case.halves:
        return np.tile(np.arange(case.records), (len(models), 1))
    orders = [Seed(0).child("half", m).numpy().permutation(2 * case.records) for m in models]
    return np.stack([np.sort(order[: case.records]) for order in orders])


def seeds(models: Sequence[int]) -> list[Seed]:
    return [Seed(0).child("model", m) for m in models]


if __name__ == "__main__":
    main()
