"""Shahin Shamsabadi, Hayes, Balle, Weller: Mnemonist: Locating Model Parameters that Memorize Training Examples, 2023.

The poster's four runs, the relative drop of the loss by each importance and by a random choice of equal size, and its figure
of how many rows are active on a record. Each run has records, a start and shadows of its own; all rows of a run share them.
Told for weights as training leaves them, and for weights with noise that the adversary cannot repeat, of which it knows the
size and gives it to its shadows as well: most choices lose where every parameter is exact, and win where some are noise.
Differs from the poster: its data set, sizes and sources of chance are not told, so published losses are beside runs of ours
that are not the same; the plain reconstructor cuts inputs off at five deviations, and the row "not cut off" is without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.attacks.mnemonist import School, off
from engram.data import fingerprint
from engram.importance import ALONE, SCORES, active_steps, at_random, named, selected
from engram.reconstruction import Reconstructing, Study
from engram.report.memory import histogram
from engram.reproduce.cells import Bench, Cell
from engram.reproduce.fixed_sets import World, recipe, released, seen, world
from engram.reproduce.label_only import interval
from engram.reproduce.paired import difference
from engram.train import Recipe
from engram.types import Array, Arrays, Floats, Ints, Piece

PUBLISHED = ((0.2040, 0.1738), (0.2705, 0.2385), (0.0908, 0.0730), (0.1315, 0.1158))
DROP = 100 * float(np.mean([1 - after / before for before, after in PUBLISHED]))
GUIDE = "explained"  # the importance whose losses are told run by run; the default of the attack
CONTROL = 2.0  # per cent: as good as nothing
NOISES = (0.0, 0.5, 2.0)  # deviations, in units of that which a record gives to the median parameter
TOLD = 2.0  # at which the four runs are told


@dataclass(frozen=True)
class Size:
    """How much of the table a scale runs."""

    runs: int
    fixed: int
    shadows: int
    sought: int
    epochs: int
    study: Study
    scores: tuple[str, ...]
    noises: tuple[float, ...]


SIZES = {
    "smoke": Size(2, 60, 120, 20, 20, Study(width=48, epochs=30, batch=32), ("explained", "columns"), (0.0, TOLD)),
    "laptop": Size(8, 300, 800, 100, 60, Study(width=100, epochs=30), tuple(SCORES), NOISES),
    "paper": Size(8, 10_000, 20_000, 1000, 100, Study(), tuple(SCORES), NOISES),
}


def cells(bench: Bench) -> Iterator[Cell]:
    size = SIZES[bench.scale]
    runs = [_run(bench, size, k) for k in range(size.runs)]
    for noise in size.noises:
        losses = {name: np.array([run[f"{noise:g} {name}"] for run in runs]) for name in _names(size)}
        if noise == TOLD:
            yield from _by_run(losses, size)
        yield from levels(losses, noise)
        yield from drops(losses, size.scores, noise, judged=bench.scale != "smoke")
    yield from rows_active(np.concatenate([run["active"] for run in runs]))


def _names(size: Size) -> list[str]:
    by = [told for score in size.scores for told in (f"by {score}", f"kept, {score}")]
    return ["mean record", "plain", "not cut off", "at random", *by]


def _run(bench: Bench, size: Size, number: int) -> Arrays:
    """The losses on the sought records of one run, by what the reconstructor was shown. Stored when done."""
    name = f"mnemonist, run {number}"
    here = world(bench, size.fixed, size.shadows, size.sought, name=name)
    made = recipe(here, "relu", epochs=size.epochs, start=bench.seed.child(name, "start"))
    piece = Piece(f"mnemonist/{bench.scale}/{number}/{fingerprint(size)}/{bench.seed.number}")
    (told,) = bench.chunks.run([piece], lambda _: _told(bench, size, here, made, name))
    return told


def _told(bench: Bench, size: Size, here: World, made: Recipe, name: str) -> Arrays:
    handle = seen(bench, released(bench, here, made, name), name)
    shadow = handle.shadows(size.shadows, track=bench.track)
    found: dict[str, Floats] = {"active": _active(made, here)}
    for noise in size.noises:
        stream, deviation = bench.seed.child(name, "noise").numpy(), noise * float(np.median(shadow.weights.std(0)))
        clouded = replace(shadow, weights=_clouded(shadow.weights, deviation, stream))
        school = School(clouded, size.study, bench.seed.child(name, "reconstructor"), handle)
        losses = _losses(size, school, _clouded(handle.weights, deviation, stream), here)
        found |= {f"{noise:g} {of}": np.asarray(loss) for of, loss in losses.items()}
    return found


def _clouded(weights: Floats, deviation: float, stream: np.random.Generator) -> Floats:
    return weights + deviation * stream.standard_normal(weights.shape)


def _losses(size: Size, school: School, weights: Floats, here: World) -> dict[str, float]:
    """MAE + MSE on the sought records, and the share of parameters that each importance kept."""
    records, handle = school.shadow.records.x, school.target

    def loss(answer: Reconstructing) -> float:
        return float(off(np.clip(answer(weights), records.min(), records.max()), here.sought.x).mean())

    plain = school.taught()
    found = {
        "plain": loss(plain),
        "mean record": float(off(records.mean(0)[None].repeat(len(weights), 0), here.sought.x).mean()),
    }
    found["not cut off"] = loss(replace(school, study=replace(size.study, far=np.inf)).taught())
    for score in size.scores:
        weight = school.weighed(
            named(score, handle.recipe, here.fixed, handle.device), None if score in ALONE else plain
        )
        kept = selected(weight, school.best_share(weight))
        found[f"by {score}"], found[f"kept, {score}"] = loss(school.taught(kept)), float(kept.mean())
        if score == GUIDE:
            control = at_random(kept, school.moving, school.seed.child("control"))
            found["at random"] = loss(school.taught(control))
    return found


def _active(made: Recipe, here: World) -> Array:
    """How many hidden units were active at some step on each of the sought records, [record]"""
    steps = active_steps(made, here.fixed, here.sought.take(np.arange(min(64, len(here.sought)))))
    hidden = steps[:, : -len(here.fixed.classes)]
    return np.asarray((hidden > 0).sum(1))


def _by_run(losses: Mapping[str, Floats], size: Size) -> Iterator[Cell]:
    for k in range(size.runs):
        plain, guided = PUBLISHED[k] if k < len(PUBLISHED) else (None, None)
        yield Cell(f"run {k + 1}", "RecoNN", plain, float(losses["plain"][k]), n=size.sought)
        yield Cell(f"run {k + 1}", "Mnemonist-RecoNN", guided, float(losses[f"by {GUIDE}"][k]), n=size.sought)


def _where(noise: float) -> str:
    return f"noise {noise:g}" if noise else "exact weights"


def levels(losses: Mapping[str, Floats], noise: float) -> Iterator[Cell]:
    """The losses that guided ones are to be compared with."""
    for name in ("mean record", "plain", "not cut off"):
        mean, low, high = interval(losses[name])
        yield Cell(f"{name}, {_where(noise)}", "MAE + MSE", None, mean, low, high, len(losses[name]))


def drops(losses: Mapping[str, Floats], scores: Sequence[str], noise: float, *, judged: bool) -> Iterator[Cell]:
    """By how much less the loss is than the plain reconstructor's, in per cent of that; the claim is of the guide."""
    for score in scores:
        note = f"{100 * losses[f'kept, {score}'].mean():.0f} % of the parameters kept"
        row, beside = f"by {score}, {_where(noise)}", losses["plain"]
        cell = difference(row, "drop, %", 100 * (1 - losses[f"by {score}"] / beside), DROP)
        yield replace(cell, holds=cell.holds if judged and score == GUIDE else None, note=note)
        yield replace(
            difference(row, "drop, % of not cut off", 100 * (1 - losses[f"by {score}"] / losses["not cut off"])),
            holds=None, note=note,
        )  # fmt: skip
    mean, low, high = interval(100 * (1 - losses["at random"] / losses["plain"]))
    held = True if high <= CONTROL else False if low > CONTROL else None
    yield Cell(
        f"at random, {_where(noise)}", "drop, %", 0.0, mean, low, high, len(losses["plain"]), held if judged else None,
        f"as many as by {GUIDE}; must not gain more than {CONTROL:g} %",
    )  # fmt: skip


def rows_active(active: Ints) -> Iterator[Cell]:
    """The poster's figure: a histogram over records of the rows that were active on them at some step."""
    for rows, records in enumerate(np.bincount(active)):
        yield Cell("records", f"{rows} rows active", None, float(records), n=len(active))


def figures(cells: Sequence[Cell]) -> dict[str, str]:
    """The poster's histogram."""
    counts = [cell.ours or 0.0 for cell in cells if cell.column.endswith("rows active")]
    return {"active-rows": histogram(np.asarray(counts), "rows active on the record at some step", "records")}
