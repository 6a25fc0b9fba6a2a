"""Which defences prevent both kinds of membership inference: from probabilities, and from labels alone.

For each defence the strongest attack of each kind, by its area and, apart from that, by the balanced accuracy of its claims,
both averaged over the seeds (the choice favours the adversary), on digits that the model was and was not trained on.
Shadows are trained with the defence. The public model of `transfer`, and those that MemGuard's classifier learns from, saw
other digits of the same source. `private` is calibrated to a budget, epsilon at delta 1e-5, for its own training alone; its
noise is simulated.

    python benchmarks/defences.py --rows benchmarks/measured/defences.jsonl [--defences none,memguard]
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rows import asked, finish

from engram.access import Lab, Labels
from engram.attacks import ATTACKS, attack, kind, knobs_of
from engram.chunks.local import Memory
from engram.data import Dataset, digits
from engram.defences import defence
from engram.defences.memguard import defence_classifier
from engram.measure import judge
from engram.models import MLP
from engram.seed import Seed
from engram.target import trained
from engram.train import Adam, Batches, Recipe, fit
from engram.types import Scores

NETWORK = Recipe(MLP(inputs=64, classes=10, width=128), epochs=60, optimiser=Adam(3e-3), sampler=Batches(32))
PROBABILITIES: Mapping[str, Mapping[str, Any]] = {
    "confidence": {},
    "calibrated-loss": {},
    "lira": {"variance": "fixed"},
    "rmia": {},
    "trees": {},
    "learned": {"sees": ("posterior and label",), "epochs": 20, "rate": 0.02},
}
Row = Sequence[tuple[str, Mapping[str, Any]]]  # defences with their knobs, one after another
PRIVATE = {"delta": 1e-5, "rate": 0.1, "clip_norm": 1.0}
DEFENCES: Mapping[str, Row] = {
    "none": (),
    **{name: ((name, knobs),) for name, knobs in {
        "memguard": {},
        "memguard-optimised": {"steps": 60, "distortion": 2.0},
        "top-k-outputs": {},
        "rounded-outputs": {},
        "adversarial-regularisation": {"width": 64, "steps": 5, "rate": 5e-3, "weight": 3.0},
        "relaxloss": {"alpha": 0.5},
        "label-smoothing": {},
        "dropout": {"share": 0.7},
        "l2": {"weight_decay": 0.1},
        "early-stopping": {},
        "augmentation": {"pixels": 1, "flip": False},
        "transfer": {},
    }.items()},
    **{f"private, epsilon {epsilon}": (("private", {"epsilon": float(epsilon), **PRIVATE}),) for epsilon in (2, 8)},
    **{
        f"transfer, then private, epsilon {epsilon}": (("transfer", {}), ("private", {"epsilon": float(epsilon), **PRIVATE}))
        for epsilon in (2, 8)
    },
}  # fmt: skip


def main() -> None:
    args = asked(__doc__ or "", records=600, seeds=3, shadows=8, defences=",".join(DEFENCES).replace(", ", "; "))
    wanted = [name.replace("; ", ", ") for name in args.defences.split(",")]
    rows = []
    for name in wanted:
        runs = [row for s in range(args.seeds) for row in attacked(name, args.records, args.shadows, Seed(s))]
        rows.append(summed(name, runs, args.seeds))
        print(rows[-1], flush=True)
    finish(rows, benchmark="defences" if wanted == list(DEFENCES) else "some defences", args=args)


def attacked(row: str, records: int, shadows: int, seed: Seed) -> Iterator[Mapping[str, Any]]:
    """Area and accuracy of every attack on one defended target."""
    data = digits()
    chosen = seed.child("records").numpy().permutation(len(data))
    private, public = data.take(chosen[:records]), data.take(chosen[records : 2 * records])
    recipe = NETWORK
    for name, knobs in DEFENCES[row]:
        with tempfile.TemporaryDirectory() as folder:
            recipe = defence(name, {**knobs, **needed(name, public, Path(folder), seed)})(recipe)
    target = trained(recipe, private, name=row, seed=seed)
    right = correct(target)
    lab = Lab(seed.child("shadows"), Memory(), keep=True)
    for one in tried(shadows):
        handle = target.handle(one.asks, lab)
        said = one(handle, seed=seed.child("attack"))
        for scores in said if isinstance(said, Sequence) else [said]:
            assert isinstance(scores, Scores)
            found = {f.metric: f.value for f in judge(scores, target.member[scores.ids], seed=seed)}
            yield {
                "attack": named(one), "variant": scores.variant, "labels": one.asks is Labels, "area": found["auc"],
                "balanced": found["balanced_accuracy"],
                "members": right[target.member].mean(), "others": right[~target.member].mean(),
            }  # fmt: skip


def needed(name: str, public: Dataset, folder: Path, seed: Seed) -> dict[str, Any]:
    """The files that two defences cannot do without, made from public records."""
    if name == "transfer":
        torch.save(fit(NETWORK, public, seed=seed.child("public")).state_dict(), folder / "public.pt")
        return {"weights": str(folder / "public.pt")}
    if name == "memguard-optimised":
        torch.save(defence_classifier(NETWORK, public, seed=seed.child("guard")), folder / "guard.pt")
        return {"classifier": str(folder / "guard.pt")}
    return {}


def tried(shadows: int) -> Iterator[Any]:
    """The attacks on probabilities that are named above, and all on labels that there are."""
    labels = [name for name in ATTACKS if kind(name).asks is Labels]
    for name, knobs in {**PROBABILITIES, **{name: {} for name in labels}}.items():
        one = attack(name, knobs)
        yield replace(one, shadows=shadows) if "shadows" in knobs_of(one) else one  # type: ignore[type-var]


def named(one: Any) -> str:
    return next(name for name in ATTACKS if kind(name) is type(one))


def correct(target: Any) -> Any:
    p = target.answer(torch.as_tensor(target.records.x))
    return (p.argmax(-1).numpy() == target.records.y).astype(float)


def summed(name: str, runs: Sequence[Mapping[str, Any]], seeds: int) -> dict[str, Any]:
    accuracy = {key: float(np.mean([r[key] for r in runs])) for key in ("members", "others")}
    told = {"defence": name, "accuracy, members": accuracy["members"], "others": accuracy["others"]}
    for labels in (False, True):
        mine, of = [r for r in runs if r["labels"] == labels], "labels" if labels else "probabilities"
        for metric in ("area", "balanced"):
            best, values = strongest(mine, metric)
            told |= {
                f"{metric}, {of}": float(np.mean(values)),
                f"range, {metric}, {of}": f"{min(values):.3f}-{max(values):.3f}",
                f"by, {metric}, {of}": best,
            }
    return told | {"seeds": seeds}


def strongest(runs: Sequence[Mapping[str, Any]], metric: str) -> tuple[str, list[float]]:
    """Name of the attack with the largest mean of the metric; its values over the seeds."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(f"{run['attack']} ({run['variant']})".removesuffix(" ()"), []).append(run[metric])
    best = max(found, key=lambda key: float(np.mean(found[key])))
    return best, found[best]


if __name__ == "__main__":
    main()
