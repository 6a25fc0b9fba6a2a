"""A paper's table, cell by cell, and what a reproduction is run with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engram.seed import Seed
from engram.types import Chunks, Track, quiet

Scale = Literal["smoke", "laptop", "paper"]


@dataclass(frozen=True)
class Cell:
    """One cell: what the paper printed, what came here, and whether the claim that the row stands for was met."""

    row: str
    column: str
    published: float | None
    ours: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    holds: bool | None = None  # None: the row claims nothing at this scale
    note: str = ""


@dataclass(frozen=True)
class Bench:
    """Where a reproduction runs, how large, on which data, and from which seed."""

    scale: Scale
    seed: Seed
    chunks: Chunks
    data: Path | None = None  # a folder of data sets that do not ship with the tool
    device: str = "cpu"
    track: Track = quiet
