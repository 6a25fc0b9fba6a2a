from __future__ import annotations

import pytest
import torch

from engram.train.augment import Flipped, Shifted


def pictures(*lead):
    return torch.rand(*lead, 2, 6, 5, generator=torch.Generator().manual_seed(0)) + 1


@pytest.mark.parametrize("lead", [(40,), (3, 40)], ids=["records", "models and records"])
def test_an_image_is_shifted_whole_and_zeros_move_in(lead):
    x = pictures(*lead)
    moved = Shifted(2)(x)
    assert moved.shape == x.shape
    for before, after in zip(x.reshape(-1, 2, 6, 5), moved.reshape(-1, 2, 6, 5), strict=True):
        padded = torch.nn.functional.pad(before, [2] * 4)
        windows = [padded[:, r : r + 6, c : c + 5] for r in range(5) for c in range(5)]
        assert sum(torch.equal(after, w) for w in windows) == 1


def test_each_image_draws_for_itself():
    one = pictures(1).expand(200, 2, 6, 5)
    assert len({tuple(m.flatten().tolist()) for m in Shifted(2)(one)}) == 25  # all 25 places, in 200 draws
    turned = (Flipped()(one) == one.flip(-1)).all((1, 2, 3)).sum()
    assert 60 < turned < 140  # a fair coin leaves this range once in 10^8


def test_none_or_all_are_flipped():
    x = pictures(7)
    assert torch.equal(Flipped(0.0)(x), x)
    assert torch.equal(Flipped(1.0)(x), x.flip(-1))


def test_no_shift_at_all_is_refused():
    with pytest.raises(ValueError, match="pixels must be at least 1"):
        Shifted(0)
    with pytest.raises(ValueError, match="share must lie in"):
        Flipped(1.5)
