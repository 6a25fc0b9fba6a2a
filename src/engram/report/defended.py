"""What a defence changes: how much less the attacks find, and what it costs in accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engram.report import charts, words
from engram.report.charts import Scale
from engram.report.conclusion import STEPS
from engram.report.dossier import UNDEFENDED, Dossier
from engram.report.page import Child, Safe, figure, section, table, tag
from engram.report.tables import Notes
from engram.report.verdict import Rule, verdict
from engram.types import Finding

ROW = 40  # height of a line with its name above it
ACCURACIES = ("accuracy_non_members", "accuracy_members")


@dataclass(frozen=True)
class Change:
    """The same quantity without and with a defence."""

    name: str
    before: Finding
    after: Finding


def defences(told: Dossier) -> Safe | None:
    """Every defence of the run, each attacked by adversaries who know it and train their own models with it."""
    measured = [d for d in told.defences if told.ranking(d) or told.finding(ACCURACIES[0], defence=d)]
    if not measured:
        return None
    return section(
        "defences",
        "What would have stopped it",
        tag(
            "p",
            "The same training on the same records, with a defence. Every attack knows the defence: its own models are "
            "trained with it.",
        ),
        _summary(told, measured),
        [_dumbbells(told, defence) for defence in measured],
    )


def _summary(told: Dossier, measured: Sequence[str]) -> Safe:
    notes = Notes()
    rows = [_arm(told, arm, notes) for arm in (UNDEFENDED, *measured)]
    rate = Rule().rate
    heads = [
        "Model",
        "Verdict",
        "Strongest attack, AUC",
        f"Most found, {words.metric(rate)}",
        *map(words.metric, ACCURACIES),
    ]
    return figure(
        table(heads, rows, class_="figures"),
        "The verdict follows the rule given above, for each model by itself. Accuracy on non-members is what a user of "
        "the model gets. A defence that leaves the first figure lower and the accuracy as it was is worth having. ",
        notes.told(),
    )


def _arm(told: Dossier, defence: str, notes: Notes) -> list[Child]:
    knobs = words.knobs(told.run.about.get("defences", {}).get(defence))
    name: Child = [defence or "as it is", tag("small", knobs) if knobs else None]
    level = STEPS.get(verdict(told.of_arm(defence)).level, "not measured")
    worst = [_worst(told, metric, defence) for metric in ("auc", Rule().rate)]
    accuracy = [told.finding(metric, defence=defence) for metric in ACCURACIES]
    return [name, level, *(notes.cell(f) for f in (*worst, *accuracy))]


def _worst(told: Dossier, metric: str, defence: str) -> Finding | None:
    found = [f for f in told.of_arm(defence) if f.metric == metric]
    return max(found, key=lambda f: -math.inf if f.value is None else f.value, default=None)


def changes(told: Dossier, defence: str) -> list[Change]:
    """The attacks that were measured with and without this defence, best first by what they did without."""
    pairs = [
        (words.named(name), told.finding("auc", name), told.finding("auc", name, defence)) for name in told.ranking()
    ]
    return [Change(name, b, a) for name, b, a in pairs if b and a and a.value is not None]


def _dumbbells(told: Dossier, defence: str) -> Safe:
    costs = [
        Change(words.metric(metric), before, after)
        for metric in ACCURACIES
        if (before := told.finding(metric)) and (after := told.finding(metric, defence=defence))
    ]
    key = tag("p", tag("span", class_="key before"), "as it is ", tag("span", class_="key after"), f"with {defence}")
    panels = [_panel("AUC of the attacks", changes(told, defence), 0.5), _panel("Accuracy", costs, None)]
    return figure(
        tag("div", tag("h3", defence), key, tag("div", panels, class_="grid two")),
        "Left: what each attack achieves without the defence (ring) and with it (dot), with 95",
        words.THIN,
        "% intervals; the dotted line is guessing. Right: what the defence costs.",
    )


def _panel(title: str, rows: Sequence[Change], guessing: float | None) -> Safe | None:
    if not rows:
        return None
    ends = [end for row in rows for f in (row.before, row.after) for end in (f.low, f.value) if end is not None]
    low = min(0.45 if guessing else 0.9, math.floor(20 * min(ends)) / 20)
    x, bottom = Scale(low, 1.0, 6, 334), ROW * len(rows) + 6
    marks = [(v, f"{v:g}" if guessing else words.percent(v)) for v in charts.round_numbers(low, 1.0)]
    chance = charts.stroke(x(guessing), 0, x(guessing), bottom, "chance") if guessing else None
    drawn = [_dumbbell(row, x, ROW * i) for i, row in enumerate(rows)]
    drawing = charts.drawing(340, bottom + 22, title, charts.x_axis(x, marks, bottom, 0), chance, drawn)
    return tag("div", tag("h4", title), drawing)


def _dumbbell(row: Change, x: Scale, top: float) -> list[Safe]:
    """The name, and below it the two intervals a little apart, so that neither hides the other."""
    before, after = (charts.whisker(x, top + y, f, c) for y, f, c in
                     ((23, row.before, "before"), (32, row.after, "after")))  # fmt: skip
    return [charts.text(x.start, top + 13, row.name, "name"), *before, *after]
