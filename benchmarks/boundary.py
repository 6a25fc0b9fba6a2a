"""Distances to the decision boundary: engram's HopSkipJump, and those of ART 1.20.1 and foolbox 3.3.4, at equal queries.

One network (that of the label-only paper, on MNIST), the same records, one run. The queries of every arm are counted at
the network. Peers run on the first `--peer-records` records; distances are compared on those, speeds per record.

    python benchmarks/boundary.py --data FOLDER [--device cuda] [--peers FOLDER]

`--peers` is a folder of unpacked pure-Python packages (art, foolbox, eagerpy) for a machine where they are not installed.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rows import asked, finish
from torch import nn

from engram.data import Dataset, from_idx, split
from engram.hopskipjump import HopSkipJump, distances
from engram.models import LabelOnlyCNN
from engram.population import Answering
from engram.seed import Seed
from engram.train import Batches, Recipe, fit
from engram.types import Floats

SIZES = (16, 32, 64, 128, 256, 512, 1024, 4096, 16384)
LARGEST = {"cpu": 1024, "cuda": 16384}
ROUNDS = 13  # of ART; about 2,400 queries a record


def main() -> None:
    args = asked(__doc__ or "", data=Path(), peers=Path(), records=40, peer_records=10, rounds=ROUNDS, epochs=12)
    warnings.simplefilter("ignore")
    sys.path.append(str(args.peers.resolve()))
    finish(list(arms(args)), benchmark="boundary", args=args)


class Counted(nn.Module):
    """The network, and how many records it was asked."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.asked = model, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.asked += len(x)
        return self.model(x.float())  # ART asks in float64


def arms(args: Any) -> Iterator[dict[str, Any]]:
    device = torch.device(args.device)
    model, records = prepared(args, device)
    x = torch.as_tensor(records.x, device=device)
    bare = max((speed(model, x, size), size) for size in SIZES if size <= LARGEST[device.type])
    yield row("bare forward pass", f"batches of {bare[1]}", 1 / bare[0], 1.0, bare[0], None, bare[0])
    few = slice(args.peer_records)
    for name, peer in PEERS.items():
        try:
            theirs = peer(model, x[few], records.y[few], args.rounds)
        except ImportError as missing:
            yield row(name, f"not installed: {missing}", None, None, None, None, bare[0])
            continue
        queries = round(theirs["queries"])
        ours = engrams(model, x, records, queries)
        yield row(name, f"{args.peer_records} records", theirs["s"], queries, theirs["queries"] / theirs["s"],
                  float(np.mean(theirs["far"])), bare[0])  # fmt: skip
        yield row(
            f"engram, at {name}'s queries",
            f"{len(x)} records",
            ours["s"],
            ours["queries"],
            ours["queries"] / ours["s"],
            float(np.mean(ours["far"][few])),
            bare[0],
            theirs["s"] / ours["s"],
        )


def row(
    arm: str, note: str, seconds: float | None, queries: float | None, rate: float | None, far: float | None, bare: float,
    faster: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "arm": arm, "s a record": seconds, "queries a record": queries, "queries a s": rate,
        "of the bare pass": None if rate is None else rate / bare, "mean distance": far, "times faster": faster, "note": note,
    }  # fmt: skip


def prepared(args: Any, device: torch.device) -> tuple[nn.Module, Dataset]:
    """The network, trained on 1,000 records, and records that it answers rightly."""
    mnist = from_idx(args.data / "mnist-train-images-idx3-ubyte.gz")
    given, held = split(len(mnist), (1000 / len(mnist), 4 * args.records / len(mnist)), seed=Seed(0))
    recipe = Recipe(LabelOnlyCNN(channels=1, size=28, classes=10), epochs=args.epochs, sampler=Batches(100))
    model = fit(recipe, mnist.take(given), seed=Seed(0), device=device)
    records = mnist.take(held)
    p = Answering(model)(torch.as_tensor(records.x, device=device)).cpu().numpy()
    right = np.flatnonzero(p.argmax(1) == records.y)[: args.records]
    return model, records.take(right)


def speed(model: nn.Module, x: torch.Tensor, size: int) -> float:
    """Records that the network alone answers in a second, in batches of this size; the best of three."""
    batch = x.repeat(-(-size // len(x)), 1, 1, 1)[:size].contiguous()
    times = max(1, 1024 // size)
    rates = []
    with torch.no_grad():
        for _ in range(4):
            began = time.perf_counter()
            for _ in range(times):
                labels = model(batch).argmax(1)
            labels.cpu()
            rates.append(times * size / (time.perf_counter() - began))
    return max(rates[1:])


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began


def engrams(model: nn.Module, x: torch.Tensor, records: Dataset, queries: int) -> dict[str, Any]:
    counted = Counted(model).eval()
    answering = Answering(counted)
    answering(x[:1])  # sizes the passes
    counted.asked = 0

    def ask(q: torch.Tensor) -> Any:
        return answering(q).argmax(1).cpu().numpy()

    def run() -> Any:
        stream = torch.Generator(x.device).manual_seed(0)
        return distances(ask, x, records.y, ask(x), HopSkipJump(queries - 1), stream)

    found, seconds = timed(run)
    return {"far": found.values, "s": seconds / len(x), "queries": counted.asked / len(x)}


def of_art(model: nn.Module, x: torch.Tensor, _: Any, rounds: int) -> dict[str, Any]:
    from art.attacks.evasion import HopSkipJump as Theirs
    from art.estimators.classification import PyTorchClassifier

    counted, values = Counted(model).eval(), x.cpu().numpy()
    where = "gpu" if x.is_cuda else "cpu"
    classifier = PyTorchClassifier(
        counted, nn.CrossEntropyLoss(), tuple(x.shape[1:]), 10, clip_values=(0.0, 1.0), device_type=where
    )
    attack = Theirs(classifier, batch_size=128, max_iter=rounds, verbose=False)
    counted.asked = 0
    made, seconds = timed(lambda: attack.generate(values))
    return peer(np.asarray(made), values, seconds, counted.asked)


def of_foolbox(model: nn.Module, x: torch.Tensor, y: Any, rounds: int) -> dict[str, Any]:
    import foolbox

    counted = Counted(model).eval()
    wrapped = foolbox.PyTorchModel(counted, bounds=(0, 1), device=x.device)
    labels = torch.as_tensor(y, device=x.device)
    start = foolbox.attacks.LinearSearchBlendedUniformNoiseAttack(steps=50, directions=10_000)
    attack = foolbox.attacks.HopSkipJumpAttack(init_attack=start, steps=rounds)
    counted.asked = 0
    (_, made, _), seconds = timed(lambda: attack(wrapped, x, labels, epsilons=None))
    return peer(made.detach().cpu().numpy(), x.cpu().numpy(), seconds, counted.asked)


def peer(made: Floats, x: Floats, seconds: float, queries: int) -> dict[str, Any]:
    far = np.linalg.norm((made - x).reshape(len(x), -1), axis=1)
    return {"far": far, "s": seconds / len(x), "queries": queries / len(x)}


PEERS = {"ART": of_art, "foolbox": of_foolbox}

if __name__ == "__main__":
    main()
