"""Shapes without logic: they load without torch, and nothing in them changes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from engram.types import Copied, Finding, Piece, Recovered, Scores, quiet

MADE = [
    Scores(np.zeros(2), np.arange(2)),
    Recovered("record", np.zeros((1, 3)), np.zeros(1), np.zeros(1)),
    Copied({"w": np.zeros(2)}, 5),
    Finding("auc", None, None, None, 0),
    Piece("a"),
]


@pytest.mark.parametrize("made", MADE, ids=lambda made: type(made).__name__)
def test_nothing_can_be_changed(made):
    field = dataclasses.fields(made)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, field, None)


def test_quiet_hands_on_what_it_is_given_in_order():
    assert list(quiet([3, 1, 2], "training", 3)) == [3, 1, 2]


@pytest.mark.parametrize("module", ["engram", "engram.types", "engram.seed", "engram.check", "engram.store"])
def test_torch_is_not_loaded(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
