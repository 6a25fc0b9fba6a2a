"""engram reproduce: a paper's table, ours beside it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from engram.cli import asking, tables
from engram.cli.outcome import Outcome
from engram.cli.progress import track

if TYPE_CHECKING:
    from engram.reproduce.cells import Cell


def arguments(parser: argparse.ArgumentParser) -> None:
    from engram.reproduce import PAPERS
    from engram.reproduce.cells import Scale

    parser.add_argument("paper", help=f"one of: {', '.join(sorted(PAPERS))}")
    parser.add_argument("--scale", choices=get_args(Scale), default="smoke", help="seconds, minutes, or a GPU")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="data sets that do not ship with engram")
    parser.add_argument("--device", default="cpu", help="where to compute, as cuda (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the root of all randomness (default: %(default)s)")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw the paper's figures too, as SVG files")
    asking.store(parser)


def run(args: argparse.Namespace) -> Outcome:
    from engram.chunks.local import Local
    from engram.environment import environment
    from engram.reproduce import paper
    from engram.reproduce.cells import Bench
    from engram.seed import Seed
    from engram.store import Store

    began, cells, draw = time.monotonic(), paper(args.paper), _drawing(args)
    with Store(args.store) as store:
        bench = Bench(args.scale, Seed(args.seed), Local(store), args.data, args.device, track())
        table = list(cells(bench))
    draw(table)
    answer = {
        "paper": args.paper, "scale": args.scale, "table": [asdict(cell) for cell in table],
        "seconds": round(time.monotonic() - began, 3), "environment": environment(args.device),
    }  # fmt: skip
    return Outcome(answer, words(table), int(any(cell.holds is False for cell in table)))


def _drawing(args: argparse.Namespace) -> Callable[[list[Cell]], None]:
    """What draws the figures, if they are asked for; asked before anything is computed."""
    from engram.reproduce import drawing

    if args.figures is None:
        return lambda _: None
    draw = drawing(args.paper)
    if draw is None:
        raise ValueError(f"the reproduction of {args.paper} has no figures; leave --figures out")

    def write(table: list[Cell]) -> None:
        args.figures.mkdir(parents=True, exist_ok=True)
        for name, text in draw(table).items():
            (args.figures / f"{args.paper}-{name}.svg").write_text(text, encoding="utf-8")

    return write


def words(table: list[Cell]) -> str:
    rows = [(c.row, c.column, _number(c.published), _number(c.ours), _interval(c), _held(c), c.note) for c in table]
    return tables.columns(rows, ("row", "column", "published", "ours", "interval", "claim", "note"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _interval(c: Cell) -> str:
    return "-" if c.low is None or c.high is None else f"[{c.low:.4g}, {c.high:.4g}] n = {c.n}"


def _held(c: Cell) -> str:
    return {True: "holds", False: "does not hold", None: "-"}[c.holds]
