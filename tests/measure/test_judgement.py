from __future__ import annotations

import numpy as np
import pytest

from engram.measure import judge, proportion, shuffled, simultaneous
from engram.measure.judgement import balanced_interval, ppv_interval
from engram.measure.rates import Claimed
from engram.seed import Seed
from engram.types import Scores

MEMBER = np.arange(400) < 200


def said(shift, *, claims=True, seed=0):
    values = np.random.default_rng(seed).normal(size=400) + shift * MEMBER
    return Scores(values, np.arange(400), values > shift / 2 if claims else None, "a variant")


def by_metric(findings):
    return {f.metric: f for f in findings}


def test_every_finding_has_an_interval_and_what_it_rests_on():
    found = by_metric(judge(said(2.0), MEMBER, seed=Seed(0)))
    for f in found.values():
        assert (f.n, f.non_members, f.variant) == (400, 200, "a variant")
        if f.value is None:
            assert f.reason
        else:
            assert f.low <= f.value
            assert f.high is None or f.value <= f.high
            assert f.method
    assert found["tpr@0.01"].value is None
    assert found["auc"].low > 0.85
    assert found["epsilon"].value > 1
    assert found["epsilon"].high is None


def test_without_claims_rates_of_claims_are_null_with_a_reason():
    found = by_metric(judge(said(2.0, claims=False), MEMBER, seed=Seed(0)))
    for metric in ("balanced_accuracy", "ppv@0.01", "ppv@0.1", "epsilon"):
        assert found[metric].value is None
        assert "set no threshold" in found[metric].reason


def test_an_unbalanced_truth_yields_no_epsilon():
    member = np.arange(400) < 40
    values = np.arange(400.0)
    found = by_metric(judge(Scores(values, np.arange(400), values > 200), member, seed=Seed(0)))
    assert "40 of 400" in found["epsilon"].reason


def test_the_shuffled_control_covers_chance_even_of_a_perfect_attack():
    """50 shuffles at 99.9 % each: one miss in twenty thousand runs is expected."""
    for seed in range(50):
        control = shuffled(said(9.0), MEMBER, seed=Seed(seed), level=simultaneous(0.95, 50))
        assert control.low <= 0.5 <= control.high
    assert judge(said(9.0), MEMBER, seed=Seed(0))[0].low > 0.5


def test_balanced_accuracy_covers_as_often_as_it_says():
    """Rates of 0.7 and 0.4 on 100 records each, 400 times; 95 % coverage falls below 0.92 once in 250 runs."""
    stream = np.random.default_rng(0)
    true, false = stream.binomial(100, 0.7, 400), stream.binomial(100, 0.4, 400)
    bounds = [balanced_interval(Claimed(int(t), 100, int(f), 100)) for t, f in zip(true, false, strict=True)]
    assert np.mean([low <= 0.65 <= high for low, high in bounds]) >= 0.92
    assert np.mean([high - low for low, high in bounds]) < 0.16


def test_precision_is_bounded_by_the_worst_of_both_rates():
    low, high = ppv_interval(Claimed(10, 100, 0, 100), 0.01)
    assert 0 < low < 0.1
    assert high == 1


def test_a_proportion_is_counted():
    f = proportion([True, True, False, True], "accuracy_members")
    assert (f.metric, f.value, f.n) == ("accuracy_members", 0.75, 4)
    assert f.low < 0.75 < f.high


@pytest.mark.parametrize(("level", "k", "each"), [(0.95, 1, 0.95), (0.95, 10, 0.995)])
def test_simultaneous_levels(level, k, each):
    assert simultaneous(level, k) == pytest.approx(each)
