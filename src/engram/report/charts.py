"""Drawings, from a few primitives: a scale, axes, lines, intervals, bars. SVG written by hand; colours are the page's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engram.report.page import Child, Safe, tag
from engram.types import Finding, Floats

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """From numbers to places along one side of a drawing. What lies outside is put on the edge."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = (self._bent(value) - self._bent(self.low)) / (self._bent(self.high) - self._bent(self.low))
        return round(self.start + share * (self.end - self.start), 2)

    def _bent(self, value: float) -> float:
        return math.log10(value) if self.log else value


def drawing(width: float, height: float, says: str, *parts: Child, class_: str | None = None) -> Safe:
    """A drawing that scales with its place. `says` is read aloud where it cannot be seen."""
    return tag("svg", *parts, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=says, class_=class_)


def text(x: float, y: float, words: str, class_: str | None = None, anchor: str | None = None) -> Safe:
    return tag("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def stroke(x1: float, y1: float, x2: float, y2: float, class_: str) -> Safe:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Iterable[Point], class_: str, dash: str | None = None) -> Safe:
    """A line through the points; those that fall on the one before are left out."""
    kept: list[Point] = []
    for point in points:
        if not kept or point != kept[-1]:
            kept.append(point)
    told = "M" + "L".join(f"{x:g} {y:g}" for x, y in kept)
    return tag("path", d=told, class_=class_, stroke_dasharray=dash)


def steps(xs: Sequence[float], ys: Sequence[float]) -> list[Point]:
    """A staircase that keeps each height until the next place: what holds up to there."""
    points = [(xs[0], ys[0])]
    for x, y in zip(xs[1:], ys[1:], strict=True):
        points += [(x, points[-1][1]), (x, y)]
    return points


def x_axis(scale: Scale, marks: Sequence[tuple[float, str]], y: float, top: float | None = None) -> list[Safe]:
    """Marks below a drawing, with lines up to `top` if that is given."""
    lines = [] if top is None else [stroke(scale(v), y, scale(v), top, "grid") for v, _ in marks]
    return [*lines, *(text(scale(v), y + 15, told, "mark", "middle") for v, told in marks)]


def y_axis(scale: Scale, marks: Sequence[tuple[float, str]], x: float, right: float) -> list[Safe]:
    """Marks to the left of a drawing, with lines to its right side."""
    lines = [stroke(x, scale(v), right, scale(v), "grid") for v, _ in marks]
    return [*lines, *(text(x - 6, scale(v) + 4, told, "mark", "end") for v, told in marks)]


def whisker(scale: Scale, y: float, finding: Finding, class_: str) -> list[Safe]:
    """The interval as a line, the value as a dot on it."""
    if finding.value is None or finding.low is None or finding.high is None:
        return []
    line = stroke(scale(finding.low), y, scale(finding.high), y, f"reach {class_}")
    return [line, tag("circle", cx=scale(finding.value), cy=y, r=3.6, class_=f"dot {class_}")]


def forest(finding: Finding, low: float, mark: float = 0.5) -> Safe:
    """One interval as a small drawing for a table's cell, against the line of guessing."""
    scale = Scale(low, 1.0, 6, 154)
    parts = [stroke(scale(mark), 0, scale(mark), 24, "chance"), whisker(scale, 12, finding, "main")]
    return drawing(160, 24, f"interval from {finding.low:.3f} to {finding.high:.3f}", *parts, class_="forest")


def bars(edges: Floats, heights: Floats, x: Scale, y: Scale, class_: str) -> Safe:
    """A histogram as one outline, closed along the bottom."""
    xs, ys = [x(float(e)) for e in edges], [y(float(h)) for h in heights]
    top = [point for i, up in enumerate(ys) for point in ((xs[i], up), (xs[i + 1], up))]
    return path([(xs[0], y(y.low)), *top, (xs[-1], y(y.low))], class_)


def round_numbers(low: float, high: float, about: int = 4) -> list[float]:
    """Numbers with few digits between two ends, about so many.

    >>> round_numbers(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough * 0.75)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]
