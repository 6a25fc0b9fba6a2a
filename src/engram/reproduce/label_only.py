"""Label-only attacks beside the confidence attack: the paper's table, row by row, each over several targets.

Choquette-Choo, Tramer, Carlini, Papernot: Label-Only Membership Inference Attacks, 2021. Tables of sections 4 and 5.
Differs from the paper: every row is a mean over targets with Student's interval, and rows are compared on the same targets
(paired differences); a claim is contradicted only where the interval of the difference excludes it. Shadows are trained on
random halves of the pool that the target's records come from. Training has a fixed number of epochs. Beside the accuracies,
which are all that the paper has, stand true positive rates at thresholds that let through so many of all targets' others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import t

from engram.access import Lab
from engram.attacks import attack, kind
from engram.data import Dataset, fingerprint
from engram.defences import defence, known
from engram.measure.judgement import counted
from engram.measure.ranks import ranked
from engram.measure.rates import balanced_accuracy
from engram.measure.roc import lowest_at, tpr_at_interval, unresolved
from engram.population import Asked, paired, population
from engram.reproduce.cells import Bench, Cell
from engram.reproduce.label_only_settings import SETTINGS, Setting
from engram.seed import Seed
from engram.signals import correct
from engram.target import Target
from engram.train.loop import rebuilt
from engram.types import Arrays, Bools, Floats, Piece, Scores

ORDER = (  # the first is at least the second, less so many points of accuracy
    ("augmentation, rotation", "gap", 0.0),
    ("boundary", "augmentation, rotation", 0.0),
    ("combined", "boundary", 0.0),
    ("boundary", "confidence", 2.0),
    ("noise", "gap", 0.0),
)
LOW = {"TPR at 1 %": 0.01, "TPR at 0.1 %": 0.001}


Rate = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Measured:
    """What the rows of one setting came to."""

    accuracy: Mapping[str, Floats]  # row -> [target] balanced accuracy, %
    rates: Mapping[str, Mapping[str, Rate | str]]  # row -> rate -> % with its interval; or why the records cannot tell
    records: int  # of all targets


def cells(bench: Bench) -> Iterator[Cell]:
    for setting in SETTINGS[bench.scale]:
        try:
            data = setting.load(bench.data)
        except FileNotFoundError as absent:
            for row, published in setting.published.items():
                yield Cell(row, setting.name, published, None, note=str(absent))
            continue
        yield from of_setting(bench, setting, data)


def of_setting(bench: Bench, setting: Setting, data: Dataset) -> Iterator[Cell]:
    targets = list(trained(bench, setting, data))
    found = measured(bench, setting, targets, "")
    yield from rows(setting, found)
    yield from claims(setting, found)
    for hook in BESIDE:
        yield from hook(bench, setting, targets, found)


def trained(bench: Bench, setting: Setting, data: Dataset) -> Iterator[Target]:
    """Targets on random halves of one pool. All have the same candidates, so they share their shadows."""
    seed = bench.seed.child("label-only", setting.name)
    chosen = np.sort(seed.child("pool").numpy().permutation(len(data))[: setting.pool])
    pool = data.take(seed.child("order").numpy().permutation(chosen))
    recipe = setting.recipe(data)
    member = paired(setting.targets, setting.pool, seed.child("members"))
    models = population(
        recipe, pool, member, seed=seed.child("targets"), chunks=bench.chunks,
        asked=Asked((correct,), weights=True), records=1, device=bench.device, track=bench.track,
    )  # fmt: skip
    few, rest = np.arange(setting.candidates), np.arange(setting.candidates, setting.pool)
    for m in range(setting.targets):
        module = rebuilt(recipe, {name: w[m] for name, w in models.weights.items()}, bench.device)
        yield Target(
            module, pool.take(few), member[m, few], recipe, f"{setting.name}, {m}",
            others=pool.take(rest) if len(rest) else None,
        )  # fmt: skip


def measured(bench: Bench, setting: Setting, targets: Sequence[Target], guard: str) -> Measured:
    """Every row on every target; attacks that answer several rows run once. What is done is stored."""
    said: dict[str, list[Scores]] = {row: [] for row in setting.rows}
    for target in bench.track(targets, f"attacking {setting.name}{guard}", len(targets)):
        for row, (name, knobs, which) in setting.rows.items():
            said[row].append(told(bench, setting, target, name, knobs)[which])
    truth = [target.member for target in targets]
    return Measured(
        {row: accuracies(of, truth) for row, of in said.items()},
        {row: {rate: at_rate(of, truth, fpr, bench.seed) for rate, fpr in LOW.items()} for row, of in said.items()},
        sum(map(len, truth)),
    )


def accuracies(said: Sequence[Scores], truth: Sequence[Bools]) -> Floats:
    """Balanced accuracy of the claims in %, [target]"""
    counts = [counted(np.asarray(scores.claims), member) for scores, member in zip(said, truth, strict=True)]
    return np.array([100 * balanced_accuracy(c.tpr, c.fpr) for c in counts])


def at_rate(said: Sequence[Scores], truth: Sequence[Bools], fpr: float, seed: Seed) -> Rate | str:
    """TPR in % above the score that lets through this share of all targets' others; or why the records cannot tell.

    The scores of all targets are of one attack with the same shadows, so one threshold suits them. The interval is the
    wider of Student's, over targets, and of the bootstrap over records.
    """
    ranks = ranked(np.concatenate([scores.values for scores in said]), np.concatenate(truth))
    if reason := unresolved(ranks, fpr):
        return reason
    threshold = lowest_at(ranks, fpr)
    each = np.array([np.mean(s.values[m] >= threshold) for s, m in zip(said, truth, strict=True)])
    mean, *ends = interval(each)
    ends += tpr_at_interval(ranks, fpr, seed=seed.child("rate"))
    return 100 * mean, 100 * max(0.0, min(ends)), 100 * min(1.0, max(ends))


def told(bench: Bench, setting: Setting, target: Target, name: str, knobs: Mapping[str, Any]) -> list[Scores]:
    """What one attack says of one target, as stored."""
    seed = bench.seed.child("label-only", setting.name)
    piece = Piece(f"label-only/{fingerprint(name, dict(knobs), target.identity(), target.name, seed)}")

    def work(_: Piece) -> Arrays:
        cls = kind(name)
        lab = Lab(seed.child("shadows"), bench.chunks, bench.device, keep=True)
        said = attack(name, knobs)(target.handle(cls.asks, lab), seed=seed.child("attack"))
        found = said if isinstance(said, Sequence) else [said]
        return {
            "values": np.stack([s.values for s in found if isinstance(s, Scores)]),
            "claims": np.stack([s.claims for s in found if isinstance(s, Scores) and s.claims is not None]),
        }

    (kept,) = bench.chunks.run([piece], work)
    ids = np.arange(len(target.records))
    return [Scores(np.array(v), ids, np.array(c, bool)) for v, c in zip(kept["values"], kept["claims"], strict=True)]


def rows(setting: Setting, found: Measured) -> Iterator[Cell]:
    for row, values in found.accuracy.items():
        name, knobs, _ = setting.rows[row]
        asked = f"{knobs['queries']} queries" + (" a copy" if name == "combined" else "") if "queries" in knobs else ""
        published = setting.published.get(row)
        near = None if published is None or setting.within is None else abs(values.mean() - published) <= setting.within
        within = "" if near is None else f"within {setting.within:g} points of the paper"
        note = "; ".join(part for part in (asked, setting.note if published else "", within) if part)
        held = None if near is None else bool(near)
        yield Cell(row, setting.name, published, *interval(values), found.records, holds=held, note=note)
        for rate, shares in found.rates[row].items():
            column = f"{setting.name}: {rate}"
            if isinstance(shares, str):
                yield Cell(row, column, None, None, n=found.records, note=shares)
            else:
                yield Cell(row, column, None, *shares, found.records)


def claims(setting: Setting, found: Measured) -> Iterator[Cell]:
    for first, second, less in ORDER:
        if first in found.accuracy and second in found.accuracy:
            mean, low, high = interval(found.accuracy[first] - found.accuracy[second])
            note = f"not more than {less:g} points below" if less else "not below"
            yield Cell(
                f"{first} - {second}", setting.name, None, mean, low, high, len(found.accuracy[first]),
                holds=high >= -less, note=f"{note}, of paired differences",
            )  # fmt: skip


def behind_memguard(bench: Bench, setting: Setting, targets: Sequence[Target], found: Measured) -> Iterator[Cell]:
    """The same models with masked confidences: labels are what they were, so label-only rows must be, too.

    What is left of a confidence is the label. An attack that compares it with the true one is the gap attack; one that
    does not is at chance.
    """
    if "memguard" not in known():
        return
    masked = []
    for target in targets[: setting.masked]:
        assert target.recipe is not None
        masked.append(replace(target, recipe=defence("memguard")(target.recipe), name=f"{target.name}, memguard"))
    chance = np.full(len(masked), 50.0)
    behind = measured(bench, setting, masked, " behind memguard")
    blind = {"confidence": (found.accuracy["gap"], "what gap is without"), "largest confidence": (chance, "at chance")}
    for row, values in behind.accuracy.items():
        wanted, note = blind.get(row, (found.accuracy[row], "where it was without"))
        _, below, above = interval(values - wanted[: len(masked)])
        yield Cell(
            row, f"{setting.name}, memguard", 50.0 if row in blind else setting.published.get(row), *interval(values),
            behind.records, holds=below <= 0.0 <= above, note=note,
        )  # fmt: skip


Hook = Callable[[Bench, Setting, Sequence[Target], Measured], Iterator[Cell]]
BESIDE: list[Hook] = [behind_memguard]  # further rows of every setting


def interval(values: Floats) -> tuple[float, float, float]:
    """Mean over targets, and Student's interval of it at 95 %."""
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return mean, mean, mean
    half = float(t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half
