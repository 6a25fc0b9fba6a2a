"""Findings and lists as text in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from engram.types import Finding


def columns(rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """Left-aligned columns, two spaces apart."""
    lines = [list(heads)] * bool(heads) + [list(row) for row in rows]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def findings(found: Iterable[Finding]) -> str:
    rows = [(f.defence or "-", f.attack or "the model", f.variant or "-", f.metric, number(f), rest(f)) for f in found]
    return columns(rows, ("defence", "attack", "variant", "metric", "value", "interval"))


def number(f: Finding) -> str:
    return "none" if f.value is None else f"{f.value:.3f}"


def rest(f: Finding) -> str:
    """The interval and what it rests on, or why there is none."""
    if f.value is None:
        return f.reason
    bounds = [f"{f.low:.3f}" if f.low is not None else "", f"{f.high:.3f}" if f.high is not None else ""]
    told = f"[{bounds[0]}, {bounds[1]}]" if all(bounds) else f"at least, with {f.level:.0%} confidence"
    return f"{told}  n = {f.n}" + ("" if f.non_members is None else f", {f.non_members} non-members")


def plain(found: Iterable[Finding]) -> list[dict[str, Any]]:
    return [asdict(f) for f in found]
