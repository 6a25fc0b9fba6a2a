"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
import ast
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engram import check
from engram.types import Finding

COMPARISONS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
RULE = re.compile(
    r"(?:(?P<defence>[\w-]+)/)?(?P<attack>[\w-]+)\.(?P<metric>\w+(?:@[\d.]*\d)?)(?:\.(?P<end>low|high))?"
    r"\s*(?P<how>[<>]=?)\s*(?P<bound>[-+.\deE]+)"
)


def store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", default="engram.db", metavar="FILE", help="where runs are kept (default: %(default)s)"
    )


def trying(parser: argparse.ArgumentParser) -> None:
    """What to try on a target."""
    parser.add_argument("--attacks", type=names, metavar="A,B", help="attacks to try (default: all for this access)")
    parser.add_argument(
        "--defences", type=names, metavar="X,Y", help="defences to train the same model with, and attack"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME.KNOB=VALUE", help="a knob, as lira.shadows=128"
    )
    parser.add_argument("--seed", type=int, default=0, help="the root of all randomness (default: %(default)s)")
    parser.add_argument("--report", default=None, metavar="FILE", help="write the report here, as one HTML file")
    parser.add_argument("--redact", action="store_true", help="leave recovered and exposed records out of the report")
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="RULE",
        help='exit with 1 if it holds, as "lira.tpr@0.001>0.05"',
    )


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def knobs(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Name -> knob -> value.

    >>> knobs(["lira.shadows=128", "rmia.mode=offline"])
    {'lira': {'shadows': 128}, 'rmia': {'mode': 'offline'}}
    """
    found: dict[str, dict[str, Any]] = {}
    for setting in settings:
        match = re.fullmatch(r"([\w-]+)\.(\w+)=(.*)", setting)
        if not match:
            raise ValueError(f"--set takes NAME.KNOB=VALUE, such as lira.shadows=128, got {setting!r}")
        name, knob, value = match.groups()
        found.setdefault(name, {})[knob] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@dataclass(frozen=True)
class Rule:
    """A comparison that fails a pipeline. Of the variants of an attack, one that holds is enough."""

    text: str
    defence: str
    attack: str
    metric: str
    end: str
    how: str
    bound: float

    def fits(self, attacks: Sequence[str], defences: Sequence[str]) -> None:
        """An attack or a defence that will not be tried is an error now, not after an hour."""
        check.known("attack of this run", self.attack, (*attacks, "target"))
        if self.defence:
            check.known("defence of this run", self.defence, defences)

    def holds(self, findings: Sequence[Finding]) -> bool:
        """Whether it holds; a finding that is null, or none at all, is an error: then nothing can be said."""
        about = [f for f in findings if (f.defence, f.attack or "target") == (self.defence, self.attack)]
        check.known(f"metric of {self.attack}", self.metric, {f.metric for f in about})
        meant = [f for f in about if f.metric == self.metric]
        ends = [(f, getattr(f, self.end)) for f in meant]
        if any(COMPARISONS[self.how](value, self.bound) for _, value in ends if value is not None):
            return True
        for finding, value in ends:
            if value is None:
                raise ValueError(
                    f"the rule {self.text!r} cannot be judged: {finding.reason or 'there is no such bound'}"
                )
        return False


def rule(text: str) -> Rule:
    match = RULE.fullmatch(text.strip())
    if not match:
        raise ValueError(f'a rule is ATTACK.METRIC>VALUE, such as "lira.auc>0.6" or "lira.auc.low>0.6", got {text!r}')
    told = match.groupdict()
    try:
        bound = float(told["bound"])
    except ValueError:
        raise ValueError(f"a rule compares with a number, got {told['bound']!r} in {text!r}") from None
    return Rule(text, told["defence"] or "", told["attack"], told["metric"], told["end"] or "value", told["how"], bound)
