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
from engram.types import Scores

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


def test_behind_memguard_confidences_tell_what_labels_tell_and_labels_what_they_did(bench):
    few = {row: SMALL.rows[row] for row in ("gap", "confidence", "largest confidence", "boundary")}
    setting = replace(SMALL, targets=4, masked=2, rows=few)
    targets = list(label_only.trained(bench, setting, setting.load(None)))
    plain = label_only.measured(bench, setting, targets, "")
    rows = {c.row: c for c in label_only.behind_memguard(bench, setting, targets, plain)}
    assert all(cell.holds and cell.n == 2 * 300 for cell in rows.values())
    assert (rows["confidence"].published, rows["largest confidence"].published) == (50.0, 50.0)
    assert rows["largest confidence"].ours == 50.0
    assert rows["confidence"].ours == pytest.approx(plain.accuracy["gap"][:2].mean())
    assert plain.accuracy["confidence"][:2].mean() > rows["confidence"].ours + 3
    assert rows["boundary"].ours == pytest.approx(plain.accuracy["boundary"][:2].mean())
    off = replace(plain, accuracy={row: values - 20 for row, values in plain.accuracy.items()})
    moved = {c.row: c.holds for c in label_only.behind_memguard(bench, setting, targets, off)}
    assert moved == {"gap": False, "confidence": False, "largest confidence": True, "boundary": False}


def test_shadows_are_trained_once_for_all_rows_targets_and_masks(bench, table):
    assert any("memguard" in cell.column for cell in table)
    trained = {name.rpartition("/")[0] for name in bench.chunks._done if name.startswith("weights/")}
    asked = {name.rpartition("/")[0] for name in bench.chunks._done if name.startswith("played/")}
    assert len(trained) == 1
    assert len(asked) > 5


def test_a_rate_is_told_at_the_threshold_of_all_targets_or_not_at_all():
    stream = np.random.default_rng(0)
    truth = [stream.random(2000) < 0.5 for _ in range(3)]
    said = [Scores(np.where(m, 1.0, 0.0) + stream.normal(size=2000), np.arange(2000)) for m in truth]
    told, low, high = label_only.at_rate(said, truth, 0.01, Seed(0))
    values, member = np.concatenate([s.values for s in said]), np.concatenate(truth)
    cut = np.sort(values[~member])[-int(0.01 * (~member).sum()) - 1]
    assert told == pytest.approx(np.mean([100 * (s.values[m] > cut).mean() for s, m in zip(said, truth, strict=True)]))
    assert low < told < high
    assert "takes at least 10000 non-members to see" in label_only.at_rate(said, truth, 0.001, Seed(0))
    nothing = [Scores(s.values * ~m, s.ids) for s, m in zip(said, truth, strict=True)]
    told, low, high = label_only.at_rate(nothing, truth, 0.01, Seed(0))
    assert told == low == 0 < high  # a rate of zero is not certain


def test_an_accuracy_far_from_the_papers_does_not_hold():
    values = {row: np.full(3, 55.0) for row in SMALL.rows}
    found = Measured(values, {row: {} for row in values}, 3)
    setting = replace(SMALL, published={"gap": 57.9, "boundary": 58.1}, within=3.0)
    held = {cell.row: cell.holds for cell in label_only.rows(setting, found)}
    assert (held["gap"], held["boundary"], held["noise"]) == (True, False, None)
    assert all(cell.holds is None for cell in label_only.rows(replace(setting, within=None), found))


def test_an_interval_is_that_of_student():
    mean, low, high = interval(np.array([1.0, 2.0, 3.0]))
    assert (mean, low, high) == pytest.approx((2.0, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-5)
