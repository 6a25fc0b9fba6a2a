"""engram report: the report of a stored run."""

from __future__ import annotations

import argparse

from engram.cli import asking
from engram.cli.outcome import Outcome


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=int, help="its number, as listed by: engram runs")
    parser.add_argument("--to", default="report.html", metavar="FILE", help="where to write it (default: %(default)s)")
    parser.add_argument("--redact", action="store_true", help="leave recovered and exposed records out")
    asking.store(parser)


def run(args: argparse.Namespace) -> Outcome:
    from engram.report import write
    from engram.store import Store

    with Store(args.store, write=False) as store:
        place = write(store, store.run(args.run).id, args.to, redact=args.redact)
    return Outcome({"report": str(place)}, f"report: {place}")
