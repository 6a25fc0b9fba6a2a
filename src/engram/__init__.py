"""Engram: what a model remembers of its training, what it gives away, and what would have prevented it."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES: dict[str, str] = {}

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'engram' has no attribute {name!r}")
