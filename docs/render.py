"""Tables of the documentation from stored rows: `python docs/render.py` writes them between their markers.

Rows are what `engram reproduce deep-leakage --json` printed, kept in docs/rows; a larger --scale fills more of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
MARKED = re.compile(r"(<!-- rows: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = ("leaks", "leaks to linear-layer", "leaks to spear", "leaks to recursive", "accuracy, %")


def table(name: str, rows: Path = HERE / "rows") -> str:
    """Markdown, one line a defence."""
    told = json.loads((rows / f"{name}.json").read_text())
    cells = {(cell["row"], cell["column"]): cell for cell in told["table"]}
    names = dict.fromkeys(cell["row"] for cell in told["table"] if cell["column"] in COLUMNS)
    heads = [
        "",
        "leaks, published",
        *(("deep-leakage" if c == "leaks" else c.removeprefix("leaks to ")) for c in COLUMNS),
    ]
    lines = [heads, ["---"] * len(heads), *(_line(row, cells) for row in names)]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    environment, scale = told["environment"], told["scale"]
    seeds = max(cell["n"] for cell in told["table"] if cell["column"] == "leaks")
    return f"{body}\n\nScale {scale}, seeds a cell: {seeds}; torch {environment['torch']}.\n"


def _line(row: str, cells: dict) -> list[str]:
    published = cells.get((row, "leaks"), {}).get("published")
    said = {None: "", 0.0: "no", 1.0: "yes"}[published]
    return [row, said, *(_shown(cells.get((row, column)), column) for column in COLUMNS)]


def _shown(cell: dict | None, column: str) -> str:
    if cell is None or cell["ours"] is None:
        return ""
    if column == "accuracy, %":
        return f"{cell['ours']:.1f}"
    return f"{cell['ours']:.2f} [{cell['low']:.2f}, {cell['high']:.2f}]"


def rendered(page: str) -> str:
    return MARKED.sub(lambda found: f"{found[1]}{table(found['name'])}{found[3]}", page)


if __name__ == "__main__":
    for path in HERE.glob("*.md"):
        path.write_text(rendered(path.read_text()))
