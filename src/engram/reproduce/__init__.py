"""The papers' tables, ours beside them: one file per paper. A new one is a file here and a line in this table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from engram import check
from engram.reproduce.cells import Bench, Cell

PAPERS = {
    "deep-leakage": "engram.reproduce.deep_leakage",
    "informed-adversary": "engram.reproduce.informed_adversary",
    "label-only": "engram.reproduce.label_only",
    "mnemonist": "engram.reproduce.mnemonist",
    "private-language": "engram.reproduce.private_language",
    "renyi": "engram.reproduce.renyi",
}


def paper(name: str) -> Callable[[Bench], Iterator[Cell]]:
    """The function that yields a paper's cells."""
    found: Callable[[Bench], Iterator[Cell]] = importlib.import_module(PAPERS[check.known("paper", name, PAPERS)]).cells
    return found


def drawing(name: str) -> Callable[[Sequence[Cell]], Mapping[str, str]] | None:
    """What draws a paper's figures from its cells, each the text of an SVG file by its name; not every paper has one."""
    draw: Callable[[Sequence[Cell]], Mapping[str, str]] | None
    draw = getattr(importlib.import_module(PAPERS[check.known("paper", name, PAPERS)]), "figures", None)
    return draw
