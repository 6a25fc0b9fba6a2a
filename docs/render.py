"""Fill the tables of README and docs from the code and from stored rows, between `<!-- table: NAME -->` and `<!-- end -->`.

python docs/render.py            write them
python docs/render.py --check    exit with 1 if one is out of date
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engram import attacks, defences, reproduce
from engram.report import charts
from engram.report.page import Safe, tag
from engram.reproduce.cells import Cell

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "measured"
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(words: Sequence[str]) -> int:
    stale = []
    for page in sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")]):
        before = page.read_text()
        after = rendered(before)
        if after != before:
            stale.append(page.relative_to(ROOT))
            if "--check" not in words:
                page.write_text(after)
    for place, text in drawn():
        if not place.exists() or place.read_text() != text:
            stale.append(place.relative_to(ROOT))
            if "--check" not in words:
                place.parent.mkdir(exist_ok=True)
                place.write_text(text)
    told = ", ".join(map(str, stale)) or "none"
    print(f"{'out of date' if '--check' in words else 'rewritten'}: {told}")
    return int(bool(stale) and "--check" in words)


def rendered(text: str) -> str:
    return BLOCK.sub(lambda found: f"{found[1]}{_table(found['name'])}\n{found[3]}", text)


def _table(name: str) -> str:
    kind, _, rest = name.partition(" ")
    return TABLES[kind](rest)


def _attacks(_: str) -> str:
    rows = []
    for name in attacks.ATTACKS:
        cls = attacks.kind(name)
        rows.append((f"`{name}`", cls.asks.__name__, (inspect.getdoc(cls) or "").splitlines()[0], cls.paper))
    return markdown(("attack", "asks for", "what it does", "paper"), rows)


def _defences(_: str) -> str:
    rows = []
    for name in defences.DEFENCES:
        knobs = ", ".join(f"`{knob}={value}`" for knob, value in defences.knobs_of(name).items())
        rows.append((f"`{name}`", (inspect.getdoc(defences.function(name)) or "").splitlines()[0], knobs))
    return markdown(("defence", "what it does", "knobs"), rows)


def _rows(benchmark: str) -> str:
    """The latest run of a benchmark on each kind of hardware."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in sorted((r for r in stored() if r["benchmark"] == benchmark), key=lambda r: str(r["at"])):
        held = runs.setdefault(hardware(row), [])
        if held and held[0]["at"] != row["at"]:
            held.clear()
        held.append(row)
    if not runs:
        raise ValueError(f"no stored rows of the benchmark {benchmark!r} under {MEASURED}")
    return "\n\n".join(_run(where, rows) for where, rows in runs.items())


def _run(where: str, rows: Sequence[Mapping[str, Any]]) -> str:
    heads = [key for key in rows[0] if key not in ABOUT]
    about = rows[0]["environment"]
    told = f"{where}, torch {about['torch']}, {str(rows[0]['at'])[:10]}:"
    return told + "\n\n" + markdown(heads, [[number(row.get(head)) for head in heads] for row in rows])


def drawn() -> Iterable[tuple[Path, str]]:
    """The figures of stored reproductions and benchmarks, and where each stands."""
    yield from ((ROOT / "docs" / "figures" / name, text) for name, draw in FIGURES.items() if (text := draw()))
    for stored_one in sorted((MEASURED / "reproduced").glob("*.json")):
        told = json.loads(stored_one.read_text())
        draw = reproduce.drawing(told["paper"])
        for name, text in draw([Cell(**cell) for cell in told["table"]]).items() if draw else ():
            yield ROOT / "docs" / "figures" / f"{told['paper']}-{name}.svg", text


def _figures(paper: str) -> str:
    """Links to a paper's figures."""
    places = [place for place, _ in drawn() if place.name.startswith(f"{paper}-")]
    return "\n".join(f"![{place.stem.replace('-', ' ')}](figures/{place.name})" for place in places)


