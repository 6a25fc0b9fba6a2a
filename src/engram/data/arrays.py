"""Records from files of arrays: NumPy's `.npz`, and the idx format in which MNIST is published.

LeCun, Cortes, Burges: The MNIST database of handwritten digits, 1998, section "File formats".
"""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from pathlib import Path

import numpy as np

from engram.data.dataset import Dataset, dataset
from engram.data.files import present
from engram.data.pictures import pixels
from engram.types import Array

BYTES = 8  # the third byte of an idx file: what it holds are unsigned bytes


def from_npz(path: str | Path, *, x: str = "x", y: str = "y", images: bool | None = None) -> Dataset:
    """The arrays called `x` and `y` of an `.npz` file.

    `images=True` turns bytes of pictures into 0..1, channel first; `images=False` takes the bytes as they are. Where
    bytes look like pictures, one of the two must be said. A file that would have to be unpickled is refused.
    """
    path = present(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an .npz file; write one with numpy.savez(path, x=records, y=labels)")
    with np.load(path, allow_pickle=False) as held:
        for name in (x, y):
            if name not in held.files:
                raise ValueError(
                    f"{path.name} has no array {name!r}, it has {', '.join(sorted(held.files)) or 'none'}; "
                    "say which to take with x=... and y=..."
                )
        try:
            records, labels = held[x], held[y]
        except (ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} was not loaded: {error}; save plain arrays of numbers or of text") from None
    if images is None and records.dtype == np.uint8 and records.ndim in (3, 4):
        raise ValueError(
            f"{x} holds bytes of shape {records.shape}, which look like pictures; say images=True for numbers in 0..1, "
            "channel first, or images=False to take the bytes as they are"
        )
    return dataset(pixels(records) if images else records, labels, name=path.stem)


def from_idx(images: str | Path, labels: str | Path | None = None) -> Dataset:
    """Pictures in MNIST's format, plain or `.gz`, as numbers in 0..1, [record, 1, row, column].

    The file of labels is found beside the pictures by its usual name, unless it is given.
    """
    images = present(images)
    x = _idx(images, "pictures", 3)  # [record, row, column]
    y = _idx(present(_beside(images) if labels is None else labels), "labels", 1)
    return dataset(pixels(x), y, name=images.name.partition("-images")[0])


def _beside(images: Path) -> Path:
    name = images.name.replace("images", "labels").replace("idx3", "idx1")
    if name == images.name:
        raise ValueError(f"cannot tell where the labels of {images.name} are; say so with labels=...")
    return images.with_name(name)


def _idx(path: Path, what: str, axes: int) -> Array:
    """Magic number, one big-endian length an axis, bytes."""
    raw, start = _unpacked(path), 4 + 4 * axes
    if raw[:4] != bytes((0, 0, BYTES, axes)) or len(raw) < start:
        raise ValueError(f"{path} must hold idx {what}, magic 0000{BYTES:02x}{axes:02x}, but begins {raw[:4].hex()!r}")
    shape = tuple(np.frombuffer(raw, ">i4", axes, 4).tolist())
    if len(raw) != start + math.prod(shape):
        raise ValueError(f"{path} must hold {math.prod(shape)} bytes of {what}, got {len(raw) - start}; fetch it again")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _unpacked(path: Path) -> bytes:
    raw = path.read_bytes()
    try:
        return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is a broken .gz file ({error}); fetch it again") from None
