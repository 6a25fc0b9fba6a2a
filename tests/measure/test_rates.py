from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from engram.measure.rates import Claimed, at_least, at_most, balanced_accuracy, clopper_pearson, ppv


@pytest.mark.parametrize("count", [0, 1, 7, 49, 50])
def test_the_interval_ends_where_the_tails_hold_half_of_what_is_left(count):
    """The definition: at the lower end, `count` or more has probability 2.5 %; at the upper, `count` or fewer."""
    low, high = clopper_pearson(count, 50)
    assert low == 0 if count == 0 else binom.sf(count - 1, 50, low) == pytest.approx(0.025)
    assert high == 1 if count == 50 else binom.cdf(count, 50, high) == pytest.approx(0.025)


def test_one_sided_bounds_are_conservative_for_every_rate():
    for rate in np.linspace(0.01, 0.99, 25):
        counts = np.arange(31)
        mass = binom.pmf(counts, 30, rate)
        above = mass[[at_least(int(c), 30, 0.05) > rate for c in counts]].sum()
        below = mass[[at_most(int(c), 30, 0.05) < rate for c in counts]].sum()
        assert max(above, below) <= 0.05


def test_precision_follows_from_both_rates_and_the_prior():
    assert ppv(0.5, 0.1, 0.1) == pytest.approx(0.05 / (0.05 + 0.09))
    assert ppv(0.5, 0.0, 0.01) == 1
    assert np.isnan(ppv(0.0, 0.0, 0.5))


def test_balanced_accuracy():
    assert balanced_accuracy(0.8, 0.4) == pytest.approx(0.7)


def test_claims_cannot_outnumber_records():
    with pytest.raises(ValueError, match="cannot outnumber"):
        Claimed(3, 2, 0, 2)
