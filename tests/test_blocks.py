from __future__ import annotations

import errno
import os
import resource
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from engram import blocks
from engram.blocks import Busy, Foreign, Full, StoreError, explained, load, save, sweep

ARRAYS = [
    np.arange(12.0).reshape(3, 4),
    np.arange(12.0).reshape(3, 4).T,
    np.array(5, np.int8),
    np.zeros((0, 3)),
    np.array([True, False]),
    np.array(["äh", "trigger"]),
    np.array([np.nan, np.inf, -0.0]),
    np.arange(3, dtype=">f8"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_what_is_saved_is_loaded(tmp_path, array):
    loaded = load(tmp_path, save(tmp_path, array))
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)


def test_what_is_loaded_cannot_be_changed(tmp_path):
    loaded = load(tmp_path, save(tmp_path, np.zeros(3)))
    with pytest.raises(ValueError, match="read-only"):
        loaded[0] = 1


def test_equal_arrays_share_a_block_and_others_do_not(tmp_path):
    names = [save(tmp_path, np.zeros(4)), save(tmp_path, np.zeros(4))]
    assert names[0] == names[1]
    others = [np.zeros(3), np.zeros((2, 2)), np.zeros(4, np.float32), np.zeros(8, np.float32), np.array([0, 0, 0, 1.0])]
    assert len({names[0], *(save(tmp_path, other) for other in others)}) == 6
    assert len(list(tmp_path.iterdir())) == 6


def test_a_block_is_not_written_twice(tmp_path):
    name = save(tmp_path, np.zeros(4))
    before = (tmp_path / name).stat().st_ino
    save(tmp_path, np.zeros(4))
    assert (tmp_path / name).stat().st_ino == before


def test_only_its_owner_may_read_a_block(tmp_path):
    before = os.umask(0)
    try:
        name = save(tmp_path, np.zeros(3))
    finally:
        os.umask(before)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_objects_are_refused_and_nothing_is_written(tmp_path):
    for objects in (np.array([{}, None], object), np.array([(1, "a")], [("n", int), ("o", object)])):
        with pytest.raises(TypeError, match="numbers or fixed-width text, got an object array"):
            save(tmp_path, objects)
    assert not list(tmp_path.iterdir())


def test_a_pickle_in_place_of_a_block_is_not_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    np.save(tmp_path / "trap.npy", np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(StoreError, match="damaged"):
        load(tmp_path, "trap.npy")
    assert not (tmp_path / "sprung").exists()


def test_a_missing_block_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match="which is not there; put its folder of blocks back"):
        load(tmp_path, "none.npy")


@pytest.mark.parametrize("kept", [0, 5, 100, 130])
def test_a_cut_block_says_so(tmp_path, kept):
    name = save(tmp_path, np.arange(100.0))
    os.truncate(tmp_path / name, kept)
    with pytest.raises(StoreError, match=f"{name} is damaged"):
        load(tmp_path, name)


def test_a_write_that_fails_leaves_no_part(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = save(tmp_path, np.zeros(3))
    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(Full, match=r"no room left for .*; free some and run the same command again"):
        save(tmp_path, np.ones(3))
    assert [p.name for p in tmp_path.iterdir()] == [kept]


def test_an_interrupted_write_leaves_no_part(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, np.ones(3))
    assert not list(tmp_path.iterdir())


def test_a_block_gets_its_name_after_it_reached_the_disk(tmp_path, monkeypatch):
    seen, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda f: (seen.append("sync"), fsync(f)))
    monkeypatch.setattr(os, "rename", lambda a, b: (seen.append("rename"), rename(a, b)))
    save(tmp_path, np.ones(3))
    assert seen[:2] == ["sync", "rename"]


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path):
    """With a real limit of the system, in a process of its own."""
    script = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from engram.blocks import Full, save\n"
        "try: save(Path(sys.argv[1]), np.zeros(10**6))\n"
        "except Full as full: print(full)\n"
    )
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))  # noqa: E731
    told = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, preexec_fn=limit
    )
    assert told.stdout.startswith(f"no room left for {tmp_path}")
    assert not list(tmp_path.iterdir())


def test_sweeping_takes_half_written_parts_only(tmp_path):
    name = save(tmp_path, np.ones(3))
    (tmp_path / "tmpabc.part").write_bytes(b"half")
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("error", "becomes", "told"),
    [
        (OSError(errno.ENOSPC, "x"), Full, "free some and run the same command again"),
        (OSError(errno.EDQUOT, "x"), Full, "free some"),
        (OSError(errno.EROFS, "Read-only file system"), StoreError, "cannot be written .Read-only file system."),
        (PermissionError(errno.EACCES, "Permission denied"), StoreError, "name a store in a folder that can"),
        (OSError(errno.EIO, "Input/output error"), OSError, "Input/output error"),
        (sqlite3.OperationalError("database or disk is full"), Full, "free some"),
        (sqlite3.OperationalError("database is locked"), Busy, "another process writes"),
        (sqlite3.OperationalError("attempt to write a readonly database"), StoreError, "cannot be written"),
        (sqlite3.DatabaseError("file is not a database"), Foreign, "not an engram store"),
        (sqlite3.DatabaseError("database disk image is malformed"), Foreign, "malformed"),
        (sqlite3.OperationalError("no such table: runs"), Foreign, "not an engram store"),
        (sqlite3.IntegrityError("UNIQUE constraint failed"), sqlite3.IntegrityError, "UNIQUE"),
        (KeyError("x"), KeyError, "x"),
    ],
)
def test_what_the_system_says_becomes_a_sentence(tmp_path, error, becomes, told):
    with pytest.raises(becomes, match=told) as caught, explained(tmp_path / "engram.db"):
        raise error
    assert caught.type is becomes


def test_every_trouble_of_a_store_is_a_store_error():
    assert {cls for cls in vars(blocks).values() if isinstance(cls, type) and issubclass(cls, StoreError)} == {
        StoreError, Busy, Foreign, Full
    }  # fmt: skip
