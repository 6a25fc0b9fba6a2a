"""Data sets from files, by what the file is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engram.data.arrays import from_idx, from_npz
from engram.data.dataset import Dataset
from engram.data.files import present
from engram.data.pictures import from_folder
from engram.data.tables import from_csv, from_parquet

LOADERS: dict[str, Callable[..., Dataset]] = {
    ".csv": from_csv,
    ".csv.gz": from_csv,
    ".npz": from_npz,
    ".parquet": from_parquet,
    "ubyte": from_idx,
    "ubyte.gz": from_idx,
}


def load(path: str | Path, **how: Any) -> Dataset:
    """The data set in a file, by its ending, or in a folder with one folder of pictures for each class.

    Arguments besides the path are those of the loader that the ending stands for: `load("adult.csv", label="income")`.
    """
    path = Path(path)
    loader = from_folder if path.is_dir() else _loader(present(path))
    try:
        given = inspect.signature(loader).bind(path, **how)
    except TypeError as error:
        takes = ", ".join(list(inspect.signature(loader).parameters)[1:])
        raise TypeError(f"{path.name} is loaded by {loader.__name__}, which takes {takes}: {error}") from None
    return loader(*given.args, **given.kwargs)


def _loader(path: Path) -> Callable[..., Dataset]:
    for ending, loader in LOADERS.items():
        if path.name.lower().endswith(ending):
            return loader
    raise ValueError(
        f"cannot tell from its name what {path.name} holds; known endings: {', '.join(LOADERS)}; "
        "or make a data set from two arrays with engram.data.dataset(x, y)"
    )
