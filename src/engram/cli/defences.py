"""engram defences: what there is, and the knobs of each."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from engram.cli import tables
from engram.cli.outcome import Outcome


def arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> Outcome:  # noqa: ARG001
    from engram.defences import function, knobs_of, known

    listed: list[dict[str, Any]] = [
        {"name": name, "knobs": knobs_of(name), "what": (inspect.getdoc(function(name)) or "").splitlines()[0]}
        for name in known()
    ]
    rows = [(d["name"], ", ".join(f"{k}={v}" for k, v in d["knobs"].items()), d["what"]) for d in listed]
    return Outcome({"defences": listed}, tables.columns(rows, ("defence", "knobs", "what it does")))
