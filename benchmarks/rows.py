"""Rows of a benchmark: printed as a table, and stored as JSON lines from which the tables in docs are made."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engram.environment import environment

FOLDER = Path(__file__).parent / "measured"


def asked(about: str, **defaults: Any) -> argparse.Namespace:
    """The options of a benchmark: `--device`, `--rows FILE`, and one for each default."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="where to compute (default: %(default)s)")
    parser.add_argument("--rows", type=Path, help="append the rows to this file of JSON lines")
    for name, default in defaults.items():
        kind = Path if default is None else type(default)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help="(default: %(default)s)")
    return parser.parse_args()


def finish(rows: Iterable[Mapping[str, Any]], *, benchmark: str, args: argparse.Namespace) -> None:
    """Print the table last; append what was measured, with what it was measured on."""
    rows = list(rows)
    print(table(rows))
    if args.rows:
        about = {
            "benchmark": benchmark,
            "at": time.strftime("%Y-%m-%d %H:%M:%S"),
            "environment": environment(args.device),
        }
        args.rows.parent.mkdir(parents=True, exist_ok=True)
        with args.rows.open("a") as f:
            f.writelines(json.dumps({**about, **row}) + "\n" for row in rows)


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Columns from the keys of the first row."""
    rows = list(rows)
    heads = list(rows[0]) if rows else []
    cells = [heads, *([_told(row.get(head)) for head in heads] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def _told(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
