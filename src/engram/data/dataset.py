"""Records and their labels, in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engram import check
from engram.types import Array, Ints


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records with one label each. Made by the loaders of this room, or from two arrays with `dataset`."""

    x: Array  # [record, ...] float32, or int64 where a record is a sequence of tokens
    y: Ints  # [record]
    classes: tuple[str, ...]
    name: str = "unnamed"
    columns: tuple[str, ...] = ()  # what the columns of x are called, where it was a table

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: npt.ArrayLike) -> Dataset:
        rows = np.asarray(rows)
        return replace(self, x=self.x[rows], y=self.y[rows])


def dataset(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    classes: tuple[str, ...] | None = None,
    name: str = "unnamed",
    columns: tuple[str, ...] = (),
) -> Dataset:
    """A `Dataset` from two arrays, checked: finite records, labels in range, equal lengths.

    Whole numbers stay whole, as tokens; bytes and everything else become float32. Labels that are text are numbered in
    the order of `classes`, or of the alphabet.

    >>> dataset([[0.5], [1.5]], ["cat", "bird"]).classes
    ('bird', 'cat')
    """
    x, y = np.asarray(x), np.asarray(y)
    check.same_length(records=x, labels=y)
    if x.dtype.kind not in "biuf":
        raise TypeError(f"records must be numbers, got {x.dtype}; turn them into numbers first")
    if y.dtype.kind == "U":
        y, classes = _numbered(y, classes)
    y = check.labels("labels", y, None if classes is None else len(classes))
    names = classes or tuple(str(k) for k in range(int(y.max(initial=-1)) + 1))
    return Dataset(check.finite("records", _converted(x)), y, names, name, columns)


def _converted(x: Array) -> Array:
    whole = x.dtype.kind in "iu" and x.dtype != np.uint8
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return x.astype(np.int64 if whole else np.float32)


def _numbered(y: Array, classes: tuple[str, ...] | None) -> tuple[Ints, tuple[str, ...]]:
    """Texts as positions among the classes."""
    found, place = np.unique(y, return_inverse=True)
    names = classes or tuple(str(text) for text in found)
    position = {name: k for k, name in enumerate(names)}
    told = [position[check.known("class", str(text), names)] for text in found]
    return np.array(told, np.int64)[place], names
