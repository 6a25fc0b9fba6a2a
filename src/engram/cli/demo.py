"""engram demo: the embedded target, undefended and defended, every attack, a report."""

from __future__ import annotations

import argparse

from engram.cli import asking, audit
from engram.cli.outcome import Outcome


def arguments(parser: argparse.ArgumentParser) -> None:
    asking.trying(parser)
    asking.store(parser)
    parser.set_defaults(report="report.html", defences=("l2",))


def run(args: argparse.Namespace) -> Outcome:
    from engram.target import embedded

    rules = [asking.rule(text) for text in args.fail_if]
    plan = audit.planned(args)
    return audit.audited(embedded(), plan, args, rules)
