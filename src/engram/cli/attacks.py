"""engram attacks: what there is, what each asks for, its paper, its knobs."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from typing import Any

from engram.cli import tables
from engram.cli.outcome import Outcome


def arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> Outcome:  # noqa: ARG001
    from engram.attacks import known

    listed = [_told(name) for name in known()]
    rows = [(a["name"], a["asks"], a["paper"], a["what"]) for a in listed]
    return Outcome({"attacks": listed}, tables.columns(rows, ("attack", "asks for", "paper", "what it does")))


def _told(name: str) -> dict[str, Any]:
    from engram.attacks import kind

    cls = kind(name)
    knobs = {f.name: f.default for f in dataclasses.fields(cls)}
    what = (inspect.getdoc(cls) or "").splitlines()[0]
    return {
        "name": name, "asks": cls.asks.__name__, "paper": cls.paper, "question": cls.question, "what": what, "knobs": knobs,
    }  # fmt: skip
