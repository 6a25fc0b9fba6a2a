"""What a run told, kept: `engram.db` (SQLite, WAL) and beside it `engram.db.blocks/`, arrays named by their content.

A block is renamed into place before the row that names it commits: a killed run leaves nothing or something whole.
Both are readable by their owner only: they hold scores, and pictures, of private records. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from engram import blocks
from engram.blocks import Busy, Foreign, StoreError, explained
from engram.types import Array, Arrays, Copied, Evidence, Finding, Recovered, Scores

APPLICATION = 0x456E6772  # "Engr"
VERSION = 1

SCHEMA = """
CREATE TABLE plans(name TEXT PRIMARY KEY, plan TEXT NOT NULL);
CREATE TABLE pieces(name TEXT, field TEXT, block TEXT NOT NULL, PRIMARY KEY(name, field)) WITHOUT ROWID;
CREATE TABLE runs(
    id INTEGER PRIMARY KEY, identity TEXT NOT NULL, about TEXT NOT NULL, started REAL NOT NULL, finished REAL);
CREATE TABLE evidence(
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, defence TEXT NOT NULL, attack TEXT NOT NULL,
    position INTEGER NOT NULL, kind TEXT NOT NULL, told TEXT NOT NULL, about TEXT NOT NULL,
    UNIQUE(run, defence, attack, position));
CREATE TABLE evidence_arrays(
    evidence INTEGER REFERENCES evidence, field TEXT, block TEXT NOT NULL, PRIMARY KEY(evidence, field)) WITHOUT ROWID;
CREATE TABLE responses(
    run INTEGER REFERENCES runs, name TEXT, block TEXT NOT NULL, PRIMARY KEY(run, name)) WITHOUT ROWID;
CREATE TABLE findings(
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, defence TEXT NOT NULL, attack TEXT NOT NULL,
    variant TEXT NOT NULL, metric TEXT NOT NULL, value REAL, low REAL, high REAL, n INTEGER NOT NULL,
    non_members INTEGER, level REAL NOT NULL, method TEXT NOT NULL, reason TEXT NOT NULL,
    UNIQUE(run, defence, attack, variant, metric));
