"""The attacks, by name. A new one is a file in this folder, a test, and a line in this table.

An attack is a frozen dataclass of its knobs, called as `attack(handle, seed=..., track=...)`. It says what it `asks`
for, which of the report's `question`s it answers, and its `paper`. Packages may add attacks through the entry point
group "engram.attacks".
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from engram import check
from engram.types import Attack

ATTACKS = {
    "adversarial-confidence": "engram.attacks.adversarial:AdversarialConfidence",
    "augmentation": "engram.attacks.augmentation:Augmentation",
    "bag-of-labels": "engram.attacks.bag_of_labels:BagOfLabels",
    "bavaria": "engram.attacks.bavaria:BaVarIA",
    "boundary": "engram.attacks.boundary:Boundary",
    "calibrated-loss": "engram.attacks.calibrated:CalibratedLoss",
    "calibrated-taylor": "engram.attacks.calibrated:CalibratedTaylor",
    "carlini-wagner": "engram.attacks.carlini_wagner:CarliniWagner",
    "combined": "engram.attacks.boundary:Combined",
    "confidence": "engram.attacks.thresholds:Confidence",
    "dager": "engram.attacks.dager:Dager",
    "deep-leakage": "engram.attacks.deep_leakage:DeepLeakage",
    "entropy": "engram.attacks.thresholds:Entropy",
    "gap": "engram.attacks.gap:Gap",
    "inversion": "engram.attacks.inversion:Inversion",
    "inverting-gradients": "engram.attacks.inverting_gradients:InvertingGradients",
    "largest-confidence": "engram.attacks.thresholds:LargestConfidence",
    "learned": "engram.attacks.learned:Learned",
    "linear-layer": "engram.attacks.linear_layer:LinearLayer",
    "lira": "engram.attacks.lira:LiRA",
    "mnemonist": "engram.attacks.mnemonist:Mnemonist",
    "modified-entropy": "engram.attacks.thresholds:ModifiedEntropy",
    "noise": "engram.attacks.noise:Noise",
    "outliers": "engram.attacks.outliers:Outliers",
    "reconstructor": "engram.attacks.reconstructor:Reconstructor",
    "recursive": "engram.attacks.recursive:Recursive",
    "rmia": "engram.attacks.rmia:RMIA",
    "samia": "engram.attacks.learned:SAMIA",
    "spear": "engram.attacks.spear:Spear",
    "stationarity": "engram.attacks.stationarity:Stationarity",
    "trees": "engram.attacks.learned:Trees",
    "yoqo": "engram.attacks.yoqo:YOQO",
}


def known() -> dict[str, str]:
    """Name and place of every attack: ours, and those that installed packages add."""
    return {e.name: e.value for e in importlib.metadata.entry_points(group="engram.attacks")} | ATTACKS


def kind(name: str) -> type[Any]:
    """The class of an attack."""
    module, _, cls = known()[check.known("attack", name, known())].partition(":")
    found: type[Any] = getattr(importlib.import_module(module), cls)
    return found


def knobs_of(attack: Attack) -> dict[str, Any]:
    """The knobs of an attack and what they are set to."""
    return {f.name: getattr(attack, f.name) for f in dataclasses.fields(attack)}  # type: ignore[arg-type]


def attack(name: str, knobs: Mapping[str, Any] | None = None) -> Attack:
    """An attack with these knobs; the others have their defaults.

    >>> attack("lira", {"shadows": 16}).shadows
    16
    """
    cls, knobs = kind(name), knobs or {}
    for knob in knobs:
        check.known(f"knob of {name}", knob, [f.name for f in dataclasses.fields(cls)])
    made: Attack = cls(**knobs)
    return made
