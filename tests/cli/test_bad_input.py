"""Every kind of wrong use gets exit code 2 and one sentence, through the real command line, and loses nothing."""

from __future__ import annotations

import errno
import os
import pickle  # noqa: TID251  a pickle is made here, to see that it is not loaded
import resource
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import COMMAND, ENVIRONMENT, QUICK, TARGET

import engram.cli.new
from engram.store import VERSION, Store

HEAD = f"""
import sys
import numpy as np
import torch
import engram
sys.path.append({str(Path(__file__).parents[1])!r})
from contract.targets import LEARNED_BY_HEART, noise
from engram.data import dataset, load
from engram.models import MLP, load_weights
model = LEARNED_BY_HEART.build()
x, y = noise().x.copy(), noise().y.copy()
member = np.arange(160) % 2 == 0
"""

TARGETS = {
    "nan": ("x[3, 1] = np.nan\nrecords = dataset(x, y)", "records must be finite, got nan in record 3"),
    "infinite": ("x[4] = np.inf\nrecords = dataset(x, y)", "records must be finite, got inf in record 4 (12 such values"),
    "text": ("records = dataset(x.astype(str), y)", "records must be numbers, got <U"),
    "negative label": ("y[0] = -1\nrecords = dataset(x, y)", "labels must lie in 0.., got -1"),
    "large label": ("y[0] = 4\nrecords = dataset(x, y, classes=tuple('abcd'))", "labels must lie in 0..3, got 4"),
    "fractional labels": ("records = dataset(x, y + 0.5)", "labels must be whole numbers from 0, got float64"),
    "two labels each": ("records = dataset(x, np.stack([y, y], 1))", "labels must have one number a record"),
    "fewer labels": ("records = dataset(x, y[:9])", "lengths must agree, but records has 160, labels has 9"),
    "shorter truth": (
        "records, member = noise(), member[:9]", "lengths must agree, but records has 160, member has 9"),
    "truth as numbers": ("records, member = noise(), member * 1", "member must be one bool a record, got int64"),
    "no non-members": ("records, member = noise(), member | True", "an audit needs members and non-members"),
    "record on both sides": (
        "x[1] = x[0]\nrecords = dataset(x, y)", "2 records occur both among members and among non-members"),
    "other classes": ("records = dataset(x, y % 3)", "the model must answer one number a class, 3 of them, got shape (2, 4)"),
    "other shape": ("records = dataset(x[:, :5], y)", "the model does not take records of shape (5,)"),
    "answers that are no numbers": (
        "records = noise()\nfor p in model.parameters(): p.data.fill_(float('nan'))", "the model answers nan for the first"),
    "recipe of another network": (
        "engram.Target(model, noise(), member, engram.Recipe(MLP(inputs=12, classes=7)))",
        "the network of the recipe must answer one number a class, 4 of them, got shape (2, 7)"),
    "no recipe": ("engram.Target(model, noise(), member, 'adam')", "recipe must be an engram.Recipe or None, got 'adam'"),
    "a file that leaves": ("sys.exit(3)", "SystemExit: 3"),
    "no model": ("records, model = noise(), 'weights.pt'", "AttributeError"),
    "pickled weights": ("load_weights('trap.pt')", "trap.pt is a pickle that could run code, so it was not loaded"),
    "pickled records": ("records = load('trap.npz')", "trap.npz"),
    "unknown file": ("records = load('none.npz')", "expected a file of records, found none at none.npz"),
}  # fmt: skip


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize("kind", TARGETS)
def test_a_wrong_target_is_refused(wrong, tmp_path, kind):
    lines, told = TARGETS[kind]
    (tmp_path / "trap.pt").write_bytes(pickle.dumps(Trap()))
    with (tmp_path / "trap.npz").open("wb") as f:
        np.savez(f, x=np.array([Trap()], object), y=np.zeros(1, int))
    (tmp_path / "target.py").write_text(f"{HEAD}{lines}\ntarget = engram.Target(model, records, member)\n")
    sentence = wrong("audit", "target.py", *QUICK)
    assert told in sentence
    assert sentence.startswith("target.py, line ")
    assert not (tmp_path / "sprung").exists()
    assert not (tmp_path / "engram.db").exists()


