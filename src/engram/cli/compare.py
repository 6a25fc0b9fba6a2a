"""engram compare: the findings of two runs side by side."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from engram.cli import asking, tables
from engram.cli.outcome import Outcome
from engram.types import Finding

Key = tuple[str, str, str, str]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=int, help="number of a run")
    parser.add_argument("second", type=int, help="number of another run")
    asking.store(parser)


def run(args: argparse.Namespace) -> Outcome:
    from engram.store import Store

    with Store(args.store, write=False) as store:
        first, second = (store.findings(store.run(number).id) for number in (args.first, args.second))
    pairs = list(_paired(first, second))
    listed = [{"first": _plain(a), "second": _plain(b), "apart": apart(a, b)} for a, b in pairs]
    rows = [(*_key(a or b), _short(a), _short(b), {True: "apart", False: "", None: ""}[apart(a, b)]) for a, b in pairs]
    heads = ("defence", "attack", "variant", "metric", f"run {args.first}", f"run {args.second}", "intervals")
    return Outcome({"compare": listed}, tables.columns(rows, heads))


def apart(a: Finding | None, b: Finding | None) -> bool | None:
    """Whether the intervals have nothing in common; None where one of them is missing."""
    ends = [end for f in (a, b) if f is not None for end in (f.low, f.high) if end is not None]
    if len(ends) < 4:
        return None
    return ends[0] > ends[3] or ends[2] > ends[1]


def _paired(first: Sequence[Finding], second: Sequence[Finding]) -> Iterator[tuple[Finding | None, Finding | None]]:
    theirs = {_key(f): f for f in second}
    yield from ((f, theirs.pop(_key(f), None)) for f in first)
    yield from ((None, f) for f in theirs.values())


def _key(f: Finding | None) -> Key:
    assert f is not None
    return f.defence or "-", f.attack or "the model", f.variant or "-", f.metric


def _plain(f: Finding | None) -> dict[str, Any] | None:
    return None if f is None else asdict(f)


def _short(f: Finding | None) -> str:
    return (
        "" if f is None else tables.number(f) + (f" [{f.low:.3f}, {f.high:.3f}]" if None not in (f.low, f.high) else "")
    )
