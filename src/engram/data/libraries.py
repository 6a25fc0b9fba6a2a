"""Records that installed libraries hold. None of them is imported here before it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engram import check
from engram.data.dataset import Dataset, dataset
from engram.data.files import installed
from engram.data.pictures import picture, pixels
from engram.types import Array


def digits() -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels in 0..1, channel first. They ship inside scikit-learn: no network."""
    bunch = installed("sklearn.datasets", "the digits").load_digits()
    images = (bunch.images / 16).astype(np.float32)[:, None]  # [record, 1, 8, 8]
    return dataset(images, bunch.target, classes=tuple("0123456789"), name="digits")


def from_torchvision(pairs: Any, *, name: str | None = None) -> Dataset:
    """A data set of torchvision, or any other that gives (picture or tensor, label) by its number."""
    if not (hasattr(pairs, "__getitem__") and hasattr(pairs, "__len__")):
        raise TypeError(
            f"the data set must give its records by number, got {type(pairs).__name__} which lacks that; "
            "collect it in a list first"
        )
    drawn = [pairs[k] for k in range(len(pairs))]
    labels = np.array([int(label) for _, label in drawn], np.int64)
    classes = getattr(pairs, "classes", None)
    return dataset(
        _stacked([record for record, _ in drawn]),
        labels,
        classes=tuple(str(c) for c in classes) if classes else None,
        name=name or type(pairs).__name__,
    )


def from_hugging_face(table: Any, *, record: str, label: str, name: str | None = None) -> Dataset:
    """One split of a Hugging Face data set: the columns that hold the records and the labels.

    Records are pictures, numbers, or token ids of one length. Text must be tokenised first.
    """
    if isinstance(table, Mapping):
        raise TypeError(f"expected one split, got several ({', '.join(table)}); give one, such as splits['train']")
    for column in (record, label):
        check.known("column", column, table.column_names)
    classes = getattr(table.features[label], "names", None)
    return dataset(
        _stacked(list(table[record])),
        np.array(list(table[label])),
        classes=tuple(classes) if classes else None,
        name=name or str(getattr(table, "builder_name", None) or "unnamed"),
    )


def _stacked(records: Sequence[Any]) -> Array:
    arrays = [_array(one) for one in records]
    for position, one in enumerate(arrays):
        if one.shape != arrays[0].shape:
            raise ValueError(
                f"records must have one shape, but record 0 has {arrays[0].shape} and record {position} has {one.shape}; "
                "bring them to one with a transform"
            )
    return np.stack(arrays) if arrays else np.empty((0,), np.float32)


def _array(record: Any) -> Array:
    if isinstance(record, str | bytes):
        raise TypeError("records must be numbers or pictures, got text; turn it into token ids first")
    if hasattr(record, "getbands"):  # a picture of pillow
        return picture(record, colour=record.mode not in ("1", "L"))
    told = np.asarray(record)
    return pixels(told[None])[0] if told.dtype == np.uint8 and told.ndim in (2, 3) else told
