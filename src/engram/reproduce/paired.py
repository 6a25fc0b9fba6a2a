"""Is one thing above another, over paired seeds? Nothing is claimed where the interval leaves it open."""

from __future__ import annotations

from engram.reproduce.cells import Cell
from engram.reproduce.label_only import interval
from engram.types import Floats


def difference(
    row: str, column: str, values: Floats, published: float | None = None, within: float | None = None
) -> Cell:
    """Whether paired differences are above 0; with `within`, whether they lie between -within and within.

    It holds where the whole interval says so, does not hold where the whole interval says the contrary.
    """
    mean, low, high = interval(values)
    if within is None:
        holds = True if low > 0 else False if high < 0 else None
        claim = "above"
    else:
        holds = True if -within < low and high < within else False if low > within or high < -within else None
        claim = f"within {within:g}"
    return Cell(row, column, published, mean, low, high, len(values), holds, f"{claim}, of paired differences")
