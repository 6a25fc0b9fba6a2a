"""Records that are rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engram import check
from engram.data.dataset import Dataset, dataset
from engram.data.files import installed, present
from engram.types import Array

MOST = 1000  # different texts of one column; where there are more, they are names and not categories


def from_csv(path: str | Path, *, label: str, drop: Sequence[str] = ()) -> Dataset:
    """The rows of a CSV file, plain or packed (`.gz`); see `from_parquet` for what becomes of the columns."""
    reader = installed("pandas", "tables").read_csv
    return _records(present(path), lambda p: reader(p, low_memory=False), label, drop)


def from_parquet(path: str | Path, *, label: str, drop: Sequence[str] = ()) -> Dataset:
    """The rows of a Parquet file, and as their labels the column called `label`.

    Columns of numbers become float32. A column of text becomes one column of 0 and 1 for each text that occurs, called
    "column=text": members and non-members must come from one file, or their columns differ. Numbers are not scaled. A
    missing value is refused.
    """
    installed("pyarrow", "Parquet files")
    return _records(present(path), installed("pandas", "tables").read_parquet, label, drop)


def _records(path: Path, read: Callable[[Path], Any], label: str, drop: Sequence[str]) -> Dataset:
    frame = _read(path, read)
    for column in (label, *drop):
        check.known(f"column of {path.name}", column, frame.columns)
    frame = frame.drop(columns=list(drop))
    for column, missing in frame.isna().sum().items():
        if missing:
            raise ValueError(
                f"column {column!r} of {path.name} has {missing} missing values; fill them or remove their rows first, "
                f"or leave the column out with drop=({column!r},)"
            )
    named = [_encoded(column, values) for column, values in frame.items() if column != label]
    if not named:
        raise ValueError(f"{path.name} has no column besides its label {label!r}; a record needs at least one")
    columns = tuple(name for names, _ in named for name in names)
    return dataset(
        np.concatenate([values for _, values in named], 1),
        _labels(frame[label]),
        columns=columns,
        name=path.name.partition(".")[0],
    )


def _read(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        frame = read(path)
    except (ValueError, EOFError, OSError) as error:
        said, _, _ = str(error).partition("\n")
        raise ValueError(f"{path} was not read as a table: {said}") from None
    return frame.set_axis([str(column) for column in frame.columns], axis=1)


def _encoded(column: str, values: Any) -> tuple[list[str], Array]:
    """Names, and numbers [record, name]."""
    if _numeric(values):
        return [column], values.to_numpy(np.float32)[:, None]
    texts, place = np.unique(_texts(column, values), return_inverse=True)
    if len(texts) > MOST:
        raise ValueError(
            f"column {column!r} has {len(texts)} different texts, more than the {MOST} that can be categories; "
            f"leave it out with drop=({column!r},)"
        )
    return [f"{column}={text}" for text in texts], np.eye(len(texts), dtype=np.float32)[place]


def _labels(values: Any) -> Array:
    return np.asarray(values.to_numpy() if _numeric(values) else _texts(values.name, values))


def _texts(column: str, values: Any) -> Array:
    holds = installed("pandas", "tables").api.types.infer_dtype(values, skipna=False)
    if holds not in ("string", "categorical"):
        raise TypeError(
            f"column {column!r} must hold numbers or text, got {holds}; leave it out with drop=({column!r},)"
        )
    told: Array = values.astype(str).to_numpy().astype(np.str_)
    return told


def _numeric(values: Any) -> bool:
    return getattr(values.dtype, "kind", "O") in "biuf"
