"""Argument checks, in one place. Each message says what was expected, what came, and what to do."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from engram.types import Array


def positive(name: str, value: float, instead: str = "") -> float:
    if not (math.isfinite(_number(name, value)) and value > 0):
        raise ValueError(f"{name} must be positive and finite, got {value}{_instead(instead)}")
    return value


def at_least(name: str, value: float, least: float, instead: str = "") -> float:
    if not _number(name, value) >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}{_instead(instead)}")
    return value


def whole(name: str, value: int, least: int) -> int:
    """A whole number, not 2.0 and not True."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    return int(at_least(name, value, least))


def fraction(name: str, value: float, *, zero: bool = False, one: bool = False) -> float:
    """A number between 0 and 1; the ends only where they are allowed."""
    value = _number(name, value)
    if not ((0 < value < 1) or (zero and value == 0) or (one and value == 1)):
        low, high = "[" if zero else "(", "]" if one else ")"
        raise ValueError(f"{name} must lie in {low}0, 1{high}, got {value}")
    return value


def known(kind: str, name: str, names: Iterable[str]) -> str:
    """`name` if it is one of `names`; else an error that lists them and suggests the nearest."""
    names = sorted(names)
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, 1, 0.5)  # of two letters, one may be wrong
    suggestion = f"; did you mean {near[0]}?" if near else "."
    raise ValueError(f"no {kind} is called {name!r}{suggestion} Known: {', '.join(names)}")


def finite(name: str, values: Array) -> Array:
    bad = ~np.isfinite(values) if np.issubdtype(values.dtype, np.inexact) else np.zeros(1, bool)
    if bad.any():
        row = int(np.argwhere(bad)[0][0]) if values.ndim else 0
        raise ValueError(
            f"{name} must be finite, got {values[bad].flat[0]} in record {row} ({int(bad.sum())} such values in all); "
            "remove or fill them first"
        )
    return values


def same_length(**arrays: Any) -> int:
    """The common length of the named arrays."""
    lengths = {name: len(a) for name, a in arrays.items() if a is not None}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise ValueError(f"lengths must agree, but {told}")
    return next(iter(lengths.values()))


def labels(name: str, values: Array, classes: int | None = None) -> Array:
    """Whole numbers from 0 to classes - 1, as int64."""
    values = np.asarray(values)
    if not (np.issubdtype(values.dtype, np.integer) or np.issubdtype(values.dtype, np.bool_)):
        raise TypeError(f"{name} must be whole numbers from 0, got {values.dtype}; number the classes first")
    if values.ndim != 1:
        raise ValueError(f"{name} must have one number a record, got shape {values.shape}")
    if len(values) and (values.min() < 0 or (classes is not None and values.max() >= classes)):
        bad = int(values.min()) if values.min() < 0 else int(values.max())
        raise ValueError(f"{name} must lie in 0..{'' if classes is None else classes - 1}, got {bad}")
    return values.astype(np.int64)


def _number(name: str, value: float) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return value


def _instead(instead: str) -> str:
    return f"; {instead}" if instead else ""
