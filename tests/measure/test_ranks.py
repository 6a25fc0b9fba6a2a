from __future__ import annotations

import numpy as np
import pytest

from engram.measure.ranks import ranked


def test_equal_scores_stay_together():
    ranks = ranked([1.0, 2.0, 2.0, 3.0], [True, True, False, False])
    np.testing.assert_array_equal(ranks.values, [3, 2, 1])
    np.testing.assert_array_equal(ranks.true_claims, [0, 0, 1, 2])
    np.testing.assert_array_equal(ranks.false_claims, [0, 1, 2, 2])
    assert (ranks.n_members, ranks.n_others) == (2, 2)


def test_the_order_of_records_does_not_matter():
    stream = np.random.default_rng(0)
    values, member, order = stream.integers(0, 9, 50).astype(float), stream.random(50) < 0.5, stream.permutation(50)
    a, b = ranked(values, member), ranked(values[order], member[order])
    np.testing.assert_array_equal(a.members, b.members)
    np.testing.assert_array_equal(a.others, b.others)


@pytest.mark.parametrize(
    ("values", "member", "error", "told"),
    [
        ([1.0, np.nan], [True, False], ValueError, "NaN in record 1"),
        ([1.0, 2.0], [True, True], ValueError, "members and non-members"),
        ([1.0, 2.0], [1, 0], TypeError, "true or false"),
        ([1.0], [True, False], ValueError, "lengths must agree"),
    ],
)
def test_what_cannot_be_ranked_is_refused(values, member, error, told):
    with pytest.raises(error, match=told):
        ranked(values, member)
