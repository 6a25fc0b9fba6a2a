from __future__ import annotations

import numpy as np
import pytest
from attacks.matrices import drawn
from oracles import membership as oracle

from engram.attacks.lira import LiRA
from engram.signals import margin


@pytest.mark.parametrize(
    ("attack", "literal"),
    [
        (LiRA(), oracle.lira_online),
        (LiRA(variance="fixed"), oracle.lira_online_fixed),
        (LiRA(mode="offline-cdf"), oracle.lira_offline_cdf),
        (LiRA(mode="offline-density"), oracle.lira_offline_density),
    ],
)
def test_scores_equal_a_literal_transcription(attack, literal):
    phi, _, shadow = drawn(margin)
    expected = literal(phi[0], shadow.of(margin)[:, 0], shadow.member)
    np.testing.assert_allclose(attack.scored(phi, shadow), expected, rtol=1e-9, atol=1e-9)


def test_queries_of_several_views_add_up():
    phi, _, shadow = drawn(margin)
    twice = type(shadow)(shadow.member, {"margin": np.concatenate([shadow.of(margin)] * 2, 1)})
    once = LiRA().scored(phi, shadow)
    np.testing.assert_allclose(LiRA().scored(np.concatenate([phi, phi]), twice), 2 * once, rtol=1e-12)


def test_a_record_on_which_all_shadows_agree_has_a_finite_score():
    phi, _, shadow = drawn(margin)
    told = shadow.of(margin).copy()
    told[:, :, 3] = 1.25
    assert np.isfinite(LiRA().scored(phi, type(shadow)(shadow.member, {"margin": told}))).all()


def test_per_record_variance_beats_fixed_variance_where_records_differ_and_shadows_are_many():
    """Over 20 draws of 200 records; a coin would win 18 or more with probability 2e-4."""
    wins = 0
    for seed in range(20):
        phi, member, shadow = drawn(margin, shadows=64, records=200, seed=seed)
        areas = [oracle.area(a.scored(phi, shadow), member) for a in (LiRA(), LiRA(variance="fixed"))]
        wins += areas[0] > areas[1]
    assert wins >= 18


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"mode": "ofline-cdf"}, "did you mean offline-cdf"),
        ({"variance": "global"}, "Known: fixed, record"),
        ({"shadows": 2}, "shadows must be at least 4"),
    ],
)
def test_wrong_knobs_are_refused(knobs, told):
    with pytest.raises(ValueError, match=told):
        LiRA(**knobs)
