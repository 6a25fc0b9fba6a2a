from __future__ import annotations

import base64
import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from engram.report.memory import CELL, EMPTY, FULL, histogram, parameter_map


def pixels(image):
    """The cells of an <image>, [row, column, channel]"""
    data = base64.b64decode(image.get("href").partition(",")[2])
    columns, rows = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT")
    body = zlib.decompress(data[start + 4 : start + 4 + struct.unpack(">I", data[start - 4 : start])[0]])
    return np.frombuffer(body, np.uint8).reshape(rows, 1 + 3 * columns)[:, 1:].reshape(rows, columns, 3)[::CELL, ::CELL]


def test_each_tensor_is_a_map_with_a_row_for_each_unit():
    weight, bias = np.zeros((2, 3)), np.zeros(2)
    weight[1, 2], bias[0] = 4.0, 2.0
    drawn = ElementTree.fromstring(parameter_map({"1.weight": weight, "1.bias": bias}))
    first, second = (pixels(image) for image in drawn.iter("{http://www.w3.org/2000/svg}image"))
    assert first.shape == (2, 3, 3)
    assert tuple(first[1, 2]) == FULL
    assert tuple(first[0, 0]) == EMPTY
    half = (np.array(EMPTY) + np.array(FULL)) / 2
    np.testing.assert_allclose(second[0, 0], half, atol=1)
    assert "1.weight, 2 x 3" in [t.text for t in drawn.iter("{http://www.w3.org/2000/svg}text")]


def test_a_map_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no parameter is of any importance"):
        parameter_map({"w": np.zeros((2, 2))})


def test_bars_are_as_high_as_what_was_counted():
    drawn = ElementTree.fromstring(histogram(np.array([0.0, 2.0, 4.0]), "rows", "records"))
    (path,) = drawn.iter("{http://www.w3.org/2000/svg}path")
    heights = [float(point.split()[1]) for point in path.get("d")[1:].split("L")]
    bottom, top = max(heights), min(heights)
    assert {round((bottom - h) / (bottom - top), 3) for h in heights} == {0.0, 0.5, 1.0}
    with pytest.raises(ValueError, match="nothing was counted"):
        histogram(np.zeros(3), "rows", "records")
