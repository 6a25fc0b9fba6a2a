from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.membership import best_balanced_accuracy

from engram.measure.thresholds import best, best_by_group


@given(st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=30))
@settings(max_examples=150, deadline=None)
def test_no_threshold_does_better(case):
    values, member = np.array([v for v, _ in case], float), np.array([m for _, m in case])
    member[:2] = True, False
    claimed = values > best(values, member)
    reached = (claimed[member].mean() + (~claimed)[~member].mean()) / 2
    assert reached == pytest.approx(best_balanced_accuracy(values, member))


def test_scores_that_say_nothing_claim_nobody():
    assert best([1.0, 1.0], [True, False]) == np.inf


def test_each_group_gets_its_own_and_a_one_sided_group_the_global_one():
    values = np.array([[1.0, 2.0, 11.0, 12.0, 5.0]])
    member = np.array([[False, True, False, True, True]])
    found = best_by_group(values, member, np.array([0, 0, 1, 1, 2]), 3)
    np.testing.assert_allclose(found, [1.5, 11.5, best(values, member)])
