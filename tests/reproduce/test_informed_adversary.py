from __future__ import annotations

import numpy as np
import pytest

from engram.chunks.local import Memory
from engram.data import dataset
from engram.reproduce import paper
from engram.reproduce.cells import Bench
from engram.reproduce.informed_adversary import PUBLISHED, colour, mean
from engram.seed import Seed


@pytest.fixture(scope="module")
def table():
    bench = Bench("smoke", Seed(0), Memory())
    return {(cell.row, cell.column): cell for cell in paper("informed-adversary")(bench)}


def test_the_smoke_table_holds(table):
    assert not [cell for cell in table.values() if cell.holds is False]
    assert table["elu, inversion", "median MSE"].ours < 1e-6
    assert table["elu, inversion", "beats nearest"].ours == 1
    assert table["loss of one record, known start", "AUC"].ours == 1


def test_who_does_not_know_the_start_finds_nothing(table):
    blind = table["elu, unknown start", "identified"]
    assert blind.holds
    assert table["elu, unknown start", "mean MSE"].ours > table["nearest record held", "mean MSE"].ours


def test_kinks_leave_more_numbers_without_a_trace(table):
    kinked, smooth = (table[f"zero gradients, {name}, epoch 20", "1.weight"] for name in ("relu", "elu"))
    assert kinked.low > smooth.high


def test_every_published_activation_is_a_row_at_larger_scales(table):
    assert (
        {"relu", "elu"}
        <= {row for row, column in table if column == "mean MSE"}
        <= {*PUBLISHED, *(r for r, _ in table)}
    )
    assert len(PUBLISHED) == 12


def test_colour_pictures_go_through_the_convolutional_networks():
    stream = np.random.default_rng(0)
    data = dataset(stream.uniform(size=(180, 3, 12, 12)).astype(np.float32), stream.integers(0, 3, 180))
    bench = Bench("smoke", Seed(0), Memory())
    cells = list(colour(bench, data, (30, 110, 4), epochs=2, width=16))
    assert [cell.n for cell in cells] == [4] * 4
    (absent,) = colour(bench, None)
    assert "needs cifar10_20k_5k.npz" in absent.note


def test_a_mean_has_students_interval():
    cell = mean("row", "column", np.array([1.0, 2.0, 3.0, 4.0]))
    assert (cell.ours, cell.n) == (2.5, 4)
    assert cell.low == pytest.approx(2.5 - 3.182446 * 0.6454972, rel=1e-6)
