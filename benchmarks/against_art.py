"""Membership attacks of engram and of adversarial-robustness-toolbox 1.20.1 on the same target and the same records.

Both sides see the same network, the same candidate records, and shadows trained by the same recipe. ART's learned attacks
are fitted on one shadow of ours (its own API takes one attacked model), ours use as many as they say. Every score list is
judged by the same code. Wall time is split into shadows (trained once, shared) and the attack itself.

    pip install adversarial-robustness-toolbox==1.20.1 packaging
    python benchmarks/against_art.py
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from rows import asked, finish

from engram.access import Lab, Probabilities
from engram.attacks import attack, kind
from engram.chunks.local import Memory
from engram.data import Dataset, dataset
from engram.measure import judge
from engram.models import MLP
from engram.population import paired
from engram.seed import Seed
from engram.target import Target, trained
from engram.train import Adam, Batches, Recipe, fit
from engram.types import Floats, Scores

CLASSES, COLUMNS = 20, 40
OURS = {"gap": 0, "confidence": 16, "lira": 16, "rmia": 16, "bavaria": 16}
PEERS = ("rf", "gb", "nn", "lr")


def main() -> None:
    args = asked(__doc__ or "", records=4000, seeds=3)
    warnings.simplefilter("ignore")
    rows = [row for s in range(args.seeds) for row in compared(args.records, Seed(s))]
    finish(averaged(rows), benchmark="against art", args=args)


def table(records: int, seed: Seed) -> Dataset:
    """Twenty overlapping clusters: a task that is learned half and half by heart."""
    stream = seed.child("table").numpy()
    centres = stream.normal(size=(CLASSES, COLUMNS))
    y = stream.integers(0, CLASSES, records)
    return dataset((centres[y] + 1.5 * stream.normal(size=(records, COLUMNS))).astype(np.float32), y)


def compared(records: int, seed: Seed) -> Iterator[dict[str, Any]]:
    recipe = Recipe(
        MLP(inputs=COLUMNS, classes=CLASSES, width=64), epochs=60, optimiser=Adam(3e-3), sampler=Batches(64)
    )
    target = trained(recipe, table(records, seed), name="clusters", seed=seed)
    lab = Lab(seed.child("shadows"), Memory())
    began = time.perf_counter()
    handle = target.handle(Probabilities, lab)
    handle.population(16)
    training = time.perf_counter() - began
    for name, shadows in OURS.items():
        one = attack(name, {"shadows": shadows} if shadows else {})
        handle = target.handle(kind(name).asks, lab)
        said, seconds = timed(lambda one=one, handle=handle: one(handle, seed=seed))
        first = said[0] if isinstance(said, Sequence) else said
        yield judged(
            "engram", name, first.values, target, seconds, handle.queries, shadows, training if shadows else 0.0
        )
    yield from of_art(target, recipe, seed)


def of_art(target: Target, recipe: Recipe, seed: Seed) -> Iterator[dict[str, Any]]:
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox

    member = paired(2, len(target.records), seed.child("art"))[0]
    began = time.perf_counter()
    shadow = fit(recipe, target.records.take(member), seed=seed.child("art"))
    training = time.perf_counter() - began
    x, y = target.records.x, target.records.y
    for model in PEERS:
        made = MembershipInferenceBlackBox(classifier(shadow), attack_model_type=model)

        def run(made: Any = made) -> Floats:
            made.fit(x[member], y[member], x[~member], y[~member])
            made._estimator = classifier(target.model)  # ART has no way to carry a fitted attack from shadow to target
            return np.asarray(made.infer(x, y, probabilities=True))[:, -1].ravel()

        scores, seconds = timed(run)
        yield judged("ART", f"black box, {model}", scores, target, seconds, len(x), 1, training)


def classifier(model: torch.nn.Module) -> Any:
    from art.estimators.classification import PyTorchClassifier

    probabilities = torch.nn.Sequential(model, torch.nn.Softmax(-1))
    return PyTorchClassifier(probabilities, torch.nn.CrossEntropyLoss(), (COLUMNS,), CLASSES)


def judged(
    who: str, name: str, values: Floats, target: Target, seconds: float, queries: int, shadows: int, training: float
) -> dict[str, Any]:
    found = {
        f.metric: f
        for f in judge(Scores(np.asarray(values, float), np.arange(len(values))), target.member, seed=Seed(0))
    }
    return {
        "who": who, "attack": name, "AUC": found["auc"].value, "TPR at 1 %": found["tpr@0.01"].value, "attack s": seconds,
        "shadows": shadows, "shadows s": training, "queries a record": queries / len(values),
    }  # fmt: skip


def averaged(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Mean over seeds; of the AUC also the range."""
    for name in dict.fromkeys((row["who"], row["attack"]) for row in rows):
        mine = [row for row in rows if (row["who"], row["attack"]) == name]
        areas = [row["AUC"] for row in mine]
        mean = {key: float(np.mean([r[key] for r in mine])) for key in mine[0] if key not in ("who", "attack")}
        yield {
            "who": name[0],
            "attack": name[1],
            **mean,
            "AUC range": f"{min(areas):.3f}-{max(areas):.3f}",
            "seeds": len(mine),
        }


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    done = work()
    return done, time.perf_counter() - began


if __name__ == "__main__":
    main()
