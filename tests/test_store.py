from __future__ import annotations

import math
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import engram.store
from engram.blocks import Busy, Foreign, Full, StoreError
from engram.store import APPLICATION, VERSION, Store, Told
from engram.types import Copied, Finding, Recovered, Scores


@pytest.fixture
def path(tmp_path):
    return tmp_path / "engram.db"


@pytest.fixture
def store(path):
    with Store(path) as opened:
        yield opened


def scores(variant="online"):
    return Scores(np.array([0.5, -np.inf, 3]), np.array([2, 0, 1]), np.array([True, False, True]), variant)


RECOVERED = Recovered("text", np.array(["to be", "or not"]), np.array([2.0, 1]), np.array([0.0, np.nan]), "sampled")
COPIED = Copied({"0.weight": np.eye(2, dtype=np.float32), "a/b": np.arange(3)}, 4096, "exact")
EVIDENCE = [scores(), Scores(np.zeros(2), np.arange(2)), RECOVERED, COPIED, Copied({}, 0)]


def told(evidence, attack="lira", defence=""):
    return Told(attack, defence, evidence, {"knobs": {"shadows": 64}, "seconds": 0.25})


def same(a, b):
    assert type(a) is type(b)
    for name, value in vars(a).items():
        other = getattr(b, name)
        if isinstance(value, np.ndarray):
            assert value.dtype == other.dtype
            np.testing.assert_array_equal(value, other)
        elif isinstance(value, dict):
            assert value.keys() == other.keys()
            for key in value:
                np.testing.assert_array_equal(value[key], other[key])
        else:
            assert value == other


# What is kept


@pytest.mark.parametrize("evidence", EVIDENCE, ids=lambda e: type(e).__name__)
def test_evidence_survives(path, evidence):
    with Store(path) as store:
        run = store.begin("i", {}).id
        store.tell(run, told(evidence))
    with Store(path, write=False) as store:
        (back,) = store.told(run)
    same(evidence, back.evidence)
    assert (back.attack, back.defence) == ("lira", "")
    assert back.about == {"knobs": {"shadows": 64}, "seconds": 0.25}


def test_evidence_comes_back_in_order_and_by_attack_and_defence(store):
    run, other = store.begin("i", {}).id, store.begin("j", {}).id
    store.tell(run, told(scores("b")), told(scores("a")))
    store.tell(run, told(RECOVERED, "gap", "l2"))
    store.tell(other, told(COPIED))
    assert [t.evidence.variant for t in store.told(run)] == ["b", "a", "sampled"]
    assert [t.attack for t in store.told(run, attack="gap")] == ["gap"]
    assert not store.told(run, attack="gap", defence="")
    assert len(store.told(run, defence="l2")) == 1


@pytest.mark.parametrize(
    "finding",
    [
        Finding(
            "auc", 0.75, 0.7, 0.8, n=600, non_members=300, level=0.99, method="DeLong", attack="lira", variant="on"
        ),
        Finding("tpr@0.001", None, None, None, n=600, reason="fewer than 10000 non-members", attack="lira"),
        Finding("epsilon", math.inf, math.inf, None, n=6, attack="gap", defence="l2"),
        Finding("accuracy_members", np.float64(1), np.float32(0.5), 1.0, n=np.int64(300), non_members=np.int64(3)),
    ],
)
def test_findings_survive(store, finding):
    run = store.begin("i", {}).id
    store.judge(run, [finding])
    assert store.findings(run) == [finding]


def test_judging_again_replaces(store):
    run = store.begin("i", {}).id
    for value in (0.6, 0.7):
        store.judge(run, [Finding("auc", value, 0.5, 0.8, n=3, attack="lira")])
    assert [f.value for f in store.findings(run)] == [0.7]


def test_responses_survive_and_the_last_counts(store):
    run = store.begin("i", {}).id
    store.respond(run, {"truth": np.array([True, False]), "correct/l2": np.zeros(2, bool)})
    store.respond(run, {"correct/l2": np.ones(2, bool), "none": np.zeros(0, np.int64)})
    back = store.responses(run)
    assert sorted(back) == ["correct/l2", "none", "truth"]
    assert back["correct/l2"].all()
    assert back["none"].dtype == np.int64


