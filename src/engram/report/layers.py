"""How far the update of each attack's guess is from the one that was shared, tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from engram.report import charts, words
from engram.report.charts import Scale
from engram.report.dossier import UNDEFENDED, Dossier
from engram.report.page import Safe, figure, tag

LEAST = 1e-16  # relative; below it is rounding
ROW, LEFT, RIGHT = 20, 150, 640
COLOURS = 8  # that the style sheet knows


def layers(told: Dossier) -> Safe | None:
    """One row a tensor, one line an attack."""
    found = {
        words.named((t.attack, getattr(t.evidence, "variant", ""))): dict(t.about["residuals"])
        for t in told.told
        if t.defence == UNDEFENDED and t.about.get("residuals")
    }
    if not found:
        return None
    legend = tag("ul", [tag("li", _swatch(k), name) for k, name in enumerate(found)], class_="legend")
    return figure(
        tag("div", _drawn(list(found.values())), legend, class_="beside"),
        "How far the update of each attack's guesses is from the shared one in each tensor of the model, relative to its "
        "length, first layer at the top. A line at the left explains the tensors to rounding; at 1, not at all.",
    )


def _swatch(nth: int) -> Safe:
    return charts.drawing(28, 10, "", tag("path", d="M1 5L27 5", class_=_class(nth)), class_="swatch")


def _class(nth: int) -> str:
    return f"series s{nth % COLOURS}"


def _drawn(found: Sequence[Mapping[str, float]]) -> Safe:
    names = list(found[0])
    bottom = 8 + ROW * len(names)
    x = Scale(LEAST, 1.0, LEFT, RIGHT, log=True)
    marks = [(10.0**k, f"1e{k}" if k else "1") for k in range(round(math.log10(LEAST)), 1, 4)]
    places = [8 + ROW * (nth + 0.5) for nth in range(len(names))]
    named = [charts.text(LEFT - 10, y + 4, name, "mark", "end") for name, y in zip(names, places, strict=True)]
    lines = [
        charts.path([(x(max(one[name], LEAST)), y) for name, y in zip(names, places, strict=True)], _class(k))
        for k, one in enumerate(found)
    ]
    says = "residual of each tensor, for each attack"
    return charts.drawing(RIGHT + 20, bottom + 24, says, charts.x_axis(x, marks, bottom, 4), named, lines)
