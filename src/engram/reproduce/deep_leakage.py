"""Zhu, Liu, Han: Deep Leakage from Gradients, 2019, as its talk shows it, with the exact successors beside it.

Rows: steps against batch size (sigmoid ResNet-20), the deeper network, limits in batch and resolution, noise and precision
with the accuracy they cost, the pruning threshold, larger batches, local steps and sums of participants, the error on each
data set, a sentence with a masked word by matched embeddings and exactly.
Differs from the paper: L-BFGS in float64 with a line search, so its steps are fewer; batches are searched together; the
label is read off first. "smoke" and "laptop" run the paper's LeNet on scikit-learn's digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn

from engram.data import digits, from_idx, from_npz
from engram.data.dataset import Dataset, dataset
from engram.measure.rates import clopper_pearson
from engram.measure.recovery import of_text
from engram.models import BERT, MLP, LeNet, ResNet20
from engram.models.bert import Encoder
from engram.reproduce.cells import Bench, Cell
from engram.reproduce.shared_updates import TESTED, Local, accuracy_of, attacked, said_of
from engram.train import Recipe
from engram.train.loop import started
from engram.train.recipe import Build
from engram.types import Arrays, Floats, Ints, Piece

WORDS = 500
LEAKS = 1e-2  # mean squared error, of pixels in 0..1, below which a picture is recognised
CONVERGED = 1e-10  # of the squared length of the gradient
BATCHES = {1: 270.0, 2: 602.0, 4: 1173.0, 8: 2711.0}
ALTERED: dict[str, tuple[str, dict[str, float], float | None, float | None]] = {
    # row: defence, knobs, published accuracy in per cent, published "leaks"
    **{f"gaussian 1e-{k}": ("gaussian-sharing", {"deviation": 10.0 ** (-k / 2)}, a, leaks)
       for k, a, leaks in ((4, 75.6, 1.0), (3, 73.3, 1.0), (2, 45.3, 0.0), (1, 1.0, 0.0))},
    **{f"laplace 1e-{k}": ("laplace-sharing", {"deviation": 10.0 ** (-k / 2)}, a, leaks)
       for k, a, leaks in ((4, 75.6, 1.0), (3, 73.4, 1.0), (2, 46.2, 0.0), (1, 1.0, 0.0))},
    "half precision": ("half-sharing", {}, 76.1, 1.0),
    "int8": ("int8-sharing", {}, 53.7, 0.0),
    **{f"pruned {p} %": ("pruned-sharing", {"share": p / 100}, None, leaks)
       for p, leaks in ((1, 1.0), (10, 1.0), (20, None), (30, 0.0), (50, 0.0), (70, 0.0))},
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How much of the table a scale runs."""

    seeds: int
    steps: int
    batches: tuple[int, ...]
    rows: tuple[str, ...]  # of ALTERED
    training: int  # steps of the training whose accuracy is told
    sentences: int


SIZES = {
    "smoke": Size(1, 400, (1, 2), ("gaussian 1e-1", "half precision", "pruned 70 %"), 100, 60),
    "laptop": Size(3, 1500, (1, 2, 4, 8), tuple(ALTERED), 400, 400),
    "paper": Size(10, 6000, (1, 2, 4, 8), tuple(ALTERED), 2000, 400),
}


def cells(bench: Bench) -> Iterator[Cell]:
    """Every row of this scale, each stored as it is done."""
    size = SIZES[bench.scale]
    yield from _batch_sizes(bench, size)
    if bench.scale == "paper":
        yield from _networks(bench, size)
    yield from _altered(bench, size)
    yield from _practice(bench, size)
    yield from _data_sets(bench, size)
    yield from _sentences(bench, size)


def _batch_sizes(bench: Bench, size: Size) -> Iterator[Cell]:
    """More records need more steps."""
    build, records = _network(bench)
    before = 0.0
    for batch in size.batches:
        told = attacked(bench, build, records, batch, size.seeds, size.steps, enough=CONVERGED)
        steps = float(np.median(told["steps"]))
        low, high = float(told["steps"].min()), float(told["steps"].max())
        holds = steps > before if batch > 1 and bench.scale != "smoke" else None
        yield Cell(f"batch {batch}", "steps", BATCHES[batch], steps, low, high, size.seeds, holds, "median, range")
        yield _mean(f"batch {batch}", "mse", None, told["mse"])
        before = steps


