"""What a check lets through, what it refuses, and what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engram import check


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_positive_numbers_pass(value):
    assert check.positive("rate", value) == value


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_what_is_not_positive_and_finite_is_refused_with_what_to_do(value):
    with pytest.raises(ValueError, match=f"rate must be positive and finite, got {value}; use 1"):
        check.positive("rate", value, "use 1")


def test_at_least_includes_its_end():
    assert check.at_least("shadows", 2, 2) == 2


@pytest.mark.parametrize("value", [1, -3, math.nan])
def test_less_than_the_least_is_refused(value):
    with pytest.raises(ValueError, match=f"shadows must be at least 2, got {value}; take more"):
        check.at_least("shadows", value, 2, "take more")


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("one", [False, True])
def test_a_fraction_includes_an_end_only_where_that_is_allowed(zero, one):
    assert check.fraction("share", 0.5, zero=zero, one=one) == 0.5
    for end, allowed in ((0.0, zero), (1.0, one)):
        if allowed:
            assert check.fraction("share", end, zero=zero, one=one) == end
        else:
            with pytest.raises(ValueError, match="share must lie in"):
                check.fraction("share", end, zero=zero, one=one)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_what_is_no_fraction_is_refused(value):
    with pytest.raises(ValueError, match=rf"share must lie in \[0, 1\), got {value}"):
        check.fraction("share", value, zero=True)


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all():
    assert check.known("attack", "gap", ["lira", "gap"]) == "gap"
    with pytest.raises(ValueError, match=r"no attack is called 'lyra'; did you mean lira\? Known: gap, lira"):
        check.known("attack", "lyra", ["lira", "gap"])


def test_a_name_like_no_other_is_answered_in_whole_sentences():
    with pytest.raises(ValueError, match=r"no attack is called 'zzz'\. Known: gap, lira"):
        check.known("attack", "zzz", ["lira", "gap"])


def test_finite_says_which_record_and_how_many():
    x = np.zeros((4, 3))
    assert check.finite("records", x) is x
    x[2, 1], x[3] = np.nan, np.inf
    with pytest.raises(ValueError, match=r"records must be finite, got nan in record 2 \(4 such values in all\)"):
        check.finite("records", x)


def test_whole_numbers_are_finite():
    assert check.finite("tokens", np.arange(3)).tolist() == [0, 1, 2]


def test_lengths_that_differ_are_named():
    assert check.same_length(a=[1, 2], b=np.zeros((2, 5)), c=None) == 2
    with pytest.raises(ValueError, match="lengths must agree, but records has 2, labels has 3"):
        check.same_length(records=[1, 2], labels=[1, 2, 3])


def test_labels_become_int64():
    told = check.labels("labels", np.array([0, 2, 1], np.uint8), 3)
    assert told.dtype == np.int64
    assert told.tolist() == [0, 2, 1]
    assert check.labels("labels", np.array([True, False])).tolist() == [1, 0]


@pytest.mark.parametrize("values", [[0.0, 1.0], ["a", "b"]])
def test_labels_that_are_not_whole_numbers_are_refused(values):
    with pytest.raises(TypeError, match="number the classes first"):
        check.labels("labels", np.array(values))


@pytest.mark.parametrize(("values", "bad"), [([0, -1], -1), ([0, 3], 3)])
def test_labels_out_of_range_are_refused(values, bad):
    with pytest.raises(ValueError, match=rf"labels must lie in 0\.\.2, got {bad}"):
        check.labels("labels", np.array(values), 3)


def test_labels_have_one_axis():
    with pytest.raises(ValueError, match=r"one number a record, got shape \(2, 1\)"):
        check.labels("labels", np.zeros((2, 1), int))


@pytest.mark.parametrize("value", ["3", None, [3], 3j])
@pytest.mark.parametrize("asked", [check.positive, lambda n, v: check.at_least(n, v, 1), check.fraction])
def test_what_is_no_number_is_refused_by_its_name(asked, value):
    with pytest.raises(TypeError, match="rate must be a number, got"):
        asked("rate", value)


@pytest.mark.parametrize("value", [2.0, math.inf, True, "2", None])
def test_what_is_not_whole_is_refused(value):
    with pytest.raises(TypeError, match="shadows must be a whole number, got"):
        check.whole("shadows", value, 1)


def test_whole_numbers_pass_from_the_least():
    assert check.whole("shadows", np.int64(2), 2) == 2
    with pytest.raises(ValueError, match="shadows must be at least 2, got 1"):
        check.whole("shadows", 1, 2)
