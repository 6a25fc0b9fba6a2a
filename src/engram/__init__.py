"""Engram: what a model remembers of its training, what it gives away, and what would have prevented it."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "Dataset": "engram.data",
    "Gradients": "engram.access",
    "Labels": "engram.access",
    "Plan": "engram.audit",
    "Probabilities": "engram.access",
    "Recipe": "engram.train",
    "Seed": "engram.seed",
    "Store": "engram.store",
    "Target": "engram.target",
    "Update": "engram.train",
    "dataset": "engram.data",
    "private": "engram.clipping",
}
_ROOMS = ("accounting", "attacks", "audit", "data", "defences", "measure", "models", "reproduce", "signals", "train")

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"engram.{name}")
    raise AttributeError(f"module 'engram' has no attribute {name!r}")
