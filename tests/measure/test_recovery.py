from __future__ import annotations

import numpy as np
import pytest
from oracles.leakage import ssim as slow_ssim

from engram.measure.recovery import bag_share, error, judge, matched, of_text, psnr, rouge_l, ssim
from engram.types import Recovered


def said(guesses, certificate=1e-9, **knobs):
    n = len(guesses)
    return Recovered("record", guesses, np.zeros(n), np.full(n, certificate), **knobs)


@pytest.fixture
def records():
    return np.random.default_rng(0).uniform(size=(6, 1, 8, 8))


def named(found):
    return {f.metric: f for f in found}


def test_the_order_of_a_batch_is_free(records):
    order = np.random.default_rng(1).permutation(6)
    labels = np.arange(6)
    found = named(judge(said(records[order], labels=labels[order]), records, labels))
    assert found["recovered@0.001"].value == 1
    assert found["mse"].value == 0
    assert found["ssim"].value == pytest.approx(1)
    assert found["labels_right"].value == 1
    np.testing.assert_array_equal(order[matched(records[order], records)], np.arange(6))


def test_one_guess_stands_for_one_record_only(records):
    found = named(judge(said(np.repeat(records[:1], 6, 0)), records, np.zeros(6, int)))
    assert found["recovered@0.001"].value == pytest.approx(1 / 6)


def test_noise_recovers_nothing(records):
    noise = np.random.default_rng(9).uniform(size=records.shape)
    found = named(judge(said(noise), records, np.zeros(6, int)))
    assert found["recovered@0.001"].value == 0
    assert found["recovered@0.001"].high == pytest.approx(1 - 0.025 ** (1 / 6))
    assert found["psnr"].value < 12


def test_fewer_guesses_than_records_leave_the_rest_unrecovered(records):
    found = named(judge(said(records[2:4]), records, np.zeros(6, int)))
    assert found["recovered@0.001"].value == pytest.approx(2 / 6)
    assert "mse" not in found
    none = named(judge(said(records[:0]), records, np.zeros(6, int)))
    assert none["recovered@0.001"].value == 0
    assert none["certificate"].value is None


def test_closeness_does_not_depend_on_the_unit(records):
    guesses = records + np.random.default_rng(0).normal(scale=0.01, size=records.shape)
    units = [named(judge(said(s * guesses), s * records, np.zeros(6, int))) for s in (1.0, 255.0)]
    assert [u["recovered@0.001"].value for u in units] == [1, 1]
    assert units[0]["psnr"].value == pytest.approx(units[1]["psnr"].value)
    assert units[0]["ssim"].value == pytest.approx(units[1]["ssim"].value)


def test_psnr_and_error_in_closed_form():
    assert psnr(np.array([0.01]))[0] == pytest.approx(20)
    assert psnr(np.array([255.0**2]), 255)[0] == pytest.approx(0)
    assert error(np.zeros((1, 4)), np.full((1, 4), 0.5))[0] == 0.25


@pytest.mark.parametrize(("side", "window"), [(16, 11), (8, 7), (5, 5)])
def test_ssim_is_that_of_the_paper_window_by_window(side, window):
    stream = np.random.default_rng(side)
    a, b = stream.uniform(size=(2, side, side))
    assert ssim(a, b) == pytest.approx(slow_ssim(a, b, 1.0, window, 1.5), rel=1e-10)
    assert ssim(a, a) == pytest.approx(1)


def test_text_is_matched_and_counted():
    truth = np.array([[1, 2, 3], [4, 5, 6]])
    found = named(of_text(np.array([[4, 5, 0], [1, 2, 3]]), truth))
    assert found["tokens_right"].value == pytest.approx(5 / 6)
    assert found["sentences_right"].value == 0.5
    assert found["rouge_l"].value == pytest.approx((1 + 2 / 3) / 2)
    assert named(of_text(np.zeros((0, 3), int), truth))["tokens_right"].value == 0


def test_rouge_l_in_closed_form():
    assert rouge_l([1, 2, 3, 4], [2, 4]) == pytest.approx(2 * 2 / 6)
    assert rouge_l([], []) == 0
    assert rouge_l([1], [2]) == 0


def test_a_bag_counts_each_label_as_often_as_it_is_there():
    assert bag_share(np.array([1, 1, 2]), np.array([1, 2, 2]), 0.95).value == pytest.approx(2 / 3)
