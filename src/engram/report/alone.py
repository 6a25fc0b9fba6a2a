"""A line chart that is a file of its own: SVG with its colours in it, for light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engram.report import charts
from engram.report.charts import Scale
from engram.report.page import Safe, tag

STYLE = """
svg { font: 12px system-ui, sans-serif; background: #fcfbf9; }
text { fill: #5c636b; } .axis { fill: #1f2328; } .grid { stroke: #e3dfd8; } path { fill: none; stroke-width: 2; }
.s0 { stroke: #0f6e6a; } .s1 { stroke: #b4531c; } .s2 { stroke: #4b4aa8; } .s3 { stroke: #a8326e; }
@media (prefers-color-scheme: dark) {
  svg { background: #16181b; } text { fill: #a5aab0; } .axis { fill: #e4e3df; } .grid { stroke: #31353a; }
  .s0 { stroke: #63c2bb; } .s1 { stroke: #e79a67; } .s2 { stroke: #a3a3f0; } .s3 { stroke: #ea8fbd; } }
"""
COLOURS = 4
WIDTH, HEIGHT = 640, 420


@dataclass(frozen=True)
class Series:
    """One line and its name. Places where it is not finite are left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def lines(series: Sequence[Series], x_says: str, y_says: str) -> str:
    """The chart as the text of an SVG file; both axes begin at 0."""
    kept = [[(a, b) for a, b in zip(s.x, s.y, strict=True) if math.isfinite(b)] for s in series]
    if not any(kept):
        raise ValueError("there is nothing to draw: no value is finite; with noise 0 every epsilon is unbounded")
    x = Scale(0.0, max(a for points in kept for a, _ in points) or 1.0, 64, WIDTH - 20)
    y = Scale(0.0, max(b for points in kept for _, b in points) or 1.0, HEIGHT - 44, 30 + 18 * len(series))
    drawn = [
        charts.path([(x(a), y(b)) for a, b in points], f"s{i % COLOURS}") for i, points in enumerate(kept) if points
    ]
    return tag(
        "svg",
        tag("style", Safe(STYLE)),
        charts.y_axis(y, _marks(y), x.start, x.end),
        charts.x_axis(x, _marks(x), y.start),
        drawn,
        [_named(s.name, i, x.start) for i, s in enumerate(series)],
        charts.text(x.start, 16, y_says, "axis"),
        charts.text(x.end, HEIGHT - 8, x_says, "axis", "end"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{y_says} against {x_says}",
    )


def _marks(scale: Scale) -> list[tuple[float, str]]:
    return [(v, f"{v:g}") for v in charts.round_numbers(scale.low, scale.high)]


def _named(name: str, nth: int, left: float) -> list[Safe]:
    y = 34 + 18 * nth
    return [charts.stroke(left, y - 4, left + 22, y - 4, f"s{nth % COLOURS}"), charts.text(left + 30, y, name)]