def _networks(bench: Bench, size: Size) -> Iterator[Cell]:
    """The deeper network, and the limits that the talk states: eight records, 64 x 64 pixels."""
    records = _cifar(bench)
    if records is None:
        yield Cell(
            "sigmoid ResNet-56", "mse", None, None, note="needs cifar10_20k_5k.npz in the folder given by --data"
        )
        return
    deep = ResNet20(classes=10, blocks=9, activation="sigmoid")
    yield _mean(
        "sigmoid ResNet-56, batch 1", "mse", None, attacked(bench, deep, records, 1, size.seeds, size.steps)["mse"]
    )
    for batch in (8, 16):
        told = attacked(bench, LeNet(), records, batch, size.seeds, size.steps)
        yield _mean(f"LeNet, batch {batch}", "mse", None, told["mse"])
    wide = replace(records, x=np.repeat(np.repeat(records.x, 2, 2), 2, 3))
    yield _mean("LeNet, 64 x 64", "mse", None, attacked(bench, LeNet(size=64), wide, 1, size.seeds, size.steps)["mse"])


def _altered(bench: Bench, size: Size) -> Iterator[Cell]:
    """Does it still leak, and what does it cost? The talk writes the variance of the noise."""
    records = digits()
    build = LeNet(channels=1, size=8)
    accuracy = accuracy_of(bench, "none", {}, size.training)
    yield Cell(
        "nothing done", "accuracy, %", 76.3, 100 * accuracy, *_interval(accuracy), TESTED, None, "digits, an MLP"
    )
    for row in size.rows:
        name, knobs, published, leaks = ALTERED[row]
        told = attacked(bench, build, records, 1, size.seeds, size.steps, guard=(name, knobs))
        ours = float((told["mse"] < LEAKS).mean())
        low, high = clopper_pearson(int((told["mse"] < LEAKS).sum()), len(told["mse"]))
        yield Cell(row, "leaks", leaks, ours, low, high, len(told["mse"]), _agrees(leaks, low, high))
        accuracy = accuracy_of(bench, name, knobs, size.training)
        yield Cell(row, "accuracy, %", published, 100 * accuracy, *_interval(accuracy), TESTED)
        yield from _exactly(bench, row, name, knobs, size)


def _practice(bench: Bench, size: Size) -> Iterator[Cell]:
    """What participants do anyway: more records, several local steps, a sum of several; more pixels."""
    small, records = LeNet(channels=1, size=8), digits()
    wide = replace(records, x=np.kron(records.x, np.ones((1, 1, 2, 2), records.x.dtype)), name="digits, twice as wide")
    cases: dict[str, tuple[Build, Dataset, int, Local | None, int]] = {
        "4 records": (small, records, 4, None, 1),
        "16 records": (small, records, 16, None, 1),
        "5 local steps": (small, records, 1, (0.1, 5), 1),
        "sum of 4 participants": (small, records, 1, None, 4),
        "16 x 16 pixels": (LeNet(channels=1, size=16), wide, 1, None, 1),
    }
    for row, (build, held, batch, local, parties) in cases.items():
        if bench.scale == "smoke" and row != "5 local steps":
            continue
        told = attacked(bench, build, held, batch, size.seeds, size.steps, local=local, parties=parties)
        good = told["mse"] < LEAKS
        low, high = clopper_pearson(int(good.sum()), len(good))
        yield Cell(row, "leaks", None, float(good.mean()), low, high, len(good))
        if local is None and held is records:
            accuracy = accuracy_of(bench, "none", {}, size.training, batch * parties)
            yield Cell(row, "accuracy, %", None, 100 * accuracy, *_interval(accuracy), TESTED)


def _agrees(leaks: float | None, low: float, high: float) -> bool | None:
    """Whether the interval excludes what was published; nothing is claimed where it is not met, only said."""
    return True if leaks is not None and low <= leaks <= high else None


def _exactly(bench: Bench, row: str, name: str, knobs: dict[str, float], size: Size) -> Iterator[Cell]:
    """The exact attacks behind the same defence: the share of records they still recover."""
    for exact, build in (("linear-layer", MLP()), ("spear", MLP(width=128)), ("recursive", LeNet(channels=1, size=8))):
        told = attacked(bench, build, digits(), 1, size.seeds, size.steps, guard=(name, knobs), named=exact)
        right = told["mse"] < LEAKS
        low, high = clopper_pearson(int(right.sum()), len(right))
        yield Cell(row, f"leaks to {exact}", None, float(right.mean()), low, high, len(right))


def _data_sets(bench: Bench, size: Size) -> Iterator[Cell]:
    published = {"digits": 0.0038, "mnist": 0.0038, "cifar10": 0.0069, "faces": 0.0055}
    for name, records in _sources(bench):
        side, channels = records.x.shape[-1], records.x.shape[1]
        build = LeNet(channels=channels, size=side, classes=len(records.classes))
        for attack_name in ("deep-leakage", "recursive"):
            told = attacked(bench, build, records, 1, size.seeds, size.steps, named=attack_name)
            note = {"digits": "published on MNIST", "cifar10": "published on CIFAR-100", "faces": "published on LFW"}
            cell = _mean(f"{name}, {attack_name}", "mse", published[name], told["mse"])
            met = bool(np.median(told["mse"]) < published[name])
            yield replace(cell, holds=met, note=f"{note.get(name, '')}; the claim is about the median".lstrip("; "))


