"""Records that are pictures: numbers in 0..1, channel first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engram.data.dataset import Dataset, dataset
from engram.data.files import installed
from engram.types import Array

if TYPE_CHECKING:
    from PIL.Image import Image

CHANNELS = (1, 3, 4)
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def pixels(values: Array) -> Array:
    """Bytes of pictures as float32 in 0..1, [record, channel, row, column].

    Takes [record, row, column], and channels before or behind rows and columns.

    >>> import numpy as np
    >>> pixels(np.zeros((5, 32, 32, 3), np.uint8)).shape
    (5, 3, 32, 32)
    """
    if values.dtype != np.uint8:
        raise TypeError(f"pixels must be bytes (uint8), got {values.dtype}; take numbers in 0..1 as they are")
    if values.ndim == 3:
        values = values[:, None]
    elif values.ndim == 4 and values.shape[3] in CHANNELS:
        values = np.moveaxis(values, 3, 1)
    elif values.ndim != 4 or values.shape[1] not in CHANNELS:
        raise ValueError(f"pictures must be [record, row, column] or have 1, 3 or 4 channels, got shape {values.shape}")
    return np.ascontiguousarray(values, np.float32) / 255


def picture(image: Image, *, colour: bool) -> Array:
    """One opened picture, [channel, row, column] in 0..1."""
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"pictures must have 8 bits a channel, got mode {image.mode}; convert them first")
    told: Array = pixels(np.asarray(image.convert("RGB" if colour else "L"))[None])[0]
    return told


def from_folder(path: str | Path, *, size: tuple[int, int] | None = None, colour: bool = True) -> Dataset:
    """A folder with one folder of pictures for each class, in the order of their names.

    All pictures must have one size, in (rows, columns); with `size` they are brought to it. Files that are no pictures
    by their ending are passed over.
    """
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"expected a folder of pictures, found none at {path}; check the name and the folder")
    classes = tuple(sorted(f.name for f in path.iterdir() if f.is_dir() and not f.name.startswith(".")))
    files = [(file, label) for label, name in enumerate(classes) for file in _pictures(path / name)]
    if not files:
        raise ValueError(f"{path} must have one folder of pictures for each class, such as cat/1.png; it has none")
    x = [_opened(file, size, colour) for file, _ in files]
    for (file, _), one in zip(files, x, strict=True):
        if one.shape != x[0].shape:
            raise ValueError(
                f"pictures must have one size, but {files[0][0]} has {x[0].shape[1:]} and {file} has {one.shape[1:]}; "
                "bring them to one with size=(rows, columns)"
            )
    return dataset(np.stack(x), np.array([label for _, label in files]), classes=classes, name=path.name)


def _pictures(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.iterdir()) if file.suffix.lower() in ENDINGS)


def _opened(file: Path, size: tuple[int, int] | None, colour: bool) -> Array:
    opener = installed("PIL.Image", "pictures")
    try:
        with opener.open(file) as image:
            return picture(image.resize(size[::-1]) if size else image, colour=colour)
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError(f"{file} was not read as a picture: {error}") from None
