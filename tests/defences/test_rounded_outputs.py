from __future__ import annotations

import pytest
import torch

from engram.defences.rounded_outputs import Rounded
from engram.signals import shown


def answers(records=500, classes=10):
    logits = torch.randn(records, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.softmax(3 * logits, -1)


@pytest.mark.parametrize("digits", [1, 2, 5])
def test_answers_have_these_digits_and_zero_stands_for_half_a_digit(digits):
    p = answers()
    rounded = Rounded(digits)(p)
    unit = 10.0**-digits
    for before, after in zip(p.flatten().tolist(), rounded.flatten().tolist(), strict=True):
        expected = round(before, digits)
        assert after == pytest.approx(expected if expected else unit / 2, abs=1e-12)


@pytest.mark.parametrize("digits", [1, 3])
def test_answers_stay_between_zero_and_one_but_need_not_sum_to_one(digits):
    rounded = Rounded(digits)(answers())
    assert (rounded > 0).all()
    assert (rounded <= 1).all()
    apart = (rounded.sum(-1) - 1).abs()
    assert 0 < apart.max() <= 10 * 10.0**-digits / 2 + 1e-12


def test_few_digits_leave_few_answers():
    assert len(torch.unique(Rounded(1)(answers()))) <= 11
    assert len(torch.unique(Rounded(4)(answers()))) > 1000


def test_a_label_changes_only_where_rounding_made_a_tie():
    p = answers()
    for digits in (1, 2):
        rounded = Rounded(digits)(p)
        moved = shown(rounded) != shown(p)
        best = rounded.gather(-1, shown(p)[:, None])[:, 0]
        assert (best == rounded.max(-1).values).all()
        assert ((rounded == best[:, None]).sum(-1) > 1)[moved].all()
