"""What installed libraries hold; torchvision and datasets are stood in for by the little that is asked of them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from PIL import Image

from engram.data import digits, from_hugging_face, from_torchvision


class Pairs(list):
    """A map-style data set of torchvision."""

    classes = ("cat", "dog")


def picture(value, mode="RGB", size=(4, 3)):
    return Image.new(mode, size, value)


def test_digits_are_pixels_up_to_one():
    made = digits()
    assert made.x.shape == (1797, 1, 8, 8)
    assert (made.x.min(), made.x.max()) == (0.0, 1.0)
    assert np.bincount(made.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_need_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"need scikit-learn; install it with: pip install 'engram\[data\]'"):
        digits()


def test_pictures_of_torchvision():
    made = from_torchvision(Pairs([(picture((255, 0, 51)), 1), (picture((0, 0, 0)), 0)]))
    assert made.x.shape == (2, 3, 3, 4)
    np.testing.assert_allclose(made.x[0, :, 0, 0], [1, 0, 0.2], rtol=1e-6)
    assert made.y.tolist() == [1, 0]
    assert made.classes == ("cat", "dog")
    assert made.name == "Pairs"


def test_grey_pictures_have_one_channel():
    assert from_torchvision([(picture(51, "L"), 0)]).x.shape == (1, 1, 3, 4)


@pytest.mark.parametrize("label", [1, np.int64(1), torch.tensor(1)])
def test_tensors_are_taken_as_they_are(label):
    made = from_torchvision([(torch.full((1, 2, 2), 0.25), label)], name="mine")
    assert made.x.tolist() == [[[[0.25, 0.25], [0.25, 0.25]]]]
    assert made.y.tolist() == [1]
    assert made.name == "mine"


def test_tensors_of_bytes_are_scaled():
    made = from_torchvision([(torch.full((3, 2, 2), 255, dtype=torch.uint8), 0)])
    assert made.x.shape == (1, 3, 2, 2)
    assert (made.x == 1).all()


def test_records_of_other_shapes_are_named():
    with pytest.raises(ValueError, match=r"record 0 has \(3, 3, 4\) and record 1 has \(3, 5, 5\)"):
        from_torchvision([(picture(0), 0), (picture(0, size=(5, 5)), 1)])


def test_a_stream_is_refused():
    with pytest.raises(TypeError, match="must give its records by number, got generator"):
        from_torchvision(pair for pair in [(picture(0), 0)])


class Split:
    """The little of datasets.Dataset that is asked: columns by name, and what they are."""

    def __init__(self, names=None, **columns):
        self._columns = columns
        self.column_names = list(columns)
        self.features = dict.fromkeys(columns, type("ClassLabel", (), {"names": names} if names else {})())

    def __getitem__(self, column):
        return self._columns[column]


def test_pictures_of_hugging_face():
    made = from_hugging_face(
        Split(("cat", "dog"), image=[picture((255, 0, 0)), picture(0)], label=[1, 0]), record="image", label="label"
    )
    assert made.x.shape == (2, 3, 3, 4)
    assert made.classes == ("cat", "dog")
    assert made.y.tolist() == [1, 0]


def test_token_ids_of_hugging_face():
    made = from_hugging_face(Split(ids=[[1, 2, 3], [4, 5, 6]], kind=["b", "a"]), record="ids", label="kind", name="t")
    assert made.x.dtype == np.int64
    assert made.x.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert made.classes == ("a", "b")


def test_text_is_refused_until_it_is_tokens():
    with pytest.raises(TypeError, match="got text; turn it into token ids first"):
        from_hugging_face(Split(text=["hello"], label=[0]), record="text", label="label")


def test_token_ids_of_several_lengths_are_refused():
    with pytest.raises(ValueError, match=r"record 0 has \(2,\) and record 1 has \(1,\)"):
        from_hugging_face(Split(ids=[[1, 2], [3]], label=[0, 1]), record="ids", label="label")


def test_an_unknown_column_is_answered_with_all():
    with pytest.raises(ValueError, match=r"no column is called 'img'.* Known: image, label"):
        from_hugging_face(Split(image=[[1]], label=[0]), record="img", label="label")


def test_several_splits_are_refused():
    with pytest.raises(TypeError, match=r"expected one split, got several \(train, test\)"):
        from_hugging_face({"train": Split(), "test": Split()}, record="image", label="label")
