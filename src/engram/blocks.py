"""Arrays on the disk, named by their content: written beside, synced, renamed. One is there whole, or not at all.

StoreError  the store cannot be used; the message says why and what to do
    Busy     another process writes to it
    Foreign  the file is not a store, or one of a newer version
    Full     the disk takes no more; what was stored before stays readable
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.types import Array


class StoreError(Exception):
    """The store cannot be used; the message says why and what to do."""


class Busy(StoreError):
    """Another process writes to this store."""


class Foreign(StoreError):
    """The file is not a store, or one of a newer version."""


class Full(StoreError):
    """The disk takes no more; what was stored before stays readable."""


def save(folder: Path, array: Array) -> str:
    """The name of the block that holds this array; equal arrays share one."""
    array = np.asarray(array, order="C")
    if array.dtype.hasobject:
        raise TypeError("a block holds numbers or fixed-width text, got an object array")
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    name = f"{digest.hexdigest()[:32]}.npy"
    if not (folder / name).exists():
        with explained(folder):
            _write_whole(folder / name, array)
    return name


def sweep(folder: Path) -> None:
    """Remove what a killed writer left half-written. Only for whoever holds the lock."""
    for part in folder.glob("*.part"):
        part.unlink()


def load(folder: Path, name: str) -> Array:
    """Memory-mapped, read-only."""
    place = folder / name
    if not place.is_file():
        raise StoreError(f"the store names {place}, which is not there; put its folder of blocks back beside it")
    try:
        loaded: Array = np.load(place, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, SyntaxError):
        raise StoreError(
            f"{place} is damaged; delete it, and the work that made it is done again where that can be"
        ) from None
    return loaded


@dataclass(frozen=True)
class _Told:
    """NumPy writes into a real file by a call that does not say why it broke off; into anything else, with `write`."""

    write: Callable[[bytes], int]


def _write_whole(place: Path, array: Array) -> None:
    """Write beside, sync, rename: the block is there whole or not at all."""
    handle, part = tempfile.mkstemp(dir=place.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as f:
            np.lib.format.write_array(_Told(f.write), array, allow_pickle=False)
            f.flush()
            os.fsync(f.fileno())
        os.rename(part, place)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the system says about files into one sentence that says what to do."""
    try:
        yield
    except sqlite3.Error as e:
        said = str(e)
        if "full" in said or "disk I/O" in said:
            raise Full(
                f"no room left for {path} ({said}); free some and run the same command again, it goes on where it was"
            ) from e
        if "locked" in said:
            raise Busy(f"another process writes to {path}; wait for it, or name another with --store") from e
        if "readonly" in said or "unable to open" in said:
            raise StoreError(
                f"{path} cannot be written ({said}); name a store in a folder that can, with --store"
            ) from e
        if any(told in said for told in ("not a database", "malformed", "no such table", "no such column")):
            raise Foreign(f"{path} is not an engram store ({said}); name another file with --store") from e
        raise
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Full(
                f"no room left for {path}; free some and run the same command again, it goes on where it was"
            ) from e
        if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StoreError(
                f"{path} cannot be written ({e.strerror}); name a store in a folder that can, with --store"
            ) from e
        raise
