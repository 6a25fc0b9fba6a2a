"""Records and their labels, in memory."""

from __future__ import annotations

from dataclasses import dataclass

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

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: npt.ArrayLike) -> Dataset:
        rows = np.asarray(rows)
        return Dataset(self.x[rows], self.y[rows], self.classes, self.name)


def dataset(
    x: npt.ArrayLike, y: npt.ArrayLike, *, classes: tuple[str, ...] | None = None, name: str = "unnamed"
) -> Dataset:
    """A `Dataset` from two arrays, checked: finite records, whole-number labels in range, equal lengths."""
    x, y = np.asarray(x), np.asarray(y)
    check.same_length(records=x, labels=y)
    if not (np.issubdtype(x.dtype, np.number) or x.dtype == bool):
        raise TypeError(f"records must be numbers, got {x.dtype}")
    x = x.astype(np.float32) if not np.issubdtype(x.dtype, np.integer) or x.dtype == np.uint8 else x
    y = check.labels("labels", y, None if classes is None else len(classes))
    names = classes or tuple(str(k) for k in range(int(y.max(initial=-1)) + 1))
    return Dataset(check.finite("records", x), y, names, name)
