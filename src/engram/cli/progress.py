"""A progress bar with the time left, on a terminal, for what takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from engram.types import Track, quiet

T = TypeVar("T")
PATIENCE = 2.0  # seconds before anything is shown
WIDTH = 24


def track() -> Track:
    """A bar where errors are shown on a terminal; silence elsewhere."""
    return bar if sys.stderr.isatty() else quiet


def bar(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Yields the items and draws how far they have come."""
    total = len(items) if total is None and isinstance(items, Sized) else total
    began, shown = time.monotonic(), False
    for done, item in enumerate(items, 1):
        yield item
        elapsed = time.monotonic() - began
        if elapsed > PATIENCE or shown:
            shown = True
            print(f"\r{drawn(label, done, total, elapsed)}\x1b[K", end="", file=sys.stderr, flush=True)
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def drawn(label: str, done: int, total: int | None, elapsed: float) -> str:
    """One line of progress.

    >>> drawn("training", 1, 4, 10.0)
    'training  ######..................  1 of 4, 30 s left'
    """
    if not total:
        return f"{label}  {done}, {_span(elapsed)}"
    filled = WIDTH * done // total
    left = elapsed / done * (total - done)
    return f"{label}  {'#' * filled}{'.' * (WIDTH - filled)}  {done} of {total}, {_span(left)} left"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
