"""Where a model keeps a record: each tensor as a map coloured by importance, and how many of its rows a record wakes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engram.report import charts, pictures
from engram.report.alone import HEIGHT, STYLE, WIDTH
from engram.report.charts import Scale
from engram.report.page import Child, Safe, tag
from engram.types import Array, Floats

EMPTY, FULL = (246, 242, 233), (120, 34, 20)  # from no importance to the most
CELL, GAP, LEFT = 9, 30, 20
WIDEST = 900


def parameter_map(importance: Mapping[str, Array]) -> str:
    """Each tensor of the model as a map, a row for each unit, darker = more important; the text of an SVG file."""
    most = max(float(np.max(values)) for values in importance.values())
    if not most > 0:
        raise ValueError("there is nothing to draw: no parameter is of any importance")
    grids = {name: np.atleast_2d(_rows(values)) / most for name, values in importance.items()}
    cell = min(CELL, WIDEST / max(grid.shape[1] for grid in grids.values()))
    top, drawn = 34.0, []
    for name, grid in grids.items():
        wide, high = cell * grid.shape[1], max(cell, 1.0) * grid.shape[0]
        drawn += [
            charts.text(LEFT, top - 6, f"{name}, {grid.shape[0]} x {grid.shape[1]}"),
            _grid(grid, top, wide, high),
        ]
        top += high + GAP
    wide = 2 * LEFT + cell * max(grid.shape[1] for grid in grids.values())
    return _file(max(wide, 320), top, "importance of each parameter, darker = more", *drawn)


def histogram(counts: Floats, x_says: str, y_says: str) -> str:
    """How often each of the numbers 0, 1, 2, ... came; the text of an SVG file."""
    if not counts.sum():
        raise ValueError("there is nothing to draw: nothing was counted")
    x = Scale(-0.5, len(counts) - 0.5, 64, WIDTH - 20)
    y = Scale(0.0, float(counts.max()), HEIGHT - 44, 34)
    every = max(1, len(counts) // 12)
    marks = [(float(k), str(k)) for k in range(0, len(counts), every)]
    levels = [(v, f"{v:g}") for v in charts.round_numbers(0.0, float(counts.max()))]
    return _file(
        WIDTH, HEIGHT, f"{y_says} against {x_says}",
        charts.y_axis(y, levels, x.start, x.end), charts.x_axis(x, marks, y.start),
        charts.bars(np.arange(len(counts) + 1, dtype=np.float64) - 0.5, counts, x, y, "s0"),
        charts.text(x.start, 16, y_says, "axis"), charts.text(x.end, HEIGHT - 8, x_says, "axis", "end"),
    )  # fmt: skip


def _rows(values: Array) -> Floats:
    """A unit a line; a bias is one line."""
    rows: Floats = np.asarray(values, float).reshape(len(values), -1) if values.ndim > 1 else np.asarray(values, float)
    return rows


def _grid(grid: Floats, top: float, wide: float, high: float) -> Safe:
    shade = np.array(EMPTY) + grid[..., None] * (np.array(FULL) - np.array(EMPTY))
    sharp = np.rint(shade).astype(np.uint8).repeat(CELL, 0).repeat(CELL, 1)  # or viewers would blur it
    address = pictures.address(sharp)
    return tag(
        "image", href=address, x=LEFT, y=round(top, 1), width=round(wide, 1), height=round(high, 1),
        preserveAspectRatio="none",
    )  # fmt: skip


def _file(width: float, height: float, says: str, *parts: Child) -> str:
    return tag(
        "svg", tag("style", Safe(STYLE)), *parts,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=says,
    )  # fmt: skip
