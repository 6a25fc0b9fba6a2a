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
    """The figures of stored reproductions, and where each stands."""
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
    columns = list(dict.fromkeys(c["column"] for c in cells))
    by_place = {(c["row"], c["column"]): c for c in cells}
    rows = [
        (row, *(_cell(by_place.get((row, column))) for column in columns))
        for row in dict.fromkeys(c["row"] for c in cells)
    ]
    where = f"Scale {told['scale']}, {hardware(told)}, torch {told['environment']['torch']}; published in parentheses."
    return markdown(("", *columns), rows) + "\n\n" + where


def _cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None or cell["ours"] is None:
        return "" if cell is None else cell["note"]
    ends = "" if cell["low"] is None else f" [{cell['low']:.3g}, {cell['high']:.3g}]"
    published = "" if cell["published"] is None else f" ({cell['published']:.4g})"
    return f"{cell['ours']:.3g}{ends}{published}"


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