def _reproduced(rest: str) -> str:
    """Of a stored reproduction, the cells whose column begins with one of the words that follow its name; all, without."""
    paper, *wanted = rest.split()
    told = json.loads((MEASURED / "reproduced" / f"{paper}.json").read_text())
    cells = [c for c in told["table"] if not wanted or c["column"].startswith(tuple(wanted))]
    columns = list(dict.fromkeys(c["column"] for c in cells if c["ours"] is not None)) or [cells[0]["column"]]
    by_place = {(c["row"], c["column"]): c for c in cells}
    rows = [
        (row, *(_cell(by_place.get((row, column))) for column in columns))
        for row in dict.fromkeys(c["row"] for c in cells)
    ]
    left = {c["column"]: c["note"] for c in cells if c["column"] not in columns}
    missing = "".join(f" Not told, {column}: {why}." for column, why in left.items())
    where = f"Scale {told['scale']}, {hardware(told)}, torch {told['environment']['torch']}; published in parentheses."
    return markdown(("", *columns), rows) + "\n\n" + where + missing


def _cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None or cell["ours"] is None:
        return "" if cell is None else cell["note"]
    ends = "" if cell["low"] is None else f" [{cell['low']:.3g}, {cell['high']:.3g}]"
    published = "" if cell["published"] is None else f" ({cell['published']:.4g})"
    return f"{cell['ours']:.3g}{ends}{published}"


INKS = ("#1b6ca8", "#c0392b", "#1e8449", "#8e44ad", "#b9770e", "#566573", "#117a65", "#a04000")
DRAWN = """text { font: 12px sans-serif; fill: #444 } .grid { stroke: #ddd } .chance { stroke: #999; stroke-dasharray: 2 3 }
path { fill: none; stroke-width: 2 }"""


def label_only() -> str:
    """Balanced accuracy against queries a record, one line an attack, with the intervals; empty without stored rows."""
    rows = [r for r in stored() if r["benchmark"] == "label-only queries"]
    rows = [r for r in rows if r["at"] == max(r["at"] for r in rows)]
    if not rows:
        return ""
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        shadowed = ", against shadows" if "against shadows" in row["variant"] else ""
        lines.setdefault(row["attack"] + shadowed, []).append(row)
    values = [row[key] for row in rows for key in ("low", "high")]
    x = charts.Scale(1, max(r["queries a record"] for r in rows), 50, 520, log=True)
    y = charts.Scale(min(50.0, *values), max(values), 330, 20)
    drawn = [
        _line(x, y, ink, sorted(line, key=lambda r: r["queries a record"]))
        for ink, line in zip(INKS, lines.values(), strict=False)
    ]
    legend = [
        [tag("circle", cx=545, cy=30 + 20 * i, r=4, fill=ink), charts.text(555, 34 + 20 * i, name)]
        for i, (ink, name) in enumerate(zip(INKS, lines, strict=False))
    ]
    marks = [(10.0**k, f"{10**k:,}") for k in range(5) if 10**k <= x.high]
    return str(charts.drawing(
        760, 380, "balanced accuracy against queries a record", tag("style", Safe(DRAWN)),
        charts.y_axis(y, [(v, f"{v:g} %") for v in charts.round_numbers(y.low, y.high)], 50, 520),
        charts.x_axis(x, marks, 330, 20), drawn, legend, charts.text(285, 368, "queries a record", None, "middle"),
    )).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"  # fmt: skip


def _line(x: charts.Scale, y: charts.Scale, ink: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    places = [(x(r["queries a record"]), y(r["balanced accuracy, %"])) for r in rows]
    reach = [
        tag("line", x1=place[0], x2=place[0], y1=y(r["low"]), y2=y(r["high"]), stroke=ink)
        for place, r in zip(places, rows, strict=True)
    ]
    dots = [tag("circle", cx=a, cy=b, r=3, fill=ink) for a, b in places]
    told = "M" + "L".join(f"{a:g} {b:g}" for a, b in places)
    return [tag("path", d=told, stroke=ink), reach, dots]


FIGURES: Mapping[str, Callable[[], str]] = {"label-only.svg": label_only}
ABOUT = ("benchmark", "at", "environment")
TABLES: Mapping[str, Callable[[str], str]] = {
    "attacks": _attacks,
    "defences": _defences,
    "rows": _rows,
    "reproduced": _reproduced,
    "figures": _figures,
}


def stored() -> Iterable[dict[str, Any]]:
    for file in sorted(MEASURED.glob("*.jsonl")):
        yield from map(json.loads, file.read_text().splitlines())


def hardware(row: Mapping[str, Any]) -> str:
    environment = row["environment"]
    if environment["device"] != "cpu":
        return str(environment["device"])
    return f"{environment['cores']} cores, {environment['processor']}"


def number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
