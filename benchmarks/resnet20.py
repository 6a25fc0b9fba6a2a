"""A model that nobody here trained: ResNet-20 on CIFAR-10, its members and non-members known.

The weights are those of Yerlan Idelbayev (12fca82f); its members are CIFAR-10's official train images, its non-members the
official test images. The loss threshold needs no shadows; LiRA, RMIA and BaVarIA train theirs here by a shorter recipe than
the model's own, on halves of the candidates, which weakens them: the figures are a floor.

    python benchmarks/resnet20.py --data FOLDER --device cuda --shadows 16 --epochs 30
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rows import asked, finish

from engram.access import Lab
from engram.attacks import attack, kind
from engram.chunks.local import Memory
from engram.data import Dataset, dataset
from engram.measure import judge
from engram.models import ResNet20, load_weights, strip_prefix
from engram.seed import Seed
from engram.target import Target
from engram.train import SGD, Batches, Cosine, Recipe
from engram.train.augment import Flipped, Shifted

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    args = asked(__doc__ or "", data=None, shadows=16, epochs=30, members=5000)
    target = resnet20(args.data, args.members, args.epochs, args.device)
    lab = Lab(Seed(0), Memory(), args.device)
    rows = []
    for name in ("gap", "confidence", "lira", "rmia", "bavaria"):
        began = time.perf_counter()
        knobs = {"shadows": args.shadows} if hasattr(kind(name), "shadows") else {}
        knobs |= {"variance": "fixed"} if name == "lira" else {}
        told = attack(name, knobs)(target.handle(kind(name).asks, lab), seed=Seed(0))
        for scores in told if isinstance(told, Sequence) else [told]:
            rows.append(row(name, scores, target, time.perf_counter() - began))
    finish(rows, benchmark="resnet20", args=args)


def resnet20(folder: Path, members: int, epochs: int, device: str) -> Target:
    recipe = Recipe(
        ResNet20(normalise=(MEAN, STD)), epochs=epochs, sampler=Batches(128), before=(Shifted(4), Flipped()),
        optimiser=SGD(0.1, momentum=0.9, weight_decay=1e-4, schedule=Cosine()),
    )  # fmt: skip
    model = recipe.build()
    model.load_state_dict(strip_prefix(load_weights(folder / "resnet20-cifar10-12fca82f.th")))
    records, member = candidates(folder, members)
    return Target(model.to(device).eval(), records, member, recipe, "ResNet-20, CIFAR-10")


def candidates(folder: Path, members: int) -> tuple[Dataset, Any]:
    """The first so many train images of the subset, and all of its test images."""
    with np.load(folder / "cifar10_20k_5k.npz") as held:
        x = np.concatenate([held["x_train"][:members], held["x_test"]])
        y = np.concatenate([held["y_train"][:members], held["y_test"]])
    images = (x.astype(np.float32) / 255).transpose(0, 3, 1, 2)
    return dataset(images, y.astype(np.int64)), np.arange(len(x)) < members


def row(name: str, scores: Any, target: Target, seconds: float) -> dict[str, Any]:
    found = {f.metric: f for f in judge(scores, target.member, seed=Seed(0))}
    auc, tpr = found["auc"], found["tpr@0.01"]
    return {
        "attack": name, "variant": scores.variant, "AUC": auc.value, "low": auc.low, "high": auc.high,
        "TPR at 1 %": tpr.value, "tpr low": tpr.low, "tpr high": tpr.high, "n": auc.n, "seconds": seconds,
    }  # fmt: skip


if __name__ == "__main__":
    main()
