"""Records from files of arrays."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engram.data import from_idx, from_npz, load, pixels

PICTURES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def write_idx(path, values, magic=None, packed=False):
    """The format, as its authors describe it: magic number, big-endian lengths, bytes in row order."""
    head = magic if magic is not None else bytes((0, 0, 8, values.ndim))
    raw = head + b"".join(struct.pack(">I", n) for n in values.shape) + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


def test_npz_holds_records_and_labels(tmp_path):
    np.savez(tmp_path / "small.npz", x=np.eye(3), y=[2, 0, 1])
    made = load(tmp_path / "small.npz")
    np.testing.assert_array_equal(made.x, np.eye(3, dtype=np.float32))
    assert made.y.tolist() == [2, 0, 1]
    assert made.name == "small"


def test_npz_of_tokens_and_named_classes(tmp_path):
    np.savez(tmp_path / "a.npz", tokens=np.array([[5, 70000]], np.int32), kind=np.array(["spam"]))
    made = load(tmp_path / "a.npz", x="tokens", y="kind")
    assert made.x.dtype == np.int64
    assert made.x.tolist() == [[5, 70000]]
    assert made.classes == ("spam",)


def test_npz_with_other_names_says_which_it_has(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.eye(2), y_train=[0, 1])
    with pytest.raises(ValueError, match=r"no array 'x', it has x_train, y_train; say which to take with x=\.\.\. and"):
        load(tmp_path / "a.npz")


def test_npz_that_would_need_pickle_is_refused_and_its_code_does_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").touch, ())

    np.savez(tmp_path / "a.npz", x=np.array([[Bomb()]], object), y=[0])
    with pytest.raises(ValueError, match="was not loaded: Object arrays cannot be loaded"):
        load(tmp_path / "a.npz")
    assert not (tmp_path / "ran").exists()


def test_npz_that_is_none_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"\x80\x04not an archive")
    with pytest.raises(ValueError, match=r"is not an \.npz file; write one with numpy\.savez"):
        load(tmp_path / "a.npz")


def test_npz_with_nan_or_other_lengths_is_refused(tmp_path):
    np.savez(tmp_path / "nan.npz", x=[[1.0], [np.nan]], y=[0, 1])
    np.savez(tmp_path / "short.npz", x=[[1.0], [2.0]], y=[0])
    with pytest.raises(ValueError, match="records must be finite, got nan in record 1"):
        load(tmp_path / "nan.npz")
    with pytest.raises(ValueError, match="lengths must agree"):
        load(tmp_path / "short.npz")


def test_bytes_that_look_like_pictures_are_converted_only_when_that_is_said(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.full((2, 4, 5, 3), 51, np.uint8), y=[0, 1])
    with pytest.raises(ValueError, match="say images=True"):
        load(tmp_path / "a.npz")
    converted = load(tmp_path / "a.npz", images=True).x
    assert converted.shape == (2, 3, 4, 5)
    np.testing.assert_allclose(converted, 0.2, rtol=1e-6)
    untouched = load(tmp_path / "a.npz", images=False).x
    assert untouched.shape == (2, 4, 5, 3)
    assert (untouched == 51).all()


def test_bytes_of_a_table_are_taken_as_they_are(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([[0, 1], [1, 1]], np.uint8), y=[0, 1])
    assert from_npz(tmp_path / "a.npz").x.tolist() == [[0.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("packed", [False, True])
def test_idx_pictures_are_numbers_up_to_one_channel_first(tmp_path, packed):
    end = ".gz" if packed else ""
    write_idx(tmp_path / f"t10k-images-idx3-ubyte{end}", PICTURES, packed=packed)
    write_idx(tmp_path / f"t10k-labels-idx1-ubyte{end}", np.array([1, 0]), packed=packed)
    made = load(tmp_path / f"t10k-images-idx3-ubyte{end}")
    np.testing.assert_allclose(made.x, PICTURES[:, None] / 255, rtol=1e-6)
    assert made.x.dtype == np.float32
    assert made.y.tolist() == [1, 0]
    assert made.name == "t10k"


def test_idx_labels_may_be_named(tmp_path):
    x = write_idx(tmp_path / "a-ubyte", PICTURES)
    y = write_idx(tmp_path / "b", np.array([1, 0]))
    assert from_idx(x, y).y.tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"cannot tell where the labels of a-ubyte are; say so with labels=\.\.\."):
        load(x)
    with pytest.raises(FileNotFoundError, match="expected a file of records, found none"):
        load(x, labels=tmp_path / "none")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\0\0\x08\x01" + b"\0\0\0\x02ab", "must hold idx pictures, magic 00000803, but begins '00000801'"),
        (b"\0\0\x0d\x03" + bytes(12), "magic 00000803, but begins '00000d03'"),
        (b"PNG!", "magic 00000803"),
        (b"\0\0\x08\x03\0\0", "magic 00000803"),
        (b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4) + bytes(23), "must hold 24 bytes of pictures, got 23"),
        (b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4) + bytes(25), "must hold 24 bytes of pictures, got 25"),
        (b"\x1f\x8b\x08", "is a broken .gz file"),
        (gzip.compress(bytes(100), mtime=0)[:-12], "is a broken .gz file"),
    ],
)
def test_idx_that_is_broken_is_refused(tmp_path, raw, says):
    (tmp_path / "a-images-ubyte").write_bytes(raw)
    with pytest.raises(ValueError, match=says):
        load(tmp_path / "a-images-ubyte")


@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 3), st.integers(5, 7), st.integers(5, 7), st.sampled_from([1, 3, 4])))
)
def test_channels_come_first_wherever_they_were(behind):
    before = np.moveaxis(behind, 3, 1)
    np.testing.assert_array_equal(pixels(behind), pixels(before))
    np.testing.assert_array_equal(np.round(pixels(behind) * 255), before)


@pytest.mark.parametrize("shape", [(2, 5, 5, 2), (5, 5), (1, 2, 3, 4, 5)])
def test_pixels_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="1, 3 or 4 channels"):
        pixels(np.zeros(shape, np.uint8))


def test_pixels_that_are_no_bytes_are_refused():
    with pytest.raises(TypeError, match="pixels must be bytes"):
        pixels(np.zeros((1, 2, 2)))
