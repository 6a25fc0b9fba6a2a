"""One self-contained HTML file about one run: no script, no network, readable by its owner only.

A report is a list of sections, and a section is a function from what the store holds of a run to markup, or to None
where the run has nothing to say on it. A new one is a function and a line in `SECTIONS`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from engram.report.closing import limits, reproduce, tags
from engram.report.conclusion import conclusion
from engram.report.curves import histograms, roc
from engram.report.defended import defences
from engram.report.dossier import Dossier, dossier
from engram.report.exposed import exposed
from engram.report.opening import head
from engram.report.page import Safe, document
from engram.report.recovered import recovered
from engram.report.scope import questions, threat, untried
from engram.report.tables import control, findings
from engram.store import Store

Section = Callable[[Dossier], Safe | None]

SECTIONS: tuple[Section, ...] = (
    head,
    conclusion,
    questions,
    threat,
    recovered,
    findings,
    roc,
    histograms,
    defences,
    exposed,
    control,
    untried,
    limits,
    tags,
    reproduce,
)


def render(store: Store, run: int, *, redact: bool = False) -> str:
    """The report as HTML text; the same text for the same store. `redact` leaves out the records and their labels."""
    told = dossier(store, run, redact=redact)
    return document(f"{told.target.get('name', 'unnamed')} · Engram", [section(told) for section in SECTIONS])


def write(store: Store, run: int, path: str | Path, *, redact: bool = False) -> Path:
    """The report as a file that only its owner can read. It is there whole, or the one that was there before stays."""
    path = writable(path)
    told = render(store, run, redact=redact)
    try:
        _write_whole(path, told)
    except OSError as error:
        raise ValueError(
            f"the report cannot be written to {path} ({error.strerror}); the run is stored: "
            f"engram report {run} --store {store.path} --to FILE"
        ) from error
    return path


def writable(path: str | Path) -> Path:
    """The path, if a report can be put there: asked before the work, so that nobody waits for nothing."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"a report is a file, and {path} is not one; name a file such as report.html")
    if not path.parent.is_dir():
        raise ValueError(f"the folder {path.parent} does not exist; make it, or name another file for the report")
    return path


def _write_whole(path: Path, told: str) -> None:
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")  # created 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as f:
            f.write(told)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


__all__ = ["SECTIONS", "Section", "render", "writable", "write"]
