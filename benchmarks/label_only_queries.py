"""What a query buys: every label-only attack against how many queries a record may cost.

Targets like the one that ships with the tool (300 handwritten digits, half learned by heart), one a seed; mean over
seeds and the interval of that mean; rates in % at thresholds that let through so many of all targets' others, where there
are enough of them to tell. All attacks of a seed share their shadows.

    python benchmarks/label_only_queries.py [--seeds 10]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rows import asked, finish

from engram.access import Lab, Labels
from engram.attacks import attack
from engram.chunks.local import Memory
from engram.measure.ranks import ranked
from engram.measure.roc import auc
from engram.reproduce.label_only import LOW, accuracies, at_rate, interval
from engram.seed import Seed
from engram.target import Target, embedded
from engram.types import Bools, Scores

ATTACKS: Sequence[tuple[str, dict[str, Any]]] = (
    ("gap", {}),
    *(("yoqo", {"queries": q}) for q in (1, 2, 5, 10)),
    ("augmentation", {"translation": 0}),
    ("augmentation", {"rotation": 0}),
    ("augmentation", {"rotation": 0, "translation": 2}),
    *(("noise", {"queries": q}) for q in (5, 10, 25, 100, 250, 1000)),
    *(("boundary", {"queries": q}) for q in (10, 25, 100, 250, 1000, 2500, 12500)),
    *(("combined", {"queries": q}) for q in (20, 50, 500, 2500)),
)


def main() -> None:
    args = asked(__doc__ or "", seeds=10, most=12500)
    found: dict[tuple[str, str], list[Asked]] = {}
    for s in range(args.seeds):
        for name, variant, told in measured(replace(embedded(Seed(s)), access=Labels), Seed(s), args.most):
            found.setdefault((name, variant), []).append(told)
    finish([averaged(*key, told) for key, told in found.items()], benchmark="label-only queries", args=args)


@dataclass(frozen=True, eq=False)
class Asked:
    """What one attack said of one target, and what it cost."""

    scores: Scores
    member: Bools
    queries: float  # a record


def measured(target: Target, seed: Seed, most: int) -> Iterator[tuple[str, str, Asked]]:
    lab = Lab(seed.child("shadows"), Memory(), keep=True)
    for name, knobs in ATTACKS:
        copies = 5 if name == "combined" else 1
        if copies * knobs.get("queries", 1) > most:
            continue
        handle = target.handle(Labels, lab)
        said = attack(name, knobs)(handle, seed=seed)
        for scores in said if isinstance(said, Sequence) else [said]:
            shadowed = ", against shadows" if "against shadows" in scores.variant else ""
            knob = ", ".join(f"{key} {value}" for key, value in knobs.items() if value)
            if name == "augmentation":
                knob = scores.variant.partition(",")[0]
            yield name, knob + shadowed, Asked(scores, target.member, handle.queries / len(target.records))


def averaged(name: str, variant: str, told: Sequence[Asked]) -> dict[str, Any]:
    said, truth = [t.scores for t in told], [t.member for t in told]
    mean, low, high = interval(accuracies(said, truth))
    area = np.mean([auc(ranked(s.values, m)) for s, m in zip(said, truth, strict=True)])
    rates = {name: at_rate(said, truth, fpr, Seed(0)) for name, fpr in LOW.items()}
    return {
        "attack": name, "variant": variant, "queries a record": float(np.mean([t.queries for t in told])),
        "balanced accuracy, %": mean, "low": low, "high": high, "AUC": float(area),
        **{name: None if isinstance(rate, str) else "{:.1f} [{:.1f}, {:.1f}]".format(*rate) for name, rate in rates.items()},
        "targets": len(told),
    }  # fmt: skip


if __name__ == "__main__":
    main()
