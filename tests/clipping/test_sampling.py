from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, kstest

from engram import Seed
from engram.clipping import poisson


def test_batches_are_bernoulli_draws_of_every_record():
    """Sizes are binomial and records equally frequent; each test errs once in 1 000. A fixed size would be rejected."""
    batches = list(poisson(200, 0.1, steps=400, simulated=Seed(5)))
    sizes = np.array([len(b) for b in batches])
    low, high = binom.ppf([5e-4, 1 - 5e-4], 200 * 400, 0.1)
    assert low <= sizes.sum() <= high
    assert 0.7 < sizes.var() / (200 * 0.1 * 0.9) < 1.4
    counts = np.bincount(np.concatenate(batches), minlength=200)
    assert kstest(counts + np.random.default_rng(0).random(200) - 0.5, "norm", (40, 6.0)).pvalue > 1e-3


def test_empty_batches_occur_and_records_never_repeat():
    batches = list(poisson(5, 0.1, steps=200, simulated=Seed(1)))
    assert min(map(len, batches)) == 0
    assert all(len(np.unique(b)) == len(b) for b in batches)


def test_shares_are_disjoint_and_cover_all():
    shares = [next(poisson(10, 1.0, steps=1, share=(rank, 3))) for rank in range(3)]
    assert sorted(np.concatenate(shares)) == list(range(10))


def test_draws_differ_unless_they_are_simulated():
    def one(**how):
        return next(poisson(1000, 0.5, steps=1, **how)).tolist()

    assert one() != one()
    assert one(simulated=Seed(1)) == one(simulated=Seed(1))
    assert one(simulated=Seed(1)) != one(simulated=Seed(2))


@pytest.mark.parametrize("how", [{"rate": 1.5}, {"rate": 0.1, "share": (2, 2)}, {"rate": float("nan")}])
def test_wrong_arguments_are_refused(how):
    with pytest.raises(ValueError, match=r"rate|share"):
        poisson(10, steps=1, **how)
