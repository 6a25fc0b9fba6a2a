from __future__ import annotations

import numpy as np
import pytest
from attacks.matrices import drawn
from oracles import membership as oracle
from scipy.stats import invgamma

from engram.attacks.bavaria import BaVarIA, prior
from engram.attacks.lira import LiRA
from engram.signals import margin


@pytest.mark.parametrize("predictive", ["student", "normal"])
def test_scores_equal_a_literal_transcription(predictive):
    phi, _, shadow = drawn(margin)
    expected = oracle.bavaria(phi[0], shadow.of(margin)[:, 0], shadow.member, predictive)
    np.testing.assert_allclose(BaVarIA(predictive=predictive).scored(phi, shadow), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("d0", "s0"), [(4.0, 2.0), (20.0, 0.1)])
def test_the_prior_is_found_again_from_many_variances(d0, s0):
    """20,000 variances from a known prior; the estimate stays within five standard errors of about 2 %."""
    stream = np.random.default_rng(1)
    true = invgamma(d0 / 2, scale=d0 * s0 / 2).rvs(20_000, random_state=stream)
    freedom, typical = prior(true * stream.chisquare(7, 20_000) / 7, np.full(20_000, 7))
    assert freedom == pytest.approx(d0, rel=0.15)
    assert typical == pytest.approx(s0, rel=0.05)


def test_records_of_one_variance_share_it():
    stream = np.random.default_rng(2)
    freedom, typical = prior(3.0 * stream.chisquare(5, 4000) / 5, np.full(4000, 5))
    assert freedom > 100
    assert typical == pytest.approx(3.0, rel=0.05)


def test_with_six_shadows_it_beats_lira_and_with_no_leak_it_finds_nothing():
    """Over 20 draws of 200 records; a coin would win 18 or more with probability 2e-4."""
    wins, null = 0, []
    for seed in range(20):
        phi, member, shadow = drawn(margin, shadows=6, records=200, seed=seed)
        wins += oracle.area(BaVarIA().scored(phi, shadow), member) > oracle.area(LiRA().scored(phi, shadow), member)
        phi, member, shadow = drawn(margin, shadows=6, records=200, leak=0.0, seed=seed)
        null.append(oracle.area(BaVarIA().scored(phi, shadow), member))
    assert wins >= 18
    assert abs(np.mean(null) - 0.5) < 4 * 0.041 / np.sqrt(20)  # an area over 100 and 100 records deviates by 0.041


def test_offline_ranks_by_distance_from_models_without_the_record():
    phi, member, shadow = drawn(margin, shadows=32, records=200)
    assert oracle.area(BaVarIA(mode="offline").scored(phi, shadow), member) > 0.7
