from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from cli.conftest import ENVIRONMENT, QUICK

import engram.cli.progress
from engram.cli.progress import bar, drawn, track
from engram.types import quiet


class Clock:
    """Stands still but for what is added."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(engram.cli.progress, "time", clock)
    return clock


def taking(clock, seconds):
    for k in range(len(seconds)):
        clock.now += seconds[k]
        yield k


def lines(told):
    shown = [line.removesuffix("\x1b[K") for line in told.split("\r")]
    return [line for line in shown if line]


def test_it_yields_what_it_is_given(clock, capsys):
    assert list(bar(taking(clock, [5, 5]), "training", 2)) == [0, 1]
    assert list(bar([], "training")) == []
    assert list(bar(iter("ab"), "training")) == ["a", "b"]
    assert capsys.readouterr().out == ""


def test_what_takes_less_than_two_seconds_shows_nothing(clock, capsys):
    list(bar(taking(clock, [0.5, 0.5, 0.5]), "training", 3))
    assert capsys.readouterr().err == ""


def test_after_two_seconds_a_bar_tells_the_time_left_and_goes_at_the_end(clock, capsys):
    list(bar(taking(clock, [1.5, 1.5, 1.5, 1.5]), "training", 4))
    told = capsys.readouterr().err
    assert lines(told) == [
        "training  ############............  2 of 4, 3 s left",
        "training  ##################......  3 of 4, 2 s left",
        "training  ########################  4 of 4, 0 s left",
    ]
    assert told.endswith("\r\x1b[K")


def test_the_total_is_taken_from_what_has_a_length(clock, capsys):
    for _ in bar(["a", "b"], "training"):
        clock.now += 3
    assert "1 of 2, 3 s left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("done", "total", "elapsed", "told"),
    [
        (3, None, 4.0, "x  3, 4 s"),
        (1, 61, 1.0, "x  ........................  1 of 61, 1 min 0 s left"),
        (1, 3601, 2.0, "x  ........................  1 of 3601, 2 h 0 min left"),
    ],
)
def test_one_line(done, total, elapsed, told):
    assert drawn("x", done, total, elapsed) == told


@pytest.mark.parametrize(("terminal", "expected"), [(True, bar), (False, quiet)])
def test_only_a_terminal_gets_a_bar(monkeypatch, terminal, expected):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert track() is expected


PATIENT = "import sys, engram.cli.progress as p; p.PATIENCE = {}; from engram.cli import main; sys.exit(main())"


def on_a_terminal(folder, patience, *words):
    """What a command writes to its errors where these are a terminal, and to its output, which is not."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", PATIENT.format(patience), *map(str, words)],
        stdout=subprocess.PIPE, stderr=theirs, env=ENVIRONMENT, cwd=folder, check=True, text=True,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(ours)
    return done.stdout, seen.decode()


def test_a_terminal_sees_a_bar_only_for_what_takes_long(tmp_path, target_file):
    out, seen = on_a_terminal(tmp_path, 0.0, "audit", target_file, *QUICK)
    assert "training 8 shadow models  ####" in seen
    assert "s left" in seen
    assert seen.endswith("\r\x1b[K")
    assert "\r" not in out
    assert on_a_terminal(tmp_path, 60.0, "audit", target_file, *QUICK)[1] == ""
