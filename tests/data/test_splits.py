"""Random disjoint parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from engram.data import split
from engram.seed import Seed


@given(st.integers(10, 200), st.lists(st.floats(0.1, 0.3), min_size=1, max_size=3), st.integers(0, 99))
def test_parts_are_disjoint_sorted_and_of_the_size_asked_for(n, fractions, seed):
    parts = split(n, fractions, seed=Seed(seed))
    rows = np.concatenate(parts)
    assert len(set(rows.tolist())) == len(rows)
    assert set(rows.tolist()) <= set(range(n))
    for part, share in zip(parts, fractions, strict=True):
        assert (np.diff(part) > 0).all()
        assert abs(len(part) - share * n) <= 1


def test_halves_leave_nobody_out():
    members, others = split(11, seed=Seed(1))
    assert sorted([*members, *others]) == list(range(11))


def test_the_seed_decides():
    np.testing.assert_array_equal(split(50, seed=Seed(1))[0], split(50, seed=Seed(1))[0])
    assert (split(50, seed=Seed(1))[0] != split(50, seed=Seed(2))[0]).any()


def test_every_record_is_as_likely_a_member():
    """Each record in half of 400 splits; false alarms below 1e-3 over 20 records at fixed seeds.

    The control: rows taken in order are found out by the same test.
    """
    member = np.zeros((400, 20), bool)
    for k in range(400):
        member[k, split(20, seed=Seed(k))[0]] = True
    assert all(binomtest(int(m), 400).pvalue > 1e-3 / 20 for m in member.sum(0))
    in_order = np.tile(np.arange(20) < 10, (400, 1))
    assert not all(binomtest(int(m), 400).pvalue > 1e-3 / 20 for m in in_order.sum(0))


@pytest.mark.parametrize(
    ("n", "fractions", "says"),
    [
        (10, (0.6, 0.6), "fractions must add up to at most 1"),
        (10, (0.5, 0.0), "each fraction must lie in"),
        (1, (0.5, 0.5), "every part needs a record, got 1 records"),
    ],
)
def test_impossible_parts_are_refused(n, fractions, says):
    with pytest.raises(ValueError, match=says):
        split(n, fractions, seed=Seed(0))
