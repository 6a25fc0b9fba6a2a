"""Two arrays become records: checked once, where they enter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engram.data import dataset


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.uint8, bool])
def test_numbers_become_float32(kind):
    assert dataset(np.ones((2, 3), kind), [0, 1]).x.dtype == np.float32


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.uint32, np.int64])
def test_tokens_stay_whole(kind):
    made = dataset(np.array([[1, 2], [3, 60000]]).astype(kind), [0, 1])
    assert made.x.dtype == np.int64


def test_classes_are_numbered_where_they_have_no_names():
    assert dataset(np.zeros((2, 1)), [0, 2]).classes == ("0", "1", "2")


@given(st.lists(st.text(min_size=1).filter(lambda t: "\0" not in t), min_size=1, max_size=20))
def test_labels_that_are_text_are_numbered_and_their_names_kept(labels):
    made = dataset(np.zeros((len(labels), 1)), labels)
    assert [made.classes[k] for k in made.y] == labels
    assert list(made.classes) == sorted(set(labels))


def test_classes_that_are_given_say_the_order_of_text_labels():
    made = dataset(np.zeros((3, 1)), ["cat", "bird", "cat"], classes=("cat", "bird", "dog"))
    assert made.y.tolist() == [0, 1, 0]
    assert made.classes == ("cat", "bird", "dog")


def test_a_text_label_that_is_no_class_is_refused():
    with pytest.raises(ValueError, match="no class is called 'cot'; did you mean cat"):
        dataset(np.zeros((1, 1)), ["cot"], classes=("cat", "bird"))


def test_a_part_keeps_what_is_common_to_all_records():
    made = dataset(np.eye(3), ["a", "b", "a"], name="three", columns=("x", "y", "z"))
    part = made.take([2, 0])
    assert part.y.tolist() == [0, 0]
    np.testing.assert_array_equal(part.x, np.eye(3, dtype=np.float32)[[2, 0]])
    assert (part.classes, part.name, part.columns) == (made.classes, made.name, made.columns)
    assert len(made.take(np.array([True, False, True]))) == 2


@pytest.mark.parametrize(
    ("x", "y", "error", "says"),
    [
        ([[1.0], [np.nan]], [0, 1], ValueError, "records must be finite, got nan in record 1"),
        ([[1.0], [1e300]], [0, 1], ValueError, "records must be finite, got inf in record 1"),
        ([[1.0], [2.0]], [0], ValueError, "lengths must agree, but records has 2, labels has 1"),
        ([["a"], ["b"]], [0, 1], TypeError, "records must be numbers, got <U1"),
        ([[1j]], [0], TypeError, "records must be numbers, got complex128"),
        ([[1.0]], [0.5], TypeError, "labels must be whole numbers"),
        ([[1.0]], [-1], ValueError, "labels must lie in"),
    ],
)
def test_bad_input_gets_one_sentence(x, y, error, says):
    with pytest.raises(error, match=says):
        dataset(x, y)
