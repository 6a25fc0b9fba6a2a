"""engram demo: the embedded target, undefended and defended, every attack, a report."""

from __future__ import annotations

import argparse

from engram.cli import asking, audit
from engram.cli.outcome import Outcome

DEFENCES = ("private",)
PRIVATE = ("private.rate=1.0", "private.noise_multiplier=2.0")  # all records in every step: few steps, so it ends soon


def arguments(parser: argparse.ArgumentParser) -> None:
    asking.trying(parser)
    asking.store(parser)
    parser.set_defaults(report="report.html", defences=DEFENCES)


def run(args: argparse.Namespace) -> Outcome:
    from engram.target import embedded

    rules = [asking.rule(text) for text in args.fail_if]
    if "private" in args.defences:
        args.set = [*PRIVATE, *args.set]
    plan = audit.planned(args)
    return audit.audited(embedded(), plan, args, rules)
