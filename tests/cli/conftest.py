from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import engram
from engram.cli import main

TESTS = Path(__file__).parents[1]
TARGET = f"import sys\nsys.path.append({str(TESTS)!r})\nfrom contract.targets import leaky\ntarget = leaky()\n"
QUICK = ("--attacks", "gap,lira", "--set", "lira.shadows=8")
COMMAND = (sys.executable, "-c", "import sys; from engram.cli import main; sys.exit(main())")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(engram.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def say(capsys, tmp_path, monkeypatch):
    """Runs a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def saying(*words: object) -> Said:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as left:
            code = left.code
        return Said(code, *capsys.readouterr())

    return saying


@pytest.fixture
def wrong(say):
    """Runs a command that must be refused: code 2, one sentence, nothing else. The sentence."""

    def refused(*words: object) -> str:
        said = say(*words)
        assert said.code == 2, said
        assert said.out == ""
        assert said.err.startswith("engram: ")
        assert said.err.count("\n") == 1
        assert "Traceback" not in said.err
        return said.err.removeprefix("engram: ").strip()

    return refused


@pytest.fixture
def target_file(tmp_path):
    path = tmp_path / "target.py"
    path.write_text(TARGET)
    return path


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """A store with two finished runs: one without a defence, one with. Only to be read."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "target.py").write_text(TARGET)
    with contextlib.chdir(folder), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        for more in ((), ("--defences", "l2")):
            assert main(["audit", "target.py", *QUICK, *more, "--store", "engram.db"]) == 0
    return folder / "engram.db"


@pytest.fixture
def alone():
    """Runs a command in a process of its own."""

    def running(*words: object, **how: object) -> subprocess.CompletedProcess[str]:
        told = [*COMMAND, *map(str, words)]
        return subprocess.run(told, env=ENVIRONMENT, capture_output=True, text=True, check=False, **how)

    return running
