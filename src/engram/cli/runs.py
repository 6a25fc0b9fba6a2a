"""engram runs: the runs in a store."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from engram.cli import asking, tables
from engram.cli.outcome import Outcome

if TYPE_CHECKING:
    from engram.store import Run


def arguments(parser: argparse.ArgumentParser) -> None:
    asking.store(parser)


def run(args: argparse.Namespace) -> Outcome:
    from engram.store import Store

    with Store(args.store, write=False) as store:
        listed = [_told(r) for r in store.runs()]
    rows = [(str(r["run"]), r["target"], r["started"], r["state"]) for r in listed]
    return Outcome({"runs": listed}, tables.columns(rows, ("run", "target", "started", "state")))


def _told(r: Run) -> dict[str, Any]:
    state = "begun; the same command goes on with it" if r.finished is None else f"{r.finished - r.started:.1f} s"
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(r.started))
    target = r.about.get("target", {}).get("name", "")
    return {"run": r.id, "target": target, "started": started, "state": state, "identity": r.identity}
