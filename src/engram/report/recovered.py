"""What was recovered of records that nobody showed: each beside the guess that stands for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.measure.recovery import CERTAIN, error, matched
from engram.report import pictures, words
from engram.report.dossier import UNDEFENDED, Dossier
from engram.report.layers import layers
from engram.report.page import Child, Safe, figure, section, table, tag
from engram.report.tables import Notes, title
from engram.store import Told
from engram.types import Array, Finding, Recovered

SHOWN = 12  # records
SHOWN_AS = {
    "recovered@0.001": "Recovered",
    "beats_nearest": "Beats the nearest held",
    "identified": "Identified",
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "labels_right": "Labels right",
    "tokens_right": "Tokens right",
    "certificate": "Certificate",
}


def recovered(told: Dossier) -> Safe | None:
    """The table of what each attack recovered, and pairs of records and guesses where they are pictures."""
    released = "missing_records" in told.responses
    if "shared_records" not in told.responses and not released:
        return None
    records = np.asarray(told.responses["missing_records" if released else "shared_records"])
    behind = (
        f"{words.count(len(records), 'model')} were let out, each trained on one record that the adversary did not hold "
        "and on known ones."
        if released
        else f"Behind the update are {words.count(len(records), 'record')}."
    )
    return section(
        "recovered",
        "What the weights gave away" if released else "What the update gave away",
        tag("p", f"{behind} No attack was shown any of them."),
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
    said = {f.metric for f in told.findings}
    shown = [(metric, head) for metric, head in SHOWN_AS.items() if metric in said]
    for name, defence in _attacks(told):
        cells = [_cell(notes, told.finding(metric, name, defence), metric) for metric, _ in shown]
        rows.append([title(name, defence), *cells])
    return figure(
        table(["Attack", *(head for _, head in shown)], rows, class_="figures"),
        "Recovered: the share of records matched by a guess with a mean squared error below 0.001 of the squared range. "
        "The certificate needs no truth: the relative residual of the update, of the weights or of the span, or the share of "
        "contradicted signs; near zero means that the guess explains what was seen. ",
        "Beats the nearest held: the guess is nearer to the record than any record that the adversary held. Identified: it "
        "is nearer to its own record than to any other that was sought. "
        if "beats_nearest" in said
        else "",
        notes.told(),
    )


def _attacks(told: Dossier) -> list[tuple[tuple[str, str], str]]:
    seen: dict[tuple[tuple[str, str], str], None] = {}
    for f in told.findings:
        if f.attack and f.metric in SHOWN_AS:
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
    nearest = told.responses.get("nearest_held")
    which = matched(guesses, records) if nearest is None else np.arange(len(records))
    name = words.named((one.attack, one.evidence.variant))
    if told.redact:
        return tag("p", "The records and the guesses are hidden.", class_="hidden")
    true = pictures.images(records[:SHOWN])
    if true is None:
        return None
    low, high = (float(records.min()), float(records.max())) if records.min() < 0 or records.max() > 1 else (0.0, 1.0)
    seen = [_drawn(guesses[g], low, high) if g >= 0 else None for g in which[:SHOWN]]
    held = None if nearest is None else [_drawn(n, low, high) for n in np.asarray(nearest)[:SHOWN]]
    off = error(guesses[which], records) if nearest is not None else None
    cards = [
        _pair(pictures.address(t), seen[k], held[k] if held else None, k, None if off is None else float(off[k]))
        for k, t in enumerate(true)
    ]
    beside = "that stands for it under the best matching" if nearest is None else "and the nearest record it held"
    return figure(tag("ul", cards, class_="cards"), f"Each record, the guess of {name} {beside}.")


def _drawn(guess: Array, low: float, high: float) -> str | None:
    scaled = np.clip((np.asarray(guess, float) - low) / (high - low), 0, 1)
    images = pictures.images(scaled[None])
    return None if images is None else pictures.address(images[0])


def _pair(true: str, guess: str | None, held: str | None, k: int, off: float | None) -> Safe:
    drawn: Sequence[Child] = [tag("img", src=true, alt=f"record {k}")]
    drawn = [*drawn, tag("img", src=guess, alt=f"the guess for record {k}") if guess else tag("small", "not recovered")]
    drawn = [*drawn, tag("img", src=held, alt=f"the nearest record held to record {k}")] if held else drawn
    return tag("li", *drawn, tag("p", tag("small", f"record {k}" if off is None else f"record {k}, error {off:.2g}")))
