from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from engram.moved import copies, rotated, shifted, shifts


@pytest.fixture
def images():
    return torch.tensor(np.random.default_rng(0).random((3, 2, 9, 9)).astype(np.float32))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_shifts_are_no_shift_and_the_ring(d):
    told = shifts(d)
    assert told[0] == (0, 0)
    assert len(told) == len(set(told)) == 4 * d + 1
    assert all(abs(i) + abs(j) == d for i, j in told[1:])


def test_a_shift_is_that_of_scipy(images):
    for by in shifts(2):
        expected = ndimage.shift(images.numpy(), (0, 0, *by), order=1, mode="nearest")
        np.testing.assert_allclose(shifted(images, *by), expected, atol=1e-6)


def test_a_quarter_turn_rearranges(images):
    np.testing.assert_allclose(rotated(images, 90), torch.rot90(images, 1, (2, 3)), atol=1e-5)
    np.testing.assert_allclose(rotated(images, -90), torch.rot90(images, -1, (2, 3)), atol=1e-5)


@pytest.mark.parametrize("degrees", [-7, 3, 15])
def test_a_small_turn_is_that_of_scipy(images, degrees):
    """Inside, where both have the four neighbours of every point."""
    expected = ndimage.rotate(images.numpy(), degrees, axes=(2, 3), reshape=False, order=1)
    inside = (..., slice(2, -2), slice(2, -2))
    np.testing.assert_allclose(rotated(images, degrees)[inside], expected[inside], atol=1e-5)


def test_the_original_comes_first(images):
    for how in ({"rotation": 5}, {"translation": 2}):
        assert torch.equal(copies(images, **how)[0], images)
    assert [len(copies(images, **how)) for how in ({"rotation": 5}, {"translation": 2}, {})] == [3, 9, 1]
