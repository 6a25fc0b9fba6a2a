"""The verdict, and the one rule it comes from: a pure function of the findings, so that it can be read and disputed.

An attack is picked because it did best among many, so each interval is first widened until all of them hold together
(Bonferroni). Widening a stored interval: the distance from value to end grows with the normal quantile, on the logit
scale, which for DeLong's interval is exact; and no lower end exceeds that of Clopper and Pearson, where it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from scipy.special import expit, logit
from scipy.stats import norm

from engram.measure import simultaneous
from engram.measure.rates import at_least
from engram.types import Finding

Level = Literal["gives away", "trace", "nothing", "unknown"]
LEVELS: tuple[Level, ...] = ("nothing", "trace", "gives away")


@dataclass(frozen=True)
class Rule:
    """Where the lines are drawn. Conventions of this tool; neither law nor a property of nature."""

    auc: float = 0.6
    tpr: float = 0.05  # five times what guessing gets
    fpr: float = 0.01
    level: float = 0.95  # with which all intervals hold together

    @property
    def rate(self) -> str:
        """The name of the second metric."""
        return f"tpr@{self.fpr:g}"

    @property
    def limits(self) -> dict[str, float]:
        """From here on, the model gives its members away."""
        return {"auc": self.auc, self.rate: self.tpr}

    @property
    def chance(self) -> dict[str, float]:
        """What guessing gets; anything surely above it is a trace."""
        return {"auc": 0.5, self.rate: self.fpr}


@dataclass(frozen=True)
class Bound:
    """A finding, and the lower end of its interval when all intervals are to hold together."""

    finding: Finding
    low: float


@dataclass(frozen=True)
class Verdict:
    """The level reached, the bounds that reached it (strongest first), and how many were compared."""

    level: Level
    because: tuple[Bound, ...]
    bounds: tuple[Bound, ...]


def verdict(findings: Iterable[Finding], rule: Rule | None = None) -> Verdict:
    """What the findings of one model amount to. Look at `Rule` before quoting it."""
    rule = rule or Rule()
    judged = [f for f in findings if f.metric in rule.limits and f.value is not None]
    each = simultaneous(rule.level, max(1, len(judged)))
    bounds = sorted((Bound(f, lower_end(f, each)) for f in judged), key=lambda b: (b.finding.metric, -b.low))
    if not bounds:
        return Verdict("unknown", (), ())
    if above := _above(bounds, rule.limits):
        return Verdict("gives away", above, tuple(bounds))
    if above := _above(bounds, rule.chance):
        return Verdict("trace", above, tuple(bounds))
    return Verdict("nothing", (), tuple(bounds))


def _above(bounds: Iterable[Bound], lines: Mapping[str, float]) -> tuple[Bound, ...]:
    return tuple(b for b in bounds if b.low > lines[b.finding.metric])


def lower_end(finding: Finding, level: float) -> float:
    """The lower end of this interval at a higher level. Errs low where it errs."""
    assert finding.value is not None
    assert finding.low is not None
    value, low = finding.value, finding.low
    wider = norm.isf((1 - level) / 2) / norm.isf((1 - finding.level) / 2)
    if wider > 1 and 0 < low < value < 1:
        low = float(expit(logit(value) - wider * (logit(value) - logit(low))))
    return min(low, _exact(finding, level))


def _exact(finding: Finding, level: float) -> float:
    """Clopper and Pearson's lower end for a rate of members; of an area, only where it is one, from disjoint pairs."""
    assert finding.value is not None
    if finding.non_members is None:
        return 1.0
    members = finding.n - finding.non_members
    if finding.metric == "auc":
        pairs = min(members, finding.non_members)
        return at_least(pairs, pairs, (1 - level) / 2) if finding.value == 1 else 1.0
    return at_least(round(finding.value * members), members, (1 - level) / 2)
