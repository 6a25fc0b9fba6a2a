"""The findings as tables: what each attack is worth, and the control that must find nothing."""

from __future__ import annotations

from collections.abc import Sequence

from engram.report import charts, words
from engram.report.dossier import Dossier, Name
from engram.report.page import Child, Safe, figure, section, table, tag
from engram.types import Finding

RANKED = ("tpr@0.1", "tpr@0.01", "tpr@0.001", "tpr@0")
CLAIMED = ("balanced_accuracy", "ppv@0.1", "ppv@0.01", "epsilon")
LEAST = 0.4  # where the small drawings begin, unless an interval reaches lower


class Notes:
    """Reasons why there is no value, each told once below the table and lettered in its cells."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def cell(self, finding: Finding | None) -> Child:
        if finding is None:
            return tag("span", words.NULL, class_="muted")
        if finding.value is None:
            letter = self._letters.setdefault(finding.reason, chr(ord("a") + len(self._letters)))
            return tag("span", words.NULL, tag("sup", letter), class_="muted")
        return [tag("b", words.value(finding)), tag("small", words.ends(finding))]

    def told(self) -> Child:
        if not self._letters:
            return None
        return tag("span", [[tag("sup", mark), reason, ". "] for reason, mark in self._letters.items()], class_="notes")


def findings(told: Dossier) -> Safe | None:
    """Every attack that gave scores, best first."""
    names = told.ranking()
    if not names:
        return None
    return section("findings", "What each attack achieved", _ranks(told, names), _claims(told, names))


def _ranks(told: Dossier, names: Sequence[Name]) -> Safe:
    notes, low = Notes(), _least(told, names, "auc")
    rows = [_rank_row(told, name, notes, low) for name in names]
    heads = ["Attack", "AUC", "0.5 is guessing, 1 is certainty", *map(words.metric, RANKED), "Records"]
    return figure(
        table(heads, rows, class_="figures"),
        tag("b", "How well scores tell members from non-members. "),
        "AUC: how often a member scores above a non-member. TPR at 1",
        words.THIN,
        "% FPR: the share of members found when one non-member in a hundred may be accused; at 0, the share of members "
        "that score above every non-member. In brackets the interval that covers with probability 95",
        words.THIN,
        "%, over records. Last, the records a line rests on and how many of them are non-members. ",
        notes.told(),
    )


def _rank_row(told: Dossier, name: Name, notes: Notes, low: float) -> list[Child]:
    area = told.finding("auc", name)
    assert area is not None
    cells = [notes.cell(told.finding(metric, name)) for metric in RANKED]
    rests = [tag("b", f"{area.n:,}"), tag("small", f"{area.non_members or 0:,}")]
    return [title(name), notes.cell(area), charts.forest(area, low), *cells, rests]


def _claims(told: Dossier, names: Sequence[Name]) -> Safe:
    notes = Notes()
    rows = [[title(name), *(notes.cell(told.finding(metric, name)) for metric in CLAIMED)] for name in names]
    return figure(
        table(["Attack", *map(words.metric, CLAIMED)], rows, class_="figures"),
        tag("b", "What its claims are worth. "),
        "Here each attack says member or not, by a threshold that it set on models of its own, never on this one. Precision "
        "at a prior: of the records it claims, the share that are members, where one record in ten (or in a hundred) is. "
        "Epsilon: no training that is differentially private with less could have been attacked so well; it is a lower "
        "bound and no guarantee. ",
        notes.told(),
    )


def control(told: Dossier) -> Safe | None:
    """The same scores against a shuffled truth. Whatever they find there is not membership."""
    found = [f for f in told.findings if f.metric == "auc_shuffled" and f.value is not None]
    if not found:
        return None
    low = min([LEAST, *(f.low for f in found if f.low is not None)])
    rows = [
        [title((f.attack, f.variant), f.defence), Notes().cell(f), charts.forest(f, low), "yes" if covers(f) else "no"]
        for f in found
    ]
    return section(
        "control",
        "The control",
        tag("p", *_told(found)),
        figure(
            table(["Attack", "AUC, shuffled", "0.5 is guessing, 1 is certainty", "Covers 0.5"], rows, class_="figures"),
            "Each attack's scores, measured against a membership that was dealt anew at random. There is nothing to find, "
            f"so the intervals, of level {words.percent(found[0].level)} each so that all hold together, must cover 0.5.",
        ),
    )


def covers(finding: Finding) -> bool:
    return finding.low is not None and finding.high is not None and finding.low <= 0.5 <= finding.high


def failed(told: Dossier) -> list[Finding]:
    """Controls that found what is not there."""
    return [f for f in told.findings if f.metric == "auc_shuffled" and f.value is not None and not covers(f)]


def _told(found: Sequence[Finding]) -> list[Child]:
    wrong = [words.of(f) for f in found if not covers(f)]
    if not wrong:
        return ["It found nothing where there is nothing to find: every interval covers 0.5."]
    return [
        tag("b", "The control failed. "),
        f"{words.listed(wrong)} found something where there is nothing to find. Do not rely on what it says above.",
    ]


def title(name: Name, defence: str = "") -> Child:
    """An attack as the first cell of a row: its name, and below it the variant and what it attacked."""
    below = ", ".join(part for part in (name[1], f"behind {defence}" if defence else "") if part)
    return [name[0], tag("small", below) if below else None]


def _least(told: Dossier, names: Sequence[Name], metric: str) -> float:
    lows = [f.low for name in names if (f := told.finding(metric, name)) and f.low is not None]
    return min([LEAST, *lows])
