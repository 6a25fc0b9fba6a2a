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
.s4 { stroke: #7a6a10; } .s5 { stroke: #5c636b; }
@media (prefers-color-scheme: dark) {
  svg { background: #16181b; } text { fill: #a5aab0; } .axis { fill: #e4e3df; } .grid { stroke: #31353a; }
  .s0 { stroke: #63c2bb; } .s1 { stroke: #e79a67; } .s2 { stroke: #a3a3f0; } .s3 { stroke: #ea8fbd; }
  .s4 { stroke: #d3c15a; } .s5 { stroke: #a5aab0; } }
"""
COLOURS = 6
DASHES = (None, "7 3", "2 3", "9 3 2 3")  # beside the colours, for whoever cannot tell those apart
WIDTH, HEIGHT = 640, 420


@dataclass(frozen=True)
class Series:
    """One line and its name. Places where it is not finite are left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def lines(series: Sequence[Series], x_says: str, y_says: str, *, log: bool = False) -> str:
    """The chart as the text of an SVG file. Both axes begin at 0; with `log` both count factors of ten."""
    kept = [_drawable(s, log) for s in series]
    if not any(kept):
        raise ValueError("there is nothing to draw: no value is finite; with noise 0 every epsilon is unbounded")
    x = _scale([a for points in kept for a, _ in points], 64, WIDTH - 20, log)
    y = _scale([b for points in kept for _, b in points], HEIGHT - 44, 30 + 18 * len(series), log)
    drawn = [charts.path([(x(a), y(b)) for a, b in points], *_look(i)) for i, points in enumerate(kept) if points]
    return tag(
        "svg",
        tag("style", Safe(STYLE)),
        charts.y_axis(y, _marks(y), x.start, x.end),
        charts.x_axis(x, _marks(x), y.start),
        drawn,
        tag("g", [_named(s.name, i, x.start) for i, s in enumerate(series)]),
        charts.text(x.start, 16, y_says, "axis"),
        charts.text(x.end, HEIGHT - 8, x_says, "axis", "end"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{y_says} against {x_says}",
    )


def _drawable(series: Series, log: bool) -> list[charts.Point]:
    points = zip(series.x, series.y, strict=True)
    return [(a, b) for a, b in points if math.isfinite(b) and (min(a, b) > 0 or not log)]


def _scale(values: Sequence[float], start: float, end: float, log: bool) -> Scale:
    if not log:
        return Scale(0.0, max(values) or 1.0, start, end)
    low, high = min(values), max(values)
    return Scale(low, high if high > low else 10 * low, start, end, log=True)


def _marks(scale: Scale) -> list[tuple[float, str]]:
    if not scale.log:
        return [(v, f"{v:g}") for v in charts.round_numbers(scale.low, scale.high)]
    powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    places = [10.0**k * m for k in powers for m in ((1, 2, 5) if len(powers) < 4 else (1,))]
    return [(v, f"{v:g}") for v in places if scale.low <= v <= scale.high]


def _look(nth: int) -> tuple[str, str | None]:
    return f"s{nth % COLOURS}", DASHES[nth % len(DASHES)]


def _named(name: str, nth: int, left: float) -> list[Safe]:
    y = 34 + 18 * nth
    return [charts.path([(left, y - 4), (left + 30, y - 4)], *_look(nth)), charts.text(left + 38, y, name)]
