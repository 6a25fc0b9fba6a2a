"""How a report begins: what was audited, when, and who may read about it."""

from __future__ import annotations

from engram.report import words
from engram.report.dossier import Dossier
from engram.report.page import Child, Safe, tag, terms


def head(told: Dossier) -> Safe:
    target, run = told.target, told.run
    when = f"Run {run.id}, {words.moment(run.started)}"
    unfinished = tag("p", "This run has not finished. What follows is what was stored so far.", class_="notice")
    return tag(
        "header",
        tag("p", "Engram · what a model remembers", class_="eyebrow"),
        tag("h1", target.get("name", "unnamed")),
        tag("p", when, class_="when"),
        unfinished if run.finished is None else None,
        _private(told),
        _facts(told),
    )


def _private(told: Dossier) -> Safe:
    if told.redact:
        return tag(
            "p",
            tag("b", "Redacted. "),
            "The records, their labels and their numbers are left out.",
            class_="notice",
        )
    return tag(
        "p",
        tag("b", "Private. "),
        "This file shows training records and says that they were in the training. It was created readable by its owner "
        "only; keep it so. ",
        tag("code", "--redact"),
        " writes a copy without them.",
        class_="notice",
    )


def _facts(told: Dossier) -> Safe:
    t = told.target
    shape = " × ".join(map(str, t.get("shape", ())))
    return terms(
        [
            ("Model", f"{t.get('model', 'unknown')}, {words.count(int(t.get('parameters', 0)), 'parameter')}"),
            (
                "Data",
                f"{t.get('data', 'unknown')}, {shape}, {words.count(len(t.get('classes', ())), 'class', 'classes')}",
            ),
            ("Candidates", f"{words.count(t.get('records', 0), 'record')}, {t.get('members', 0):,} of them members"),
            ("Accuracy", _accuracy(told)),
            ("Duplicates", t.get("duplicates") or None),
            ("Notes", [tag("span", note, class_="line") for note in t.get("notes", ())] or None),
        ],
        class_="facts",
    )


def _accuracy(told: Dossier) -> Child:
    inside, outside = told.finding("accuracy_members"), told.finding("accuracy_non_members")
    if inside is None or outside is None:
        return None
    return f"{words.value(inside)} on members, {words.value(outside)} on non-members"
