"""Streams depend on names: not on the order of calls, not on what else was drawn."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, pearsonr

from engram.seed import Seed

names = st.one_of(st.integers(), st.text(st.characters(exclude_categories=["C"])))
paths = st.lists(names, max_size=4)


def test_a_stream_does_not_depend_on_the_order_of_calls():
    root = Seed(7)
    first = root.child("a").numpy().random(3)
    root.child("b").numpy().random(100)
    np.testing.assert_array_equal(root.child("a").numpy().random(3), first)


@given(st.integers(), paths, paths)
def test_a_path_names_the_same_stream_in_one_step_or_in_two(root, above, below):
    assert Seed(root).child(*above).child(*below).number == Seed(root).child(*above, *below).number


@given(paths, paths)
def test_other_paths_name_other_streams(one, other):
    assert (Seed(0).child(*one).number == Seed(0).child(*other).number) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Seed(1), Seed(2)),
        (Seed(1).child(2), Seed(1).child("2")),
        (Seed(1, (2,)), Seed(1).child(2, 2)),
        (Seed(0).child("a", "b"), Seed(0).child("ab")),
        (Seed(0).child("a", "b"), Seed(0).child("b", "a")),
        (Seed(0).child(1, 11), Seed(0).child(11, 1)),
    ],
)
def test_what_is_told_apart(one, other):
    assert one.number != other.number


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_equal_seeds_name_equal_streams_whatever_kind_of_whole_number_they_hold(kind):
    assert Seed(kind(3)).child(kind(4)) == Seed(3).child(4)
    assert Seed(kind(3)).child(kind(4)).number == Seed(3).child(4).number


def test_a_name_that_is_neither_text_nor_a_whole_number_is_refused():
    with pytest.raises((TypeError, ValueError)):
        _ = Seed(0).child(0.5).number


def test_numbers_are_the_same_in_another_process():
    """Closed form: the first eight bytes of a SHA-256, halved. A change would silently change every stored result."""
    assert Seed(7).child("lira", "model", 17).number == 7306664168760833761
    code = "from engram.seed import Seed; print(Seed(7).child('lira', 'model', 17).number)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(told.stdout) == Seed(7).child("lira", "model", 17).number


def test_numbers_fit_a_torch_generator():
    assert all(0 <= Seed(k).number < 2**63 for k in range(1000))


def test_neighbouring_streams_are_uniform_and_unrelated():
    """False alarms: 1e-4 for the first, 1e-4 for the second, at a fixed seed. The control is a stream beside itself."""
    draws = np.stack([Seed(0).child("model", k).numpy().random(200) for k in range(50)])
    assert kstest(draws.ravel(), "uniform").pvalue > 1e-4
    assert min(pearsonr(a, b).pvalue for a, b in pairwise(draws)) > 1e-4 / 49
    assert pearsonr(draws[0], Seed(0).child("model", 0).numpy().random(200)).pvalue < 1e-4
