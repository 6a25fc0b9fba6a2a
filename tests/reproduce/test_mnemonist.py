from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from engram.chunks.local import Memory
from engram.reproduce import drawing, paper
from engram.reproduce import mnemonist as poster
from engram.reproduce.cells import Bench
from engram.reproduce.mnemonist import DROP, NOISE, SIZES, drops, rows_active
from engram.seed import Seed


@pytest.fixture(scope="module")
def table():
    size = SIZES["smoke"]
    small = replace(size, sought=12, epochs=8, study=replace(size.study, epochs=4), scores=("explained", "gates"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "smoke", small)
        return list(paper("mnemonist")(Bench("smoke", Seed(0), Memory())))


def test_the_published_drop_is_the_mean_of_the_four_runs():
    assert pytest.approx(np.mean([14.80, 11.83, 19.60, 11.94]), abs=0.01) == DROP


def test_every_row_is_there_with_and_without_noise(table):
    rows = {cell.row for cell in table}
    for where in ("exact weights", f"noise {NOISE:g}"):
        assert {
            f"{what}, {where}" for what in ("plain", "not cut off", "by explained", "by gates", "at random")
        } <= rows
    runs = {(c.row, c.column): c.published for c in table if c.row.startswith("run ")}
    assert runs["run 1", "RecoNN"] == 0.2040
    assert runs["run 2", "Mnemonist-RecoNN"] == 0.2385
    assert all(cell.holds is None for cell in table)  # two runs claim nothing


def test_drops_are_of_the_same_run():
    losses = {
        "plain": np.array([0.2, 0.1, 0.4]), "not cut off": np.array([0.4, 0.2, 0.8]),
        "by explained": np.array([0.16, 0.08, 0.32]), "kept, explained": np.full(3, 0.5),
        "at random": np.array([0.22, 0.11, 0.44]),
    }  # fmt: skip
    plain, loose, control = drops(losses, ("explained",), 0.0, judged=True)
    assert (plain.ours, loose.ours, control.ours) == pytest.approx((20, 60, -10))
    assert (plain.low, plain.high) == pytest.approx((20, 20))
    assert (plain.holds, loose.holds, control.holds) == (True, None, True)
    worse = losses | {"by explained": losses["at random"], "at random": losses["by explained"]}
    plain, _, control = drops(worse, ("explained",), 0.0, judged=True)
    assert (plain.holds, control.holds) == (False, False)  # selection that loses, a random choice that gains


def test_records_are_counted_by_the_rows_that_were_active_on_them(table):
    counted = list(rows_active(np.array([2, 2, 0])))
    assert [(c.column, c.ours) for c in counted] == [("0 rows active", 1), ("1 rows active", 0), ("2 rows active", 2)]
    drawn = drawing("mnemonist")(table)
    assert ElementTree.fromstring(drawn["active-rows"]).tag.endswith("svg")
    assert sum(c.ours for c in table if c.row == "records") == 2 * 12


def test_without_noise_weights_are_as_training_left_them():
    weights, stream = np.ones((2, 3)), np.random.default_rng(0)
    np.testing.assert_array_equal(poster._clouded(weights, 0.0, stream), weights)
    assert np.std(poster._clouded(np.zeros((100, 100)), 0.1, stream)) == pytest.approx(0.1, rel=0.03)
