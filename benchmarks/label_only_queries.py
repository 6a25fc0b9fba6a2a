"""What a query buys: every label-only attack against how many queries a record may cost.

Targets like the one that ships with the tool (300 handwritten digits, half learned by heart), one a seed; mean over
seeds and, in brackets, the interval of that mean. All attacks of a seed share their shadows.

    python benchmarks/label_only_queries.py [--seeds 10]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rows import asked, finish
from scipy.stats import t

from engram.access import Lab, Labels
from engram.attacks import attack
from engram.chunks.local import Memory
from engram.measure import judge
from engram.seed import Seed
from engram.target import Target, embedded

ATTACKS: Sequence[tuple[str, dict[str, Any]]] = (
    ("gap", {}),
    *(("yoqo", {"queries": q}) for q in (1, 2, 5, 10)),
    ("augmentation", {"translation": 0}),
    ("augmentation", {"rotation": 0}),
    ("augmentation", {"rotation": 0, "translation": 2}),
    *(("noise", {"queries": q}) for q in (5, 10, 25, 100, 250, 1000, 2500)),
    *(("boundary", {"queries": q}) for q in (10, 25, 100, 250, 1000, 2500, 12500)),
    *(("combined", {"queries": q}) for q in (20, 50, 500, 2500)),
)


def main() -> None:
    args = asked(__doc__ or "", seeds=10, most=12500)
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for s in range(args.seeds):
        for name, variant, *told in measured(replace(embedded(Seed(s)), access=Labels), Seed(s), args.most):
            found.setdefault((name, variant), []).append(tuple(told))
    finish([averaged(*key, values) for key, values in found.items()], benchmark="label-only queries", args=args)


def measured(target: Target, seed: Seed, most: int) -> Iterator[tuple[Any, ...]]:
    lab = Lab(seed.child("shadows"), Memory())
    for name, knobs in ATTACKS:
        copies = 5 if name == "combined" else 1
        if copies * knobs.get("queries", 1) > most:
            continue
        handle = target.handle(Labels, lab)
        said = attack(name, knobs)(handle, seed=seed)
        for scores in said if isinstance(said, Sequence) else [said]:
            worth = {f.metric: f for f in judge(scores, target.member, seed=seed)}
            shadowed = ", against shadows" if "against shadows" in scores.variant else ""
            knob = ", ".join(f"{key} {value}" for key, value in knobs.items() if value)
            spent = handle.queries / len(target.records)
            yield name, knob + shadowed, spent, worth["balanced_accuracy"].value, worth["auc"].value


def averaged(name: str, variant: str, values: list[tuple[float, float, float]]) -> dict[str, Any]:
    spent, balanced, area = np.array(values).T
    return {
        "attack": name, "variant": variant, "queries a record": float(spent.mean()),
        "balanced accuracy": interval(balanced), "AUC": interval(area), "targets": len(values),
    }  # fmt: skip


def interval(values: np.ndarray) -> str:
    """Mean, and Student's interval of it at 95 %."""
    mean = values.mean()
    if len(values) < 2:
        return f"{mean:.3f}"
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"


if __name__ == "__main__":
    main()