def test_the_first_proposal_of_a_plan_stays(path):
    with Store(path) as store:
        assert store.agree("p", {"block": 8}) == {"block": 8}
        assert store.agree("p", {"block": 99}) == {"block": 8}
    with Store(path) as store:
        assert store.agree("p", {"block": 7}) == {"block": 8}
        assert store.agree("q", {"block": 7}) == {"block": 7}


def test_an_unfinished_run_is_gone_on_with_and_a_finished_one_is_not(store):
    first = store.begin("i", {"seed": 0})
    assert store.begin("i", {"seed": 1}) == first
    assert store.begin("j", {}).id != first.id
    store.finish(first.id)
    assert store.run(first.id).finished >= first.started
    assert store.begin("i", {}).id not in (first.id, None)


def test_an_unknown_run_names_those_there_are(store):
    with pytest.raises(ValueError, match="no run 3; it has: none"):
        store.run(3)
    store.begin("i", {})
    with pytest.raises(ValueError, match="it has: 1"):
        store.run(3)


def test_equal_pieces_share_their_blocks(store):
    store.keep("a", {"x": np.zeros(5), "y": np.zeros(5)})
    store.keep("b", {"x": np.zeros(5)})
    assert len(list(store.blocks.iterdir())) == 1
    assert sorted(store.piece("a")) == ["x", "y"]
    assert store.piece("c") is None


def test_what_json_cannot_say_is_refused(store):
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.begin("i", {"x": math.nan})
    assert not store.runs()


# All of it or nothing


def test_evidence_is_kept_whole_or_not_at_all(store):
    run = store.begin("i", {}).id
    with pytest.raises(TypeError, match="object array"):
        store.tell(run, told(scores()), told(Scores(np.array([{}], object), np.arange(1))))
    assert not store.told(run)
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.tell(run, told(scores()), Told("gap", "", COPIED, {"knobs": object()}))
    assert not store.told(run)
    store.tell(run, told(scores()))
    assert len(store.told(run)) == 1


def test_an_interrupt_inside_a_transaction_leaves_nothing(store):
    def broken_off():
        with store._transaction():
            store._db.execute("INSERT INTO plans VALUES ('a', '{}')")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert store.agree("a", {"first": 1}) == {"first": 1}


def test_a_second_telling_changes_nothing(store):
    run = store.begin("i", {}).id
    store.tell(run, told(scores("first")))
    with pytest.raises(sqlite3.IntegrityError):
        store.tell(run, told(scores("second")))
    assert [t.evidence.variant for t in store.told(run)] == ["first"]


def test_trouble_is_told_even_where_sqlite_has_rolled_back_by_itself(store):
    def full():
        with store._transaction():
            store._db.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(Full, match="free some"):
        full()
    assert store.agree("a", {}) == {}


# On the disk


def test_only_their_owner_may_read_what_is_stored(path):
    before = os.umask(0)
    try:
        with Store(path) as store:
            run = store.begin("i", {}).id
            store.tell(run, told(scores()))
            modes = {p.name: p.stat().st_mode & 0o777 for p in [*path.parent.iterdir(), *store.blocks.iterdir()]}
    finally:
        os.umask(before)
    assert modes.pop("engram.db.blocks") == 0o700
    assert {"engram.db", "engram.db-wal", "engram.db-shm", "engram.db.lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_the_file_says_what_it_is(path):
    Store(path).close()
    with sqlite3.connect(path) as db:
        told = [
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "application_id", "user_version")
        ]
    db.close()
    assert told == ["wal", APPLICATION, VERSION]


def test_readers_read_beside_a_writer(store, path):
    run = store.begin("i", {}).id
    with Store(path, write=False) as one, Store(path, write=False) as two, store._transaction():
        store._insert(run, 0, told(scores()), {}, {"claims": None, "variant": "x"})
        assert [len(reader.runs()) for reader in (one, two)] == [1, 1]
        assert not one._rows("SELECT * FROM evidence")
    with Store(path, write=False) as late:
        assert len(late._rows("SELECT * FROM evidence")) == 1


