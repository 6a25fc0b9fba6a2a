"""The papers' tables, ours beside them: one file per paper. A new one is a file here and a line in this table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

from engram import check
from engram.reproduce.cells import Bench, Cell

PAPERS = {
    "deep-leakage": "engram.reproduce.deep_leakage",
    "label-only": "engram.reproduce.label_only",
    "private-language": "engram.reproduce.private_language",
    "renyi": "engram.reproduce.renyi",
}


def paper(name: str) -> Callable[[Bench], Iterator[Cell]]:
    """The function that yields a paper's cells."""
    found: Callable[[Bench], Iterator[Cell]] = importlib.import_module(PAPERS[check.known("paper", name, PAPERS)]).cells
    return found
