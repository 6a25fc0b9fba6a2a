from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from engram.report.alone import Series, lines


def ends(text):
    """The last point of each line, in the units of the page."""
    paths = ElementTree.fromstring(text).findall("{*}path")
    return [tuple(map(float, path.get("d").rsplit("L", 1)[-1].split())) for path in paths]


def marks(text):
    return [t.text for t in ElementTree.fromstring(text).findall("{*}text") if t.get("class") == "mark"]


def test_equal_factors_are_equally_far_apart_on_logarithmic_axes():
    text = lines([Series(f"to {y}", [1, 100], [1, y]) for y in (10, 100, 1000)], "x", "y", log=True)
    (_, a), (_, b), (_, c) = ends(text)
    assert a - b == pytest.approx(b - c, abs=0.02)
    assert {"1", "10", "100", "1000"} <= set(marks(text))


def test_equal_steps_are_equally_far_apart_otherwise():
    (_, a), (_, b), (_, c) = ends(lines([Series(f"to {y}", [0, 1], [0, y]) for y in (1, 2, 3)], "x", "y"))
    assert a - b == pytest.approx(b - c, abs=0.02)


def test_what_has_no_place_is_left_out():
    text = lines([Series("a", [0, 1, 2], [1.0, 2.0, 3.0]), Series("b", [1, 2], [math.inf, 5.0])], "x", "y", log=True)
    first, second = ElementTree.fromstring(text).findall("{*}path")
    assert first.get("d").count("L") == 1  # 0 has no logarithm
    assert "L" not in second.get("d")
    with pytest.raises(ValueError, match="nothing to draw"):
        lines([Series("a", [0], [math.inf])], "x", "y")


def test_lines_differ_in_colour_or_in_dashes():
    text = lines([Series(str(i), [1, 2], [1, 2]) for i in range(12)], "x", "y")
    looks = [(p.get("class"), p.get("stroke-dasharray")) for p in ElementTree.fromstring(text).findall("{*}path")]
    assert len(set(looks)) == 12
