"""engram show: every finding of a run."""

from __future__ import annotations

import argparse

from engram.cli import asking, tables
from engram.cli.audit import told
from engram.cli.outcome import Outcome


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=int, help="its number, as listed by: engram runs")
    asking.store(parser)


def run(args: argparse.Namespace) -> Outcome:
    from engram.store import Store

    with Store(args.store, write=False) as store:
        done, found = store.run(args.run), store.findings(args.run)
    return Outcome({"show": told(done, found)}, tables.findings(found))