def _sentences(bench: Bench, size: Size) -> Iterator[Cell]:
    """By embeddings that are searched and matched to the vocabulary, as the talk does; and exactly, by DAGER."""
    piece = Piece(f"deep-leakage/masked sentences/{size.sentences}/{bench.seed.number}")
    (told,) = bench.chunks.run([piece], lambda _: _texts(bench, size))
    for steps, right in zip(told["steps"], told["right"], strict=True):
        low, high = clopper_pearson(int(right.sum()), right.size)
        row = f"sentence, {int(steps)} steps"
        yield Cell(
            row, "tokens right", None, float(right.mean()), low, high, right.size, None, "random words, a small BERT"
        )
    share = float(told["exact"].mean())
    low, high = clopper_pearson(int(told["exact"].sum()), told["exact"].size)
    yield Cell("sentence, dager", "tokens right", None, share, low, high, told["exact"].size, bool(share == 1))


class _Tail(nn.Module):
    """The network behind the table of embeddings: its records are embeddings."""

    def __init__(self, whole: Encoder) -> None:
        super().__init__()
        self.blocks, self.norm, self.head, self.masked = whole.blocks, whole.norm, whole.head, whole.masked

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(self.blocks(h))[..., self.masked, :])
        return logits


def _texts(bench: Bench, size: Size) -> Arrays:
    """A sentence with a masked word; 0 is the mask. The label, the word behind it, is read off the last layer."""
    seed = bench.seed.child("sentences")
    recipe = Recipe(BERT(vocabulary=WORDS, length=8, masked=3, width=32))
    model = started(recipe, seed)
    assert isinstance(model, Encoder)
    tokens, word = seed.numpy().integers(1, WORDS, (1, 8)), seed.child("word").numpy().integers(1, WORDS, 1)
    tokens[:, 3] = 0
    records = dataset(tokens, word, classes=tuple(map(str, range(WORDS))))
    exact = said_of(recipe, model, records, "dager", {}, seed, bench)
    right = of_text(exact.guesses, tokens)[0].value if exact is not None else 0.0
    with torch.no_grad():
        table, places = model.token.weight.double(), model.position.weight.double()
        hidden = dataset((table[tokens] + places).numpy(), word, classes=records.classes)
    tail, found = _Tail(model), []
    steps = np.array([10, 20, 30, size.sentences])
    for count in steps:
        knobs = {"steps": int(count), "restarts": 1, "spread": 0.03}
        said = said_of(Recipe(lambda: tail), tail, hidden, "deep-leakage", knobs, seed, bench)
        assert said is not None
        found.append(_nearest(torch.as_tensor(said.guesses[0]), table, places) == tokens[0])
    return {"steps": steps, "right": np.array(found), "exact": np.full(8, right == 1.0)}


def _nearest(guesses: torch.Tensor, table: torch.Tensor, places: torch.Tensor) -> Ints:
    """The word at each place. Attention takes its rows in any order, so which row is which place is matched as well."""
    apart = torch.cdist(guesses[:, None] - places, table.expand(len(guesses), *table.shape))  # [row, place, word]
    near, words = apart.min(2)
    row, place = linear_sum_assignment(near.numpy())
    found = np.zeros(len(places), np.int64)
    found[place] = words.numpy()[row, place]
    return found


def _interval(share: float) -> tuple[float, float]:
    low, high = clopper_pearson(round(share * TESTED), TESTED)
    return 100 * low, 100 * high


def _mean(row: str, column: str, published: float | None, values: Floats) -> Cell:
    """The median over seeds, and the range."""
    return Cell(
        row, column, published, _finite(np.median(values)), _finite(values.min()), _finite(values.max()), len(values),
        note="median, range",
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _network(bench: Bench) -> tuple[Build, Dataset]:
    records = _cifar(bench) if bench.scale == "paper" else None
    if records is not None:
        return ResNet20(classes=10, activation="sigmoid"), records
    return LeNet(channels=1, size=8), digits()


def _cifar(bench: Bench) -> Dataset | None:
    path = bench.data / "cifar10_20k_5k.npz" if bench.data else None
    return from_npz(path, x="x_test", y="y_test", images=True) if path and path.is_file() else None


def _sources(bench: Bench) -> Iterator[tuple[str, Dataset]]:
    yield "digits", digits()
    if bench.data is None or bench.scale == "smoke":
        return
    mnist, faces = bench.data / "mnist-t10k-images-idx3-ubyte.gz", bench.data / "orl_faces.npz"
    if mnist.is_file():
        yield "mnist", from_idx(mnist)
    if (cifar := _cifar(bench)) is not None:
        yield "cifar10", cifar
    if faces.is_file():
        held = from_npz(faces, images=True)
        yield "faces", replace(held, x=np.ascontiguousarray(held.x[:, :, 11:101:3, 1:91:3]))