BREAKS = """
class Fails(torch.nn.Module):
    def forward(self, x):
        if len(x) > 2:
            raise {error}
        return x[:, :4]
target = engram.Target(Fails(), noise(), member)
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("RuntimeError('no luck\\nat all')", "the computation broke off: no luck; what was finished is stored"),
        ("MemoryError", "the computation broke off: MemoryError; what was finished is stored"),
    ],
)
def test_a_model_that_breaks_off_later_is_one_sentence(wrong, tmp_path, error, told):
    (tmp_path / "target.py").write_text(HEAD + BREAKS.format(error=error))
    assert wrong("audit", "target.py", *QUICK) == told


def test_answers_that_stop_being_numbers_are_no_scores(wrong, tmp_path):
    """Shadows that diverge: an error, never a score that is no number."""
    lines = "recipe = engram.Recipe(MLP(inputs=12, classes=4), epochs=9, optimiser=engram.train.SGD(1e30))\n"
    (tmp_path / "target.py").write_text(f"{HEAD}{lines}target = engram.Target(model, noise(), member, recipe)\n")
    assert "a shadow model answers nan where a probability was expected" in wrong("audit", "target.py", *QUICK)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--attacks", "lirra"), "no attack is called 'lirra'; did you mean lira? Known: adversarial-confidence,"),
        (("--attacks", "zzz"), "no attack is called 'zzz'. Known: adversarial-confidence,"),
        (("--defences", "l3"), "no defence is called 'l3'; did you mean l2? Known: adversarial-regularisation, "),
        (("--set", "lira.shadow=8"), "no knob of lira is called 'shadow'; did you mean shadows? Known: mode, shadows"),
        (("--set", "rmia.shadows=8"), "no attack or defence of this audit is called 'rmia'"),
        (("--set", "lira.variance=recrd"), "did you mean record? Known: fixed, record"),
        (("--set", "lira.shadows=2"), "shadows must be at least 4, got 2"),
        (("--set", "lira.shadows=many"), "shadows must be a whole number, got 'many'"),
        (("--set", "lira.shadows=1e999"), "shadows must be a whole number, got inf"),
        (("--set", "lira.shadows"), "--set takes NAME.KNOB=VALUE, such as lira.shadows=128, got 'lira.shadows'"),
        (("--set", "shadows=8"), "--set takes NAME.KNOB=VALUE"),
        (("--defences", "l2", "--set", "l2.weight_decay=-1"), "weight_decay must be positive and finite, got -1"),
        (("--defences", "top-k-outputs", "--set", "top-k-outputs.classes=0.5"), "classes must be a whole number, got 0.5"),
        (("--fail-if", "lira.auc"), 'a rule is ATTACK.METRIC>VALUE, such as "lira.auc>0.6"'),
        (("--fail-if", "lira.auc>."), "a rule compares with a number, got '.'"),
        (("--fail-if", "lirra.auc>0.6"), "no attack of this run is called 'lirra'; did you mean lira? Known: gap"),
        (("--fail-if", "l2/lira.auc>0.6"), "no defence of this run is called 'l2'"),
        (("--report", "none/report.html"), "the folder none does not exist; make it, or name another file for the report"),
        (("--report", "."), "a report is a file, and . is not one"),
        (("--seed", "x"), "invalid int value: 'x'"),
        (("--sed", "1"), "unrecognized arguments: --sed 1"),
        (("--att", "gap"), "unrecognized arguments: --att gap"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_refused_before_any_work(wrong, target_file, monkeypatch, words, told):
    monkeypatch.setattr(Store, "tell", None)  # no attack was run
    assert told in wrong("audit", target_file, *QUICK, *words)


def test_shadows_come_in_pairs(wrong, target_file):
    assert "must be even and at least 2, got 7" in wrong("audit", target_file, *QUICK, "--set", "lira.shadows=7")


def test_a_missing_target_says_how_to_write_one(wrong):
    assert "`engram new none.py` writes a template" in wrong("audit", "none.py")


@pytest.mark.parametrize(
    "words",
    [(), ("nonsense",), ("show",), ("show", "one"), ("compare", "1"), ("attacks", "lira"), ("report", "1", "--to")],
)
def test_a_wrong_command_line_is_one_sentence_that_points_to_help(wrong, words):
    assert "--help" in wrong(*words)


def test_an_unknown_run_names_those_there_are(wrong, stored):
    for words in (("show", 9), ("compare", 1, 9), ("report", 9)):
        assert "has no run 9; it has: 1, 2" in wrong(*words, "--store", stored)


def test_an_unknown_paper_names_the_known(wrong):
    assert "no paper is called 'renyy'; did you mean renyi? Known: deep-leakage, " in wrong("reproduce", "renyy")


def test_figures_of_a_paper_without_any_are_refused_before_any_work(wrong):
    told = wrong("reproduce", "label-only", "--figures", "drawn")
    assert "the reproduction of label-only has no figures; leave --figures out" in told


# The store


def test_a_store_that_another_process_holds(alone, tmp_path, target_file):
    with Store(tmp_path / "engram.db") as store:
        store.begin("mine", {"target": {"name": "mine"}})
        said = alone("audit", target_file, *QUICK, cwd=tmp_path)
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr == (
            f"engram: process {os.getpid()} is writing to this store; wait for it, or name another with --store\n"
        )
        assert "mine" in alone("runs", cwd=tmp_path).stdout
    with Store(tmp_path / "engram.db") as store:
        assert len(store.runs()) == 1


@pytest.mark.parametrize("words", [("runs",), ("show", "1"), ("audit", "target.py", *QUICK)])
@pytest.mark.parametrize("kind", ["newer", "text", "folder", "pipe"])
@pytest.mark.usefixtures("target_file")
def test_what_is_no_store_of_ours(wrong, tmp_path, words, kind):
    path = tmp_path / "other.db"
    if kind == "newer":
        Store(path).close()
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version = {VERSION + 1}")
        db.close()
    elif kind == "text":
        path.write_text("x,y\n" * 50)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    before = path.read_bytes() if path.is_file() else None
    told = {"newer": f"is a store of version {VERSION + 1}", "text": "is not an engram store; name another file"}
    assert told.get(kind, "a store is a file such as engram.db") in wrong(*words, "--store", path)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_no_store_and_no_folder_for_one(wrong, tmp_path, target_file):
    assert "there is no store at engram.db; run an audit first" in wrong("runs")
    assert "the folder none does not exist; make it" in wrong("audit", target_file, *QUICK, "--store", "none/engram.db")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["target.py"]


# A read-only folder. Root may write anywhere, so the system's refusal is played.


def refusing(path):
    def refused(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    return refused


def test_a_read_only_folder_for_the_store(wrong, tmp_path, target_file, monkeypatch):
    monkeypatch.setattr("engram.store.os.open", refusing(tmp_path))
    told = wrong("audit", target_file, *QUICK)
    assert (
        told == "engram.db cannot be written (Read-only file system); name a store in a folder that can, with --store"
    )


def test_a_read_only_folder_for_the_report_leaves_the_run(wrong, say, tmp_path, target_file, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("engram.report._write_whole", refusing(tmp_path))
        told = wrong("audit", target_file, *QUICK, "--report", "report.html")
    assert told == (
        "the report cannot be written to report.html (Read-only file system); the run is stored: "
        "engram report 1 --store engram.db --to FILE"
    )
    assert say("report", 1, "--store", "engram.db", "--to", "again.html").code == 0
    assert (tmp_path / "again.html").stat().st_size > 10_000


def test_a_read_only_folder_for_a_template(wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(engram.cli.new.Path, "write_text", refusing(tmp_path))
    assert wrong("new", "t.py") == "t.py cannot be written (Read-only file system); name a file in a folder that can"


# A full disk


def test_a_disk_that_fills_while_evidence_is_kept(wrong, say, tmp_path, target_file, monkeypatch):
    """The second attack's evidence does not fit. The first one's stays, and the same command ends the run."""
    whole = say("audit", target_file, *QUICK, "--store", "whole.db", "--json")
    write, left = np.lib.format.write_array, [8]

    def filling(*args, **how):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*args, **how)

    with monkeypatch.context() as patched:
        patched.setattr(np.lib.format, "write_array", filling)
        told = wrong("audit", target_file, *QUICK)
    assert told == (
        "no room left for engram.db.blocks; free some and run the same command again, it goes on where it was"
    )
    with Store(tmp_path / "engram.db", write=False) as store:
        assert [t.attack for t in store.told(1)] == ["gap"]
        assert store.run(1).finished is None
    again = say("audit", target_file, *QUICK, "--json")
    assert again.code == 0
    assert again.out.split('"environment"')[0] == whole.out.split('"environment"')[0]


def test_a_disk_that_is_full_in_earnest(alone, tmp_path, target_file):
    """No file may grow beyond 64 KiB: a limit that the system itself enforces."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))  # noqa: E731
    said = alone("audit", target_file, *QUICK, cwd=tmp_path, preexec_fn=limit)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("engram: no room left for engram.db")
    assert said.stderr.endswith("free some and run the same command again, it goes on where it was\n")
    assert alone("runs", cwd=tmp_path).returncode == 0
    assert alone("audit", target_file, *QUICK, cwd=tmp_path).returncode == 0


def test_a_terminal_that_takes_nothing():
    with open("/dev/full", "w") as full:
        said = subprocess.run(
            [*COMMAND, "attacks"], stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False
        )
    assert said.returncode == 2
    assert said.stderr == (
        "engram: the answer could not be written: No space left on device; what was measured is stored\n"
    )


def test_the_file_used_here_is_fine(say, target_file):
    """The control: without a fault the same command ends well."""
    assert target_file.read_text() == TARGET
    assert say("audit", target_file, *QUICK).code == 0
