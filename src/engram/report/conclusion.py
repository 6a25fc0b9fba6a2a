"""The verdict in words: what came out, how sure that is, and the rule it follows from."""

from __future__ import annotations

from collections.abc import Iterable

from engram.report import words
from engram.report.dossier import UNDEFENDED, Dossier
from engram.report.page import Child, Safe, tag
from engram.report.verdict import LEVELS, Rule, Verdict, verdict
from engram.types import Finding

HEADLINES = {
    "gives away": "This model gives away who was in its training.",
    "trace": "This model shows a trace of who was in its training.",
    "nothing": "Nothing was found.",
    "unknown": "Nothing can be said: no attack was measured.",
    "records": "This update gives away records of the batch behind it.",
    "no records": "No attack recovered a record from this update.",
    "weights": "These weights give away the record that they were trained on.",
    "no weights": "No attack recovered a record from these weights.",
}
RECOVERED, BEATEN = "recovered@", "beats_nearest"
STEPS = {"nothing": "nothing found", "trace": "a trace", "gives away": "gives away who was in it"}


def conclusion(told: Dossier) -> Safe:
    """The verdict in words, where it stands between nothing and much, and the rule it came from."""
    if any(f.metric.startswith(RECOVERED) for f in told.findings):
        return _of_records(told)
    rule = Rule()
    found = verdict(told.of_arm(UNDEFENDED), rule)
    steps = [tag("li", STEPS[level], class_="here" if level == found.level else None) for level in LEVELS]
    return tag(
        "section",
        tag("h2", "Verdict", class_="eyebrow"),
        tag("p", HEADLINES[found.level], class_="verdict"),
        tag("ol", steps, class_="levels"),
        [tag("p", tag("b", "A claim does not hold. "), f"{words.of(f)}: {f.reason}.") for f in _contradictions(told)],
        [tag("p", sentence) for sentence in _because(told, found)],
        tag("p", tag("b", "The rule. "), *rule_in_words(rule, found), class_="rule"),
        id="verdict",
    )


def _contradictions(told: Dossier) -> list[Finding]:
    """Where a measured epsilon lies above the claimed one; the largest first."""
    loud = [f for f in told.findings if f.metric == "broken_claim"]
    return sorted(loud, key=lambda f: -(f.value or 0))


def headline(findings: Iterable[Finding]) -> tuple[str, Finding | None]:
    """Which of the headlines these findings have earned, and the finding that it rests on where records were sought.

    What is recovered from an update is recovered, so no interval decides that. Of weights, a guess may lie nearer than any
    record held by chance: the interval must lie above one half.
    """
    plain = [f for f in findings if f.attack and not f.defence]
    if not any(f.metric.startswith(RECOVERED) for f in plain):
        return verdict(plain).level, None
    released = [f for f in plain if f.metric == BEATEN]
    tried = [f for f in released or plain if f.metric.startswith((BEATEN, RECOVERED)) and f.value is not None]
    best = max(tried, key=lambda f: f.value or 0, default=None)
    if best is None:
        return "unknown", None
    found = (best.low or 0) > 0.5 if released else bool(best.value)
    what = "weights" if released else "records"
    return what if found else f"no {what}", best


def _of_records(told: Dossier) -> Safe:
    earned, best = headline(told.findings)
    did = "told more than the nearest record held about" if best and best.metric == BEATEN else "recovered"
    said = (
        "Every attack of the plan was refused; the reasons are below."
        if best is None
        else f"The best attack, {words.of(best)}, {did} {words.percent(best.value or 0)} of "
        f"{words.count(best.n, 'record')}."
    )
    no_proof = (
        "That no attack of this plan recovered a record is not proof that none could."
        if earned.startswith("no ")
        else ""
    )
    return tag(
        "section",
        tag("h2", "Verdict", class_="eyebrow"),
        tag("p", HEADLINES[earned], class_="verdict"),
        tag("p", said),
        tag("p", no_proof) if no_proof else None,
        id="verdict",
    )


def _because(told: Dossier, found: Verdict) -> list[Child]:
    if not told.ranking():
        return ["Every attack of the plan was refused or has not been run; the reasons are below."]
    best = told.ranking()[0]
    area, few = told.finding("auc", best), told.finding(Rule().rate, best)
    said: list[Child] = [
        [
            "Shown one member and one non-member, the strongest attack, ",
            tag("b", words.named(best)),
            ", tells which is which with probability ",
            tag("b", words.interval(area)),
            "; a coin would with 0.5.",
        ]
    ]
    if few is not None and few.value is not None:
        said.append(
            f"When it may accuse no more than one non-member in a hundred, it finds {words.interval(few)} of the members; "
            f"guessing would find 1{words.THIN}%."
        )
    elif few is not None:
        said.append(f"How it does when it must hardly ever be wrong, these records cannot tell: {few.reason}.")
    if found.level == "nothing" and area is not None and area.high is not None:
        said.append(
            "That is not proof that there is nothing. It says that no attack in the table did surely better than guessing, "
            f"and that an AUC up to {area.high:.3f} would have been compatible with what was seen."
        )
    return said


def rule_in_words(rule: Rule, found: Verdict) -> list[Child]:
    """Written from the rule itself, so that it cannot drift from what was applied."""
    level, rate = words.percent(rule.level), words.metric(rule.rate)
    together = (
        f"Each interval is widened until all {len(found.bounds)} of them hold together with probability {level}, "
        "because the strongest attack was picked after the fact."
        if len(found.bounds) > 1
        else f"The interval is that of level {level}."
    )
    return [
        f"“Gives away” means that for some attack the lower end of the interval lies above an AUC of {rule.auc:g}, or "
        f"above {words.percent(rule.tpr)} for {rate}; “a trace”, that it lies above guessing (an AUC of 0.5, or "
        f"{words.percent(rule.fpr)}). {together} The lines are conventions of this tool, not law. ",
        _reached(found),
    ]


def _reached(found: Verdict) -> Child:
    if not found.because:
        return None
    told = [f"{words.of(b.finding)}, {words.metric(b.finding.metric)} at least {_low(b.finding.metric, b.low)}"
            for b in found.because[:2]]  # fmt: skip
    more = len(found.because) - len(told)
    return f"Reached by {'; '.join(told)}{f'; and {more} more' if more else ''}."


def _low(metric: str, low: float) -> str:
    return f"{low:.3f}" if metric in words.PLAIN else words.percent(low)
