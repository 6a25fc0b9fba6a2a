"""Which data, which network and how many records the label-only paper's rows are made with, at each scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram.data import Dataset, digits, from_csv, from_idx, from_npz
from engram.models import MLP, LabelOnlyCNN, TanhFC
from engram.reproduce.cells import Scale
from engram.train import Adam, Batches, FullBatch, Recipe

Rows = Mapping[str, tuple[str, Mapping[str, Any], int]]  # row -> attack, its knobs, which of its answers


@dataclass(frozen=True)
class Setting:
    """Targets of one recipe, each trained on a random half of `pool` records; the first `candidates` of them are attacked."""

    name: str
    load: Callable[[Path | None], Dataset]  # raises FileNotFoundError where the data is not there
    recipe: Callable[[Dataset], Recipe]
    pool: int
    candidates: int
    targets: int
    rows: Rows
    published: Mapping[str, float] = field(default_factory=dict)  # accuracy in %, by row
    note: str = ""
    within: float | None = None  # how many points from the published ones the accuracies may be; None: any
    masked: int = 10  # targets that are attacked again behind MemGuard


def image_rows(*, boundary: int, combined: int, rotation: int, noise: int = 0, shadows: int = 2) -> Rows:
    """The rows of the paper's table, with the queries that each record may cost; and ours, which need fewer."""
    few = {"shadows": shadows}
    turned = {**few, "translation": 0, "rotation": rotation}
    rows: dict[str, tuple[str, Mapping[str, Any], int]] = {
        "gap": ("gap", {}, 0),
        "confidence": ("confidence", few, 0),
        "largest confidence": ("largest-confidence", few, 0),
        "augmentation, rotation": ("augmentation", turned, 0),
        "augmentation, translation": ("augmentation", {**few, "rotation": 0}, 0),
        "boundary": ("boundary", {**few, "queries": boundary}, 0),
        "combined": ("combined", {**few, "queries": combined}, 0),
        "boundary, against shadows": ("boundary", {**few, "queries": boundary}, 1),
    }
    if noise:  # the paper has it for tables alone
        rows |= {
            "noise": ("noise", {**few, "queries": noise}, 0),
            "noise, against shadows": ("noise", {**few, "queries": noise}, 1),
        }
    return rows


def table_rows(noise: int, shadows: int = 4) -> Rows:
    few = {"shadows": shadows}
    return {
        "gap": ("gap", {}, 0),
        "confidence": ("confidence", few, 0),
        "largest confidence": ("largest-confidence", few, 0),
        "noise": ("noise", {**few, "queries": noise}, 0),
        "noise, against shadows": ("noise", {**few, "queries": noise}, 1),
        "yoqo": ("yoqo", {"shadows": 8}, 0),
    }


def _digits(_: Path | None) -> Dataset:
    return digits()


def _mnist(folder: Path | None) -> Dataset:
    return from_idx(_in(folder) / "mnist-train-images-idx3-ubyte.gz")


def _cifar(folder: Path | None) -> Dataset:
    return from_npz(_in(folder) / "cifar10_20k_5k.npz", x="x_train", y="y_train", images=True)


def _location(folder: Path | None) -> Dataset:
    return from_npz(_in(folder) / "location30.npz")


def _adult(folder: Path | None) -> Dataset:
    return from_csv(_in(folder) / "adult.csv.gz", label="income", drop=("split",))


def _absent(name: str) -> Callable[[Path | None], Dataset]:
    def load(_: Path | None) -> Dataset:
        raise FileNotFoundError(f"{name} is not among the data that this table can read")

    return load


def _in(folder: Path | None) -> Path:
    if folder is None:
        raise FileNotFoundError("no data folder was given; name one with --data")
    return folder


def _cnn(epochs: int) -> Callable[[Dataset], Recipe]:
    def recipe(data: Dataset) -> Recipe:
        channels, size = data.x.shape[1], data.x.shape[2]
        return Recipe(LabelOnlyCNN(channels, size, len(data.classes)), epochs, Adam(1e-3), Batches(100))

    return recipe


def _tanh(epochs: int) -> Callable[[Dataset], Recipe]:
    def recipe(data: Dataset) -> Recipe:
        return Recipe(TanhFC(data.x.shape[1], len(data.classes)), epochs, Adam(1e-3), Batches(100))

    return recipe


def _heart(_: Dataset) -> Recipe:
    return Recipe(MLP(inputs=64, classes=10, width=512), epochs=150, sampler=FullBatch())


MNIST = {
    "gap": 53.2, "confidence": 55.7, "augmentation, rotation": 53.9, "boundary": 57.8, "combined": 58.7,
}  # fmt: skip
LOCATION = {"gap": 72.1, "confidence": 92.6, "noise": 89.2}
ADULT = {"gap": 58.7, "confidence": 59.9, "noise": 58.7}
FEWER = "fewer queries and candidates than the paper's"
SMALL = image_rows(boundary=60, combined=25, noise=30, rotation=10)
MIDDLE = image_rows(boundary=100, combined=40, rotation=4, shadows=4)
FULL = image_rows(boundary=2500, combined=2500, noise=2500, rotation=4, shadows=4)

LAPTOP = (
    Setting("MNIST, 1,000", _mnist, _cnn(20), 2000, 200, 10, MIDDLE, MNIST, FEWER, within=3.0, masked=2),
    Setting(
        "Location, 1,250", _location, _tanh(100), 2500, 2500, 10, table_rows(50), LOCATION, "1,250 of 1,600 records", masked=2
    ),
)  # fmt: skip
PAPER = (
    Setting("MNIST, 1,000", _mnist, _cnn(60), 2000, 2000, 10, FULL, MNIST, within=3.0),
    Setting("CIFAR-10, 2,500", _cifar, _cnn(60), 5000, 5000, 10, FULL),
    Setting("Location, 1,250", _location, _tanh(200), 2500, 2500, 10, table_rows(2500), LOCATION, "1,250 of 1,600 records"),
    Setting("Adult, 10,000", _adult, _tanh(200), 20_000, 20_000, 10, table_rows(2500), ADULT),
    *(Setting(name, _absent(name), _tanh(0), 2, 2, 1, table_rows(2500), told) for name, told in (
        ("CIFAR-100", {"gap": 83.5, "confidence": 88.1, "boundary": 88.0}),
        ("Texas", {"gap": 73.9, "confidence": 84.0, "noise": 80.3}),
        ("Purchase", {"gap": 67.1, "confidence": 86.1, "noise": 87.4}),
    )),
)  # fmt: skip
SETTINGS: Mapping[Scale, tuple[Setting, ...]] = {
    "smoke": (Setting("digits, 150", _digits, _heart, 300, 300, 10, SMALL),),
    "laptop": LAPTOP,
    "paper": PAPER,
}
