"""Copies among records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engram.data import duplicates


def oracle(x, member):
    """By its definition, pair by pair."""
    n = len(x)
    same = [[bool((x[i] == x[j]).all()) and i != j for j in range(n)] for i in range(n)]

    def rows(keep):
        return [i for i in range(n) if any(same[i][j] and keep(member[i], member[j]) for j in range(n))]

    def within(side):
        return rows(lambda a, b: a == b == side)

    groups = [rows_of(i, same[i]) for i in range(n)]
    crossing = [i for i in range(n) if len({member[j] for j in groups[i]}) == 2]
    return crossing, within(True), within(False)


def rows_of(i, same):
    return [i, *(j for j, equal in enumerate(same) if equal)]


@given(st.data(), st.integers(0, 12))
def test_they_are_those_that_a_comparison_of_all_pairs_finds(data, n):
    x = data.draw(hnp.arrays(np.int64, (n, 2), elements=st.integers(0, 1)))
    member = data.draw(hnp.arrays(bool, n))
    found = duplicates(x, member)
    crossing, inside, outside = oracle(x, member)
    assert found.across.tolist() == crossing
    assert found.members.tolist() == inside
    assert found.non_members.tolist() == outside
    assert bool(found) == bool(crossing or inside or outside)
    assert all((x[found.group[i]] == x[i]).all() and found.group[i] <= i for i in range(n))


def test_what_is_said_of_them():
    found = duplicates([[1], [1], [2], [1]], [True, True, False, False])
    assert str(found) == (
        "3 records occur among members and among non-members, 2 twice among members, 0 twice among non-members"
    )


def test_membership_is_one_bool_a_record():
    with pytest.raises(TypeError, match="member must be one bool a record, got int64"):
        duplicates([[1], [2]], [0, 1])
    with pytest.raises(ValueError, match="lengths must agree"):
        duplicates([[1], [2]], [True])
