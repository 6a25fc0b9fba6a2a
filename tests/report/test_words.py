from __future__ import annotations

import pytest

from engram.report import words
from engram.types import Finding


@pytest.mark.parametrize(
    ("share", "told"),
    [(0, "0"), (1, "100"), (0.5, "50"), (0.123, "12.3"), (0.1234, "12.3"), (0.01, "1"), (0.001, "0.1"), (0.0049, "0.49"),
     (0.1, "10"), (1.0, "100"), (0.9996, "99.96"), (0.99999, "99.999"), (0.00001, "0.001"), (1 - 1e-9, "99.9999999")],
)  # fmt: skip
def test_a_share_is_never_rounded_to_all_or_to_nothing(share, told):
    assert words.percent(share) == f"{told}{words.THIN}%"


@pytest.mark.parametrize(
    ("metric", "value", "low", "high", "told"),
    [
        ("auc", 0.75, 0.7, 0.8, "0.750 [0.700, 0.800]"),
        ("tpr@0.01", 0.25, 0.2, 0.3, "25\u202f% [20, 30]"),
        ("epsilon", 1.5, 1.5, None, "1.50"),
        ("auc", None, None, None, "–"),
    ],
)
def test_a_finding_in_one_line(metric, value, low, high, told):
    assert words.interval(Finding(metric, value, low, high, n=9)) == told


@pytest.mark.parametrize(("seconds", "told"), [(1.26, "1.3 s"), (75, "1 min 15 s"), (7260, "2 h 1 min")])
def test_durations(seconds, told):
    assert words.seconds(seconds).replace(words.THIN, " ") == told


def test_a_moment_is_told_in_universal_time():
    assert words.moment(0) == "1970-01-01 00:00 UTC"