"""

KINDS: dict[str, type[Scores] | type[Recovered] | type[Copied]] = {
    "scores": Scores,
    "recovered": Recovered,
    "copied": Copied,
}


@dataclass(frozen=True)
class Run:
    """One audit, finished or not."""

    id: int
    identity: str
    about: Mapping[str, Any]  # command, target, recipe, seed, attacks, defences, environment, ...
    started: float
    finished: float | None


@dataclass(frozen=True, eq=False)
class Told:
    """A piece of evidence and the circumstances of its telling."""

    attack: str
    defence: str
    evidence: Evidence
    about: Mapping[str, Any]  # knobs, asks, knowledge, queries, seconds, paper


class Store:
    """Opened for writing by one process at a time; for reading by any number.

    >>> import tempfile, os
    >>> with Store(os.path.join(tempfile.mkdtemp(), "engram.db")) as store:
    ...     store.begin("identity", {"target": "digits"}).id
    1
    """

    def __init__(self, path: str | Path = "engram.db", *, write: bool = True) -> None:
        self.path = Path(path)
        self.blocks = Path(f"{path}.blocks")
        self._lock: IO[str] | None = None
        with contextlib.ExitStack() as undo, explained(self.path):
            undo.callback(self._unlock)
            self._db = self._open_to_write() if write else self._open_to_read()
            undo.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        self._unlock()

    # What was planned, and the pieces of work already done

    def agree(self, name: str, proposed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The plan kept under this name; the first proposal is the one that is kept."""
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO plans VALUES (?, ?)", (name, _json(proposed)))
        return dict(json.loads(self._rows("SELECT plan FROM plans WHERE name = ?", name)[0][0]))

    def piece(self, name: str) -> Arrays | None:
        """The arrays of a finished piece of work, memory-mapped; None where it has not been done."""
        rows = self._rows("SELECT field, block FROM pieces WHERE name = ?", name)
        return {field: self._load(block) for field, block in rows} or None

    def keep(self, name: str, arrays: Arrays) -> None:
        blocks = [(name, field, self._save(a)) for field, a in arrays.items()]
        with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO pieces VALUES (?, ?, ?)", blocks)

    # Runs

    def begin(self, identity: str, about: Mapping[str, Any]) -> Run:
        """The unfinished run of this identity, to go on with; else a new one."""
        going = self._rows("SELECT id FROM runs WHERE identity = ? AND finished IS NULL", identity)
        if not going:
            with self._transaction():
                going = self._rows(
                    "INSERT INTO runs(identity, about, started) VALUES (?, ?, ?) RETURNING id",
                    identity, _json(about), time.time(),
                )  # fmt: skip
        return self.run(int(going[0][0]))

    def finish(self, run: int) -> None:
        with self._transaction():
            self._db.execute("UPDATE runs SET finished = ? WHERE id = ?", (time.time(), run))

    def runs(self) -> list[Run]:
        rows = self._rows("SELECT id, identity, about, started, finished FROM runs ORDER BY id")
        return [Run(i, identity, json.loads(about), start, end) for i, identity, about, start, end in rows]

    def run(self, run: int) -> Run:
        for found in self.runs():
            if found.id == run:
                return found
        known = ", ".join(str(r.id) for r in self.runs()) or "none"
        raise ValueError(f"{self.path} has no run {run}; it has: {known}")

    # What was said, and what it was worth

    def tell(self, run: int, *told: Told) -> None:
        """Keep what one attack said, all of it or nothing, before anybody judges it."""
        rows = [(one, *_taken_apart(one.evidence)) for one in told]
        saved = [(one, {field: self._save(a) for field, a in arrays.items()}, rest) for one, arrays, rest in rows]
        with self._transaction():
            for position, (one, names, rest) in enumerate(saved):
                self._insert(run, position, one, names, rest)

    def _insert(self, run: int, position: int, told: Told, names: Mapping[str, str], rest: Mapping[str, Any]) -> None:
        kind = next(name for name, cls in KINDS.items() if isinstance(told.evidence, cls))
        (row,) = self._db.execute(
            "INSERT INTO evidence(run, defence, attack, position, kind, told, about) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " RETURNING id",
            (run, told.defence, told.attack, position, kind, _json(rest), _json(told.about)),
        ).fetchone()
        self._db.executemany(
            "INSERT INTO evidence_arrays VALUES (?, ?, ?)", [(row, field, name) for field, name in names.items()]
        )

    def told(self, run: int, *, attack: str | None = None, defence: str | None = None) -> list[Told]:
        """The evidence of a run, in the order in which it was given."""
        rows = self._rows(
            "SELECT id, attack, defence, kind, told, about FROM evidence WHERE run = ?"
            " AND attack = coalesce(?, attack) AND defence = coalesce(?, defence) ORDER BY id",
            run, attack, defence,
        )  # fmt: skip
        return [
            Told(attack, defence, self._evidence(key, kind, json.loads(rest)), json.loads(about))
            for key, attack, defence, kind, rest, about in rows
        ]

    def respond(self, run: int, arrays: Arrays) -> None:
        """Keep what only the target could answer, or the auditor knows: the truth, exposed records, ..."""
        blocks = [(run, name, self._save(a)) for name, a in arrays.items()]
        with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO responses VALUES (?, ?, ?)", blocks)

    def responses(self, run: int) -> Arrays:
        rows = self._rows("SELECT name, block FROM responses WHERE run = ?", run)
        return {name: self._load(block) for name, block in rows}

    def judge(self, run: int, findings: Iterable[Finding]) -> None:
        columns = [f.name for f in dataclasses.fields(Finding)]
        marks = ", ".join("?" for _ in columns)
        with self._transaction():
            self._db.executemany(
                f"INSERT OR REPLACE INTO findings(run, {', '.join(columns)}) VALUES (?, {marks})",
                [(run, *(_plain(getattr(f, c)) for c in columns)) for f in findings],
            )

    def findings(self, run: int) -> list[Finding]:
        columns = [f.name for f in dataclasses.fields(Finding)]
        rows = self._rows(f"SELECT {', '.join(columns)} FROM findings WHERE run = ? ORDER BY id", run)
        return [Finding(*row) for row in rows]

    # Below: how it lies on the disk

    def _open_to_write(self) -> sqlite3.Connection:
        if not self.path.parent.is_dir():
            raise StoreError(f"the folder {self.path.parent} does not exist; make it, or name another --store")
        _refuse_other_files(self.path)
        self._lock = _locked(Path(f"{self.path}.lock"))
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self.blocks.mkdir(mode=0o700, exist_ok=True)
        blocks.sweep(self.blocks)
        db = _connect(self.path, "mode=rw")
        if not _version(db):
            db.executescript(
                f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _open_to_read(self) -> sqlite3.Connection:
        _refuse_other_files(self.path)
        if not self.path.exists() or not (self.path.stat().st_size or _unmerged(self.path)):
            raise StoreError(f"there is no store at {self.path}; run an audit first, or name it with --store")
        try:
            return _connect(self.path, "mode=ro")
        except sqlite3.OperationalError:
            if _unmerged(self.path):
                raise
            return _connect(self.path, "mode=ro&immutable=1")  # in a folder where SQLite may not put its index

    def _unlock(self) -> None:
        if self._lock:
            self._lock.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with explained(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite may have rolled back by itself, as on a full disk
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: object) -> list[Any]:
        with explained(self.path):
            return self._db.execute(query, values).fetchall()

    def _save(self, array: Array) -> str:
        return blocks.save(self.blocks, array)

    def _load(self, block: str) -> Array:
        return blocks.load(self.blocks, block)

    def _evidence(self, key: int, kind: str, rest: dict[str, Any]) -> Evidence:
        rows = self._rows("SELECT field, block FROM evidence_arrays WHERE evidence = ?", key)
        return _put_together(KINDS[kind], {field: self._load(block) for field, block in rows}, rest)


def _taken_apart(evidence: Evidence) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays (those of a mapping as "field/name"), and the plain rest."""
    arrays: dict[str, Array] = {}
    rest: dict[str, Any] = {}
    for field in dataclasses.fields(evidence):
        value = getattr(evidence, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif isinstance(value, Mapping):
            rest[field.name] = {}  # it may be empty
            arrays.update({f"{field.name}/{name}": a for name, a in value.items()})
        else:
            rest[field.name] = value
    return arrays, rest


def _put_together(cls: type[Evidence], arrays: Arrays, rest: dict[str, Any]) -> Evidence:
    fields: dict[str, Any] = dict(rest)
    for name, array in arrays.items():
        field, _, inner = name.partition("/")
        if inner:
            fields.setdefault(field, {})[inner] = array
        else:
            fields[field] = array
    return cls(**fields)


def _plain(value: Any) -> Any:
    """SQLite would keep a NumPy number as its bytes."""
    return value.item() if isinstance(value, np.generic) else value


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _connect(path: Path, how: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=10)
    try:
        if (version := _version(db)) > VERSION:
            raise Foreign(
                f"{path} is a store of version {version}, this engram reads up to {VERSION}; install a newer engram"
            )
    except BaseException:
        db.close()
        raise
    return db


def _unmerged(path: Path) -> bool:
    """Whether a writer that was killed left something that is not in the file itself yet."""
    wal = Path(f"{path}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _refuse_other_files(path: Path) -> None:
    """An existing file must be an SQLite database that carries our mark (bytes 68 to 71 of its header)."""
    if path.is_dir():
        raise Foreign(f"{path} is a folder; a store is a file such as engram.db")
    if path.exists() and not path.is_file():
        raise Foreign(f"{path} is a device, not a file; a store is a file such as engram.db")
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb") as f:
        head = f.read(72)
    if not head.startswith(b"SQLite format 3\0") or int.from_bytes(head[68:72], "big") != APPLICATION:
        raise Foreign(f"{path} is not an engram store; name another file with --store")


def _locked(path: Path) -> IO[str]:
    """An advisory lock that the system drops when the process ends, however it ends."""
    lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise Busy(f"process {holder} is writing to this store; wait for it, or name another with --store") from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
