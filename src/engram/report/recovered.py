"""What was recovered of the batch behind an update: each record beside the guess that stands for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.measure.recovery import CERTAIN, matched
from engram.report import pictures, words
from engram.report.dossier import UNDEFENDED, Dossier
from engram.report.layers import layers
from engram.report.page import Child, Safe, figure, section, table, tag
from engram.report.tables import Notes, title
from engram.store import Told
from engram.types import Array, Finding, Recovered

SHOWN = 12  # records
METRICS = ("recovered@0.001", "psnr", "ssim", "labels_right", "tokens_right", "certificate")
HEADS = ("Recovered", "PSNR, dB", "SSIM", "Labels right", "Tokens right", "Certificate")


def recovered(told: Dossier) -> Safe | None:
    """The table of what each attack recovered, and pairs of records and guesses where they are pictures."""
    if "shared_records" not in told.responses:
        return None
    records = np.asarray(told.responses["shared_records"])
    return section(
        "recovered",
        "What the update gave away",
        tag("p", f"Behind the update are {words.count(len(records), 'record')}. No attack was shown any of them."),
        _self_test(told),
        _table(told),
        layers(told),
        *(_pairs(told, one, records) for one in _best(told)),
    )


def _self_test(told: Dossier) -> Safe | None:
    """Whether the records are the batch behind the update, as far as the model and its loss can tell."""
    if "self_test" not in told.responses:
        return None
    left = float(np.asarray(told.responses["self_test"]))
    fits = f"Self-test: these records leave the shared update, to a relative residual of {left:.0e}."
    odd = (
        f"Self-test: these records do not leave the shared update; the relative residual is {left:.2g}. It was altered on "
        "the way, as by noise, or another model, loss or preparation of the records made it; then what follows says little."
    )
    return tag("p", fits if left < CERTAIN else odd)


def _table(told: Dossier) -> Safe:
    rows: list[list[Child]] = []
    notes = Notes()
    for name, defence in _attacks(told):
        cells = [_cell(notes, told.finding(metric, name, defence), metric) for metric in METRICS]
        rows.append([title(name, defence), *cells])
    return figure(
        table(["Attack", *HEADS], rows, class_="figures"),
        "Recovered: the share of records matched by a guess with a mean squared error below 0.001 of the squared range. "
        "The certificate needs no truth: the relative residual of the update, of the span, or the share of contradicted "
        "signs; near zero means that the guess explains what was shared. ",
        notes.told(),
    )


def _attacks(told: Dossier) -> list[tuple[tuple[str, str], str]]:
    seen: dict[tuple[tuple[str, str], str], None] = {}
    for f in told.findings:
        if f.attack and f.metric in METRICS:
            seen[(f.attack, f.variant), f.defence] = None
    return list(seen)


def _cell(notes: Notes, finding: Finding | None, metric: str) -> Child:
    if finding is None or finding.value is None or metric not in ("psnr", "ssim", "certificate"):
        return notes.cell(finding)
    if metric == "certificate":
        return tag("b", f"{finding.value:.1e}")
    digits = 1 if metric == "psnr" else 3
    ends = f"[{finding.low:.{digits}f}, {finding.high:.{digits}f}]" if finding.n > 1 else ""
    return [tag("b", f"{finding.value:.{digits}f}"), tag("small", ends)]


def _best(told: Dossier) -> list[Told]:
    """The attack on the model as it is whose guesses are nearest."""
    tried = [t for t in told.told if isinstance(t.evidence, Recovered) and t.evidence.kind == "record"]
    tried = [t for t in tried if t.defence == UNDEFENDED and len(t.evidence.guesses)]  # type: ignore[union-attr]
    return sorted(tried, key=lambda t: _share(told, t), reverse=True)[:1]


def _share(told: Dossier, one: Told) -> float:
    name = (one.attack, getattr(one.evidence, "variant", ""))
    values = [
        f.value if (f := told.finding(m, name)) and f.value is not None else -1e9 for m in ("recovered@0.001", "psnr")
    ]
    return values[0] * 1e6 + values[1]


def _pairs(told: Dossier, one: Told, records: Array) -> Safe | None:
    assert isinstance(one.evidence, Recovered)
    guesses = np.asarray(one.evidence.guesses)
    which = matched(guesses, records)
    name = words.named((one.attack, one.evidence.variant))
    if told.redact:
        return tag("p", "The records and the guesses are hidden.", class_="hidden")
    true = pictures.images(records[:SHOWN])
    if true is None:
        return None
    low, high = (float(records.min()), float(records.max())) if records.min() < 0 or records.max() > 1 else (0.0, 1.0)
    seen = [_drawn(guesses[g], low, high) if g >= 0 else None for g in which[:SHOWN]]
    return figure(
        tag(
            "ul",
            [_pair(pictures.address(t), s, k) for k, (t, s) in enumerate(zip(true, seen, strict=True))],
            class_="cards",
        ),
        f"Each record, and the guess of {name} that stands for it under the best matching.",
    )


def _drawn(guess: Array, low: float, high: float) -> str | None:
    scaled = np.clip((np.asarray(guess, float) - low) / (high - low), 0, 1)
    images = pictures.images(scaled[None])
    return None if images is None else pictures.address(images[0])


def _pair(true: str, guess: str | None, k: int) -> Safe:
    drawn: Sequence[Child] = [tag("img", src=true, alt=f"record {k}")]
    drawn = [*drawn, tag("img", src=guess, alt=f"the guess for record {k}") if guess else tag("small", "not recovered")]
    return tag("li", *drawn, tag("p", tag("small", f"record {k}")))