def test_a_reader_cannot_write(store, path):
    with Store(path, write=False) as reader, pytest.raises(StoreError, match="cannot be written"):
        reader.begin("i", {})
    assert not store.runs()


BESIDE = """
import sys
from engram.store import Store
print(len(Store(sys.argv[1], write=False).runs()))
Store(sys.argv[1])
"""


def test_a_store_that_another_process_holds_is_refused_to_writers_only(store, path):
    other = subprocess.run([sys.executable, "-c", BESIDE, str(path)], capture_output=True, text=True, check=False)
    assert other.stdout == "0\n"
    assert f"process {os.getpid()} is writing to this store; wait for it, or name another with --store" in other.stderr
    with pytest.raises(Busy):
        Store(path)
    store.close()
    Store(path).close()


def test_what_a_killed_writer_left_is_swept_and_what_it_finished_stays(path):
    with Store(path) as store:
        store.keep("a", {"x": np.arange(3)})
    (store.blocks / "tmpzz.part").write_bytes(b"half")
    with Store(path) as store:
        assert not list(store.blocks.glob("*.part"))
        np.testing.assert_array_equal(store.piece("a")["x"], np.arange(3))


KILLED = """
import sys, numpy as np
from engram.store import Store
with Store(sys.argv[1]) as store:
    print("open", flush=True)
    for k in range(10**6):
        store.keep(f"piece {k}", {"a": np.full(20000, k), "b": np.full(20000, -k)})
        print(k, flush=True)
"""


@pytest.mark.parametrize("wait", [0.0, 0.011, 0.03])
def test_a_writer_killed_while_keeping_leaves_whole_pieces(path, wait):
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "open\n"
        for _ in range(3):
            process.stdout.readline()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read().split()
    last = int(said[-1]) if said else 2
    with Store(path) as store:  # the lock went with its holder
        for k in range(last + 1):
            piece = store.piece(f"piece {k}")
            np.testing.assert_array_equal(piece["a"], np.full(20000, k))
            np.testing.assert_array_equal(piece["b"], np.full(20000, -k))
        after = [store.piece(f"piece {k}") for k in range(last + 1, last + 3)]
    assert after[1] is None
    assert after[0] is None or sorted(after[0]) == ["a", "b"]


# What is not a store, or cannot be one now


def headed(path, application=APPLICATION, version=VERSION):
    db = sqlite3.connect(path)
    db.executescript(f"CREATE TABLE t(x); PRAGMA application_id = {application}; PRAGMA user_version = {version};")
    db.close()


@pytest.mark.parametrize("write", [True, False])
def test_a_newer_store_is_refused_and_left_as_it_is(path, write):
    headed(path, version=VERSION + 1)
    before = path.read_bytes()
    with pytest.raises(Foreign) as caught:
        Store(path, write=write)
    assert str(caught.value) == (
        f"{path} is a store of version {VERSION + 1}, this engram reads up to {VERSION}; install a newer engram"
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("kind", ["text", "other database", "folder", "pipe", "cut"])
def test_what_is_not_a_store_is_refused_and_left_as_it_is(path, kind, write):
    match kind:
        case "text":
            path.write_text("some,numbers\n" * 30)
        case "other database":
            headed(path, application=7)
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "cut":
            Store(path).close()
            os.truncate(path, 2000)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError, match=r"is not an engram store|a store is a file|there is no store"):
        Store(path, write=write)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_store_damaged_inside_says_so_when_it_is_read(path):
    with Store(path) as store:
        for k in range(200):
            store.begin(f"{k}", {"x": "y" * 500})
    size = path.stat().st_size
    with path.open("r+b") as f:
        f.seek(8192)
        f.write(b"\xff" * (size - 8192))
    with Store(path, write=False) as store, pytest.raises(Foreign, match="malformed"):
        store.runs()


