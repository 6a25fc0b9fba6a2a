from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import membership as oracle

from engram.measure import roc
from engram.measure.ranks import ranked
from engram.seed import Seed


@st.composite
def scored(draw):
    """Scores with many ties, and both kinds among the records."""
    n = draw(st.integers(2, 40))
    values = np.array(draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)), float)
    member = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    member[:2] = True, False
    return values, member


@given(scored(), st.sampled_from([0.0, 0.05, 0.1, 0.3, 1.0]))
@settings(max_examples=150, deadline=None)
def test_area_and_rates_equal_brute_force(case, fpr):
    values, member = case
    ranks = ranked(values, member)
    assert roc.auc(ranks) == pytest.approx(oracle.area(values, member), abs=1e-12)
    assert roc.tpr_at(ranks, fpr) == pytest.approx(oracle.tpr_at(values, member, fpr), abs=1e-12)


@given(scored())
@settings(max_examples=100, deadline=None)
def test_a_score_and_its_negative_mirror_each_other(case):
    values, member = case
    up, down = ranked(values, member), ranked(-values, member)
    assert roc.auc(up) == pytest.approx(1 - roc.auc(down))
    np.testing.assert_allclose(roc.auc_interval(up), 1 - np.array(roc.auc_interval(down))[::-1], atol=1e-9)


def test_the_curve_runs_from_nobody_to_everybody():
    fpr, tpr = roc.curve(ranked([3.0, 2.0, 2.0, 1.0], [True, True, False, False]))
    np.testing.assert_array_equal(fpr, [0, 0, 0.5, 1])
    np.testing.assert_array_equal(tpr, [0, 0.5, 1, 1])


def test_members_above_all_are_counted():
    assert roc.members_above_all(ranked([5.0, 4.0, 3.0, 3.0, 1.0], [True, True, True, False, True])) == 2


def test_a_perfect_score_is_not_certain():
    low, high = roc.auc_interval(ranked(np.arange(20.0), np.arange(20) >= 10))
    assert high == 1
    assert low == pytest.approx(0.025 ** (1 / 10))  # ten independent pairs, all right


def test_too_few_non_members_cannot_resolve_a_rate():
    few = ranked(np.arange(999.0), np.arange(999) < 1)
    assert "at least 1000 non-members" in roc.unresolved(few, 0.01)
    assert roc.unresolved(ranked(np.arange(1001.0), np.arange(1001) < 1), 0.01) == ""


def _covered(shift, interval, truth, times=300):
    """How often the interval covers, over data sets of 150 members and 150 non-members."""
    hits = 0
    for seed in range(times):
        stream = np.random.default_rng(seed)
        member = np.arange(300) < 150
        low, high = interval(ranked(stream.normal(size=300) + shift * member, member), seed)
        hits += low <= truth <= high
    return hits / times


def test_the_interval_of_the_area_covers_as_often_as_it_says():
    """Area of two Gaussians one deviation apart. At 95 % coverage, below 0.915 or above 0.985 has probability 0.6 %."""
    coverage = _covered(1.0, lambda r, _: roc.auc_interval(r), 0.7602499389065233)
    assert 0.915 <= coverage <= 0.985
    assert _covered(1.0, lambda r, _: roc.auc_interval(r, 0.5), 0.7602499389065233) < 0.6  # a narrow one does not


def test_the_interval_of_a_rate_covers_at_least_as_often_as_it_says():
    """True positive rate at 10 % of two Gaussians one deviation apart: 0.389."""
    coverage = _covered(1.0, lambda r, s: roc.tpr_at_interval(r, 0.1, seed=Seed(s)), 0.38914, times=150)
    assert coverage >= 0.9
    assert _covered(0.0, lambda r, s: roc.tpr_at_interval(r, 0.1, seed=Seed(s)), 0.38914, times=20) < 0.2


def test_the_bootstrap_does_not_depend_on_how_it_is_cut(monkeypatch):
    ranks = ranked(np.random.default_rng(0).normal(size=400), np.arange(400) < 200)
    whole = roc.tpr_at_interval(ranks, 0.1, seed=Seed(1))
    monkeypatch.setattr(roc, "AT_ONCE", 400 * 10)
    assert roc.tpr_at_interval(ranks, 0.1, seed=Seed(1)) == pytest.approx(whole, abs=0.02)
