from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import beta, norm

from engram.report.conclusion import HEADLINES
from engram.report.verdict import Rule, lower_end, verdict
from engram.types import Finding


def auc(low, value=0.8, **other):
    return Finding(**{"metric": "auc", "value": value, "low": low, "high": 0.95, "n": 20000, "non_members": 10000,
                      "attack": "lira", **other})  # fmt: skip


def rate(found, members=10_000, level=0.95):
    low = float(beta.ppf((1 - level) / 2, found, members - found + 1)) if found else 0.0
    return Finding(
        "tpr@0.01", found / members, low, 1.0, n=2 * members, non_members=members, level=level, attack="lira"
    )


@pytest.mark.parametrize(
    ("low", "level"),
    [(0.6000001, "gives away"), (0.6, "trace"), (0.5000001, "trace"), (0.5, "nothing"), (0.4, "nothing")],
)
def test_at_the_borders_of_an_area(low, level):
    found = verdict([auc(low)])
    assert found.level == level
    assert found.bounds[0].low == pytest.approx(low, abs=1e-12)


def first_above(line, members=10_000):
    """The least number of members found whose exact lower end lies above the line."""
    return next(k for k in range(1, members) if beta.ppf(0.025, k, members - k + 1) > line)


@pytest.mark.parametrize(("line", "above", "below"), [(0.05, "gives away", "trace"), (0.01, "trace", "nothing")])
def test_at_the_borders_of_a_rate(line, above, below):
    k = first_above(line)
    assert verdict([rate(k)]).level == above
    assert verdict([rate(k - 1)]).level == below


def test_what_was_not_measured_is_unknown():
    assert verdict([]).level == "unknown"
    null = Finding("auc", None, None, None, n=0, reason="refused", attack="lira")
    assert verdict([null]).level == "unknown"
    assert verdict([auc(0.9, metric="ppv@0.1"), auc(0.9, metric="auc_shuffled")]).level == "unknown"


def test_more_attacks_widen_each_interval():
    one, many = verdict([auc(0.61)]), verdict([auc(0.61, variant=str(k)) for k in range(9)])
    assert one.level == "gives away"
    assert many.level == "trace"
    z = norm.isf(0.025 / 9) / norm.isf(0.025)
    assert many.bounds[0].low == pytest.approx(expit(logit(0.8) - z * (logit(0.8) - logit(0.61))))


def test_a_lower_end_never_rises_and_never_exceeds_the_exact_one():
    for k in (0, 1, 17, 500, 9999, 10_000):
        ends = [lower_end(rate(k), level) for level in (0.95, 0.99, 0.999)]
        assert ends == sorted(ends, reverse=True)
        for end, level in zip(ends, (0.95, 0.99, 0.999), strict=True):
            exact = beta.ppf((1 - level) / 2, k, 10_000 - k + 1) if k else 0.0
            assert end <= exact + 1e-12
    perfect = auc(1.0, value=1.0, n=20, non_members=10)
    assert lower_end(perfect, 0.95) == pytest.approx(0.025 ** (1 / 10))


def test_reasons_come_strongest_first_and_each_level_has_its_words():
    found = verdict([auc(0.7, variant="a"), auc(0.75, variant="b"), auc(0.4, variant="c"), rate(9000)])
    assert [b.finding.variant for b in found.because] == ["b", "a", ""]
    assert all(b.low > Rule().limits[b.finding.metric] for b in found.because)
    assert {verdict([auc(low)]).level for low in (0.7, 0.55, 0.4)} | {verdict([]).level} <= set(HEADLINES)


def test_another_rule_draws_other_lines():
    assert verdict([auc(0.61)], Rule(auc=0.7)).level == "trace"
    assert Rule().rate == "tpr@0.01"
    assert not math.isnan(np.prod(list(Rule().limits.values())))
