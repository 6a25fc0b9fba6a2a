from __future__ import annotations

import numpy as np
import pytest
import torch
from contract.targets import lab
from scipy.stats import norm

from engram.access import Knowledge, Labels
from engram.attacks.noise import disturbance, robust
from engram.data import dataset
from engram.seed import Seed


def table(n=400):
    stream = np.random.default_rng(0)
    continuous = stream.normal(size=(n, 3)) * (1, 10, 0.1)
    return torch.tensor(np.concatenate([continuous, stream.integers(0, 2, (n, 5))], 1).astype(np.float32))


def test_columns_of_two_values_are_flipped_and_others_get_noise_of_their_spread():
    x = table()
    stream = torch.Generator().manual_seed(0)
    moved = torch.stack([disturbance(x)(x, 0.4, stream) for _ in range(600)])
    assert set(moved[..., 3:].unique().tolist()) == {0.0, 1.0}
    flips = (moved[..., 3:] != x[:, 3:]).float().mean((0, 1))
    np.testing.assert_allclose(flips, 0.1, atol=4 * np.sqrt(0.09 / 600))
    inner = (x[:, :3] - x[:, :3].mean(0)).abs().div(x[:, :3].std(0)).amax(1) < 1  # far from the ends of the range
    size = (moved - x)[:, inner, :3].std((0, 1)) / x[:, :3].std(0)
    np.testing.assert_allclose(size, 0.4, rtol=0.12)
    assert (moved >= x.amin(0)).all()
    assert (moved <= x.amax(0)).all()


def test_pixels_are_never_taken_for_columns_of_two_values():
    x = table()[:, 3:].view(-1, 1, 1, 5)
    moved = disturbance(x)(x, 0.2, torch.Generator().manual_seed(0))
    assert len(moved.unique()) > 2


@pytest.mark.parametrize("strength", [0.2, 1.0])
def test_the_share_kept_is_that_of_the_normal_law(strength):
    """One continuous column, answered by its sign: a copy keeps its label with probability Phi(|x| / (strength s))."""
    stream = np.random.default_rng(1)
    x = np.concatenate([stream.normal(size=200), [-50, 50]]).astype(np.float32)[:, None]
    records = dataset(x, (x[:, 0] > 0).astype(int))

    def answer(q):
        return torch.nn.functional.one_hot((q[:, 0] > 0).long(), 2).double()

    handle = Labels(records, answer, knowledge=Knowledge(), lab=lab())
    found = robust(handle, disturbance(handle.numbers()), strength, 2000, Seed(0))
    exact = norm.cdf(np.abs(x[:, 0]) / (strength * x.std(ddof=1)))
    np.testing.assert_allclose(found, exact, atol=4.5 * 0.5 / np.sqrt(2000))
    assert handle.queries == 2000 * len(x)
