from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engram.chunks.local import Memory
from engram.reproduce import label_only
from engram.reproduce.cells import Bench
from engram.reproduce.label_only import Measured, claims, interval, of_setting
from engram.reproduce.label_only_settings import PAPER, SETTINGS, image_rows
from engram.seed import Seed

SMALL = replace(SETTINGS["smoke"][0], targets=4, rows=image_rows(boundary=30, combined=16, noise=10, rotation=10))


@pytest.fixture(scope="module")
def bench():
    return Bench("smoke", Seed(0), Memory())


@pytest.fixture(scope="module")
def table(bench):
    return list(of_setting(bench, SMALL, SMALL.load(None)))


def test_every_row_is_a_mean_over_targets_with_its_interval(table):
    rows = {cell.row: cell for cell in table if cell.column == SMALL.name and " - " not in cell.row}
    assert set(rows) == set(SMALL.rows)
    for cell in rows.values():
        assert 45 < cell.ours < 90
        assert cell.low <= cell.ours <= cell.high
        assert cell.n == 4 * 300
    assert rows["boundary"].ours > rows["gap"].ours


def test_gap_is_half_of_what_members_are_answered_better(bench, table):
    targets = list(label_only.trained(bench, SMALL, SMALL.load(None)))
    lead = []
    for target in targets:
        right = target.answer(label_only_x(target)).argmax(1).numpy() == target.records.y
        lead.append(50 + 50 * (right[target.member].mean() - right[~target.member].mean()))
    (gap,) = (cell for cell in table if cell.row == "gap" and cell.column == SMALL.name)
    assert gap.ours == pytest.approx(np.mean(lead))


def label_only_x(target):
    import torch

    return torch.tensor(target.records.x)


def test_targets_differ_in_who_was_given_and_share_their_candidates(bench):
    a, b, c, _ = label_only.trained(bench, SMALL, SMALL.load(None))
    np.testing.assert_array_equal(a.records.x, c.records.x)
    np.testing.assert_array_equal(a.member, ~b.member)
    assert (a.member != c.member).any()
    assert a.identity() != b.identity()


def test_a_claim_is_contradicted_only_by_the_whole_interval():
    def table(boundary):
        values = {"gap": 50.0, "augmentation, rotation": 55.0, "boundary": boundary, "confidence": 60.0}
        noise = np.array([-1.0, 0.0, 1.0])
        return Measured(
            {row: value + (noise if row == "boundary" else 0 * noise) for row, value in values.items()}, {}, 3
        )

    held = {
        boundary: {cell.row: cell.holds for cell in claims(SMALL, table(boundary))} for boundary in (50.0, 54.0, 60.0)
    }
    assert [held[b]["boundary - augmentation, rotation"] for b in held] == [False, True, True]
    assert [held[b]["boundary - confidence"] for b in held] == [False, False, True]
    assert all(h["augmentation, rotation - gap"] for h in held.values())


def test_data_that_is_not_there_says_so(tmp_path):
    cells = list(label_only.cells(Bench("paper", Seed(0), Memory(), tmp_path)))
    named = {cell.column for cell in cells}
    assert {setting.name for setting in PAPER if setting.published} == named
    assert all(cell.ours is None and cell.holds is None and cell.note for cell in cells)
    assert {c.row: c.published for c in cells if c.column == "MNIST, 1,000"}["combined"] == 58.7


def test_rows_behind_memguard_join_when_it_is_known(bench, monkeypatch):
    setting = replace(SMALL, targets=2, rows={row: SMALL.rows[row] for row in ("gap", "confidence", "boundary")})
    monkeypatch.setattr(label_only, "known", dict)
    assert not any("memguard" in cell.column for cell in of_setting(bench, setting, setting.load(None)))
    monkeypatch.setattr(label_only, "known", lambda: {"memguard": ""})
    monkeypatch.setattr(label_only, "defence", lambda _: lambda recipe: replace(recipe, after=(flat,)))
    rows = {c.row: c for c in of_setting(bench, setting, setting.load(None)) if "memguard" in c.column}
    assert rows["confidence"].ours == pytest.approx(50, abs=1e-9) or rows["confidence"].holds is not None
    assert rows["gap"].holds
    assert rows["boundary"].holds


def flat(p):
    """Every answer alike but for its label."""
    import torch

    c = p.shape[-1]
    low = torch.full_like(p, 1 / c - 0.001 / (c - 1))
    return low.scatter(-1, p.argmax(-1, keepdim=True), 1 / c + 0.001)


def test_an_interval_is_that_of_student():
    mean, low, high = interval(np.array([1.0, 2.0, 3.0]))
    assert (mean, low, high) == pytest.approx((2.0, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-5)
