"""engram audit: attacks on a target, stored, judged and reported."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engram.cli import asking, tables
from engram.cli.outcome import Outcome
from engram.cli.progress import track

if TYPE_CHECKING:
    from engram.store import Run, Store
    from engram.target import Target
    from engram.types import Finding

SHOWN = (
    "auc",
    "tpr@0.01",
    "accuracy_members",
    "accuracy_non_members",
    "labels_right",
    "beats_nearest",
    "psnr",
    "certificate",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", default="", help="a Python file that defines `target` (default: the embedded one)"
    )
    asking.trying(parser)
    asking.store(parser)


def run(args: argparse.Namespace) -> Outcome:
    from engram.target import embedded, load

    rules = [asking.rule(text) for text in args.fail_if]
    plan = planned(args)
    return audited(load(args.target) if args.target else embedded(), plan, args, rules)


def planned(args: argparse.Namespace) -> Any:
    from engram.audit import Plan

    told = {"attacks": args.attacks, "defences": args.defences}
    given = {name: value for name, value in told.items() if value is not None}
    return Plan(knobs=asking.knobs(args.set), seed=args.seed, **given)


def audited(target: Target, plan: Any, args: argparse.Namespace, rules: Sequence[asking.Rule] = ()) -> Outcome:
    """Audit, write the report where one was asked for, and say what was found."""
    from engram.audit import audit
    from engram.report import writable, write
    from engram.store import Store

    for rule in rules:
        rule.fits(plan.attacks, plan.defences)
    if args.report:
        writable(args.report)
    with Store(args.store) as store:
        done = audit(target, plan, store=store, command=("engram", *args.words), track=track())
        report = str(write(store, done.id, args.report, redact=args.redact)) if args.report else ""
        found = store.findings(done.id)
        held = [rule.text for rule in rules if rule.holds(found)]
        return Outcome(
            told(done, found) | {"report": report, "held": held}, words(store, done, report, held), int(bool(held))
        )


def told(done: Run, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "run": done.id,
        "target": done.about["target"],
        "findings": [dataclasses.asdict(f) for f in found],
        "environment": done.about["environment"],
    }


def words(store: Store, done: Run, report: str, held: Sequence[str]) -> str:
    from engram.report.conclusion import HEADLINES, headline

    found = store.findings(done.id)
    shown = [f for f in found if f.metric in SHOWN or f.metric.startswith("recovered@")]
    lines = [tables.findings(shown), "", HEADLINES[headline(found)[0]]]
    lines += [f"run {done.id} in {store.path}: everything that was measured is shown by: engram show {done.id}"]
    lines += [f"report: {report}"] if report else []
    lines += [f"held: {rule}" for rule in held]
    return "\n".join(lines)
