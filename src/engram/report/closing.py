"""How a report ends: what the numbers do not say, what others call it, and how to get the same numbers again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from engram.report import words
from engram.report.dossier import Dossier
from engram.report.page import Child, Safe, bullets, section, table, tag, terms

LIMITS = (
    "An AUC is an average. It can be close to 0.5 while a few people are given away with certainty; look at the low false "
    "positive rates and at the most exposed records, not only at the first column.",
    "Intervals are over records, for this one trained model. They do not say how much another training would differ.",
    "An attack gives a lower bound. A stronger one, with more shadow models, more access or more knowledge, may find more; "
    "finding nothing is not a proof that nothing is there.",
    "The adversary is taken to have candidate records with their labels. How many members are among the records it would "
    "meet in practice decides what a claim is worth: see the precision at a prior.",
    "Attacks that train models of their own trained them on records like the candidates; an adversary without such records "
    "does worse.",
    "A low risk on average does not make a model anonymous. The European Data Protection Board (Opinion 28/2024) asks it of "
    "each data subject, by all means reasonably likely to be used; this report is evidence for that, not the answer.",
)


def limits(_: Dossier) -> Safe:
    return section("limits", "How far this goes", bullets(LIMITS))


def tags(told: Dossier) -> Safe | None:
    """The names that taxonomies have for what was asked."""
    asked = told.questions()
    rows = [list(row) for q in words.QUESTIONS if q.name in asked for row in q.tags]
    if not rows:
        return None
    return section("tags", "What others call it", table(["Taxonomy", "Number", "Title"], rows, class_="plain"))


def reproduce(told: Dossier) -> Safe:
    """What it takes to get these numbers again."""
    about, t = told.run.about, told.target
    command = shlex.join(map(str, about.get("command") or ()))
    return section(
        "reproduce",
        "To get these numbers again",
        tag("pre", tag("code", command)) if command else tag("p", "Started from Python; no command was recorded."),
        terms(
            [
                ("Seed", str(about.get("seed", words.NULL))),
                ("Target", tag("code", t.get("identity", words.NULL))),
                ("Run", tag("code", told.run.identity)),
                ("Took", _took(told)),
                ("Versions", _versions(about.get("environment", {}))),
                ("Hardware", _hardware(about.get("environment", {}))),
                ("Recipe", tag("code", t["recipe"], class_="line") if t.get("recipe") else "Not known."),
            ],
            class_="facts",
        ),
        _attacks(told),
    )


def _took(told: Dossier) -> str:
    if told.run.finished is None:
        return "Not finished."
    return f"{words.seconds(told.run.finished - told.run.started)} from start to end, interruptions included"


def _versions(environment: Mapping[str, object]) -> str:
    names = ("engram", "python", "torch", "numpy", "scipy")
    return ", ".join(f"{name} {environment[name]}" for name in names if name in environment)


def _hardware(environment: Mapping[str, object]) -> str:
    cores, threads = environment.get("cores"), environment.get("threads")
    parts = [environment.get("system"), environment.get("processor"), environment.get("device")]
    told = [str(p) for p in parts if p]
    return ", ".join([*told, f"{cores} cores", f"{threads} threads"] if cores else told)


def _attacks(told: Dossier) -> Safe | None:
    """What each attack was run with, and what it cost. One that says several things is listed once."""
    seen: dict[tuple[str, str], Mapping[str, object]] = {}
    for one in told.told:
        seen.setdefault((one.attack, one.defence), one.about)
    if not seen:
        return None
    rows = [_cost(attack, defence, about) for (attack, defence), about in seen.items()]
    return tag("div", table(["Attack", "Asks for", "Queries", "Time", "Knobs"], rows, class_="figures costs"))


def _cost(attack: str, defence: str, about: Mapping[str, object]) -> list[Child]:
    below = ", ".join(part for part in (str(about.get("paper", "")), f"behind {defence}" if defence else "") if part)
    return [
        [attack, tag("small", below)],
        str(about.get("asks", words.NULL)),
        f"{int(str(about.get('queries', 0))):,}",
        words.seconds(float(str(about.get("seconds", 0)))),
        words.knobs(about.get("knobs")) or words.NULL,
    ]