def test_a_store_that_is_not_there_is_not_made_by_reading(path):
    with pytest.raises(StoreError, match=r"there is no store at .*; run an audit first"):
        Store(path, write=False)
    with pytest.raises(StoreError, match=r"the folder .* does not exist"):
        Store(path.parent / "none" / "engram.db")
    assert not list(path.parent.iterdir())


def test_a_file_that_a_writer_made_and_did_not_fill_is_no_store_yet(path):
    path.touch()
    with pytest.raises(StoreError, match=r"there is no store at .*; run an audit first"):
        Store(path, write=False)
    with Store(path) as store:
        assert store.runs() == []


@pytest.mark.parametrize("name", ["file:engram.db", "a b?mode=memory#c%20.db", "ü.db"])
def test_any_file_name_will_do(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store(name) as store:
        store.begin("i", {})
    with Store(name, write=False) as store:
        assert len(store.runs()) == 1
    assert (tmp_path / name).stat().st_size


def test_a_store_is_read_where_nothing_may_be_written(path):
    """SQLite puts its log and an index of it beside the file. A link into nowhere in their place stops root too."""
    with Store(path) as store:
        store.begin("i", {"target": {"name": "digits"}})
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").symlink_to("/nowhere/at/all")
    with Store(path, write=False) as store:
        assert store.runs()[0].about == {"target": {"name": "digits"}}


def test_what_a_killed_writer_left_is_read_there_too(path):
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    Path(f"{path}-shm").unlink()
    Path(f"{path}-shm").mkdir()
    assert Path(f"{path}-wal").stat().st_size
    with Store(path, write=False) as store:
        np.testing.assert_array_equal(store.piece("piece 1")["a"], np.full(20000, 1))


def test_a_read_only_folder_is_named(path, monkeypatch):
    def refused(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(engram.store.os, "open", refused)
    with pytest.raises(
        StoreError, match=r"cannot be written \(Read-only file system\); name a store in a folder that can"
    ):
        Store(path)


# A full disk


def test_a_full_database_keeps_what_it_holds(path):
    with Store(path) as store:
        run = store.begin("i", {}).id
        store.tell(run, told(scores()))
        store._db.execute(f"PRAGMA max_page_count = {store._db.execute('PRAGMA page_count').fetchone()[0]}")
        with pytest.raises(Full, match=r"no room left for .*engram.db \(database or disk is full\)"):
            store.agree("p", {"x": "y" * 50_000})
        assert len(store.told(run)) == 1
        store._db.execute("PRAGMA max_page_count = 100000")
        assert store.agree("p", {"x": 1}) == {"x": 1}
    with Store(path, write=False) as store:
        same(scores(), store.told(run)[0].evidence)


FILLED = """
import sys, numpy as np
from engram.blocks import Full
from engram.store import Store
store = Store(sys.argv[1])
kept = 0
try:
    while True:
        if sys.argv[2] == "rows":
            store.agree(f"plan {kept}", {"x": "y" * 3000})
        else:
            store.keep(f"piece {kept}", {"a": np.full(3000 * (kept + 1), kept)})
        kept += 1
except Full as full:
    print(kept, full)
"""


@pytest.mark.parametrize("what", ["rows", "blocks"])
def test_a_disk_that_takes_no_more_keeps_what_it_holds(path, what):
    """With a real limit of the system on the size of files, in a process of its own."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, 2**18))  # noqa: E731
    done = subprocess.run(
        [sys.executable, "-c", FILLED, str(path), what], capture_output=True, text=True, check=True, preexec_fn=limit
    )
    kept, said = done.stdout.split(maxsplit=1)
    assert int(kept) > 3
    assert "free some and run the same command again, it goes on where it was" in said
    with Store(path) as store:
        for k in range(int(kept)):
            if what == "rows":
                assert store.agree(f"plan {k}", {}) == {"x": "y" * 3000}
            else:
                np.testing.assert_array_equal(store.piece(f"piece {k}")["a"], np.full(3000 * (k + 1), k))
        assert store.piece(f"piece {kept}") is None
