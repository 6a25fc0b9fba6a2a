from __future__ import annotations

import pytest
import torch
from gradients import batch, seen

from engram.defences import defence
from engram.models import MLP
from engram.seed import Seed
from engram.train import Recipe
from engram.train.sharing import passed

RECIPE = Recipe(MLP(inputs=12, classes=5, width=16))
SHARING = ("clipped-sharing", "gaussian-sharing", "half-sharing", "int8-sharing", "laplace-sharing", "pruned-sharing")


def after(name, tensors, knobs=None):
    return passed(defence(name, knobs)(RECIPE), tensors, Seed(0))


@pytest.mark.parametrize("name", ["gaussian-sharing", "laplace-sharing"])
def test_noise_has_the_deviation_it_is_given(name):
    """Of a million draws the deviation is known to half a percent at five sigma of the heavier tail."""
    (noise,) = after(name, [torch.zeros(1_000_000, dtype=torch.float64)], {"deviation": 0.3})
    assert noise.std().item() == pytest.approx(0.3, rel=6e-3)
    assert noise.mean().item() == pytest.approx(0, abs=2e-3)


def test_laplace_noise_has_its_tail():
    """P(|x| > t) = exp(-sqrt(2) t / deviation); a Gaussian has less than half of it at 2.5 deviations."""
    (noise,) = after("laplace-sharing", [torch.zeros(1_000_000, dtype=torch.float64)], {"deviation": 1.0})
    assert (noise.abs() > 2.5).double().mean().item() == pytest.approx(0.02914, rel=0.05)


def test_laplace_noise_is_finite_however_often_it_is_drawn():
    """The inverse of the distribution function is not: a uniform draw in float32 is zero once in 2^24."""
    for noise in after("laplace-sharing", [torch.zeros(2**24)] * 4):
        assert torch.isfinite(noise).all()


def test_pruning_zeroes_the_smallest_of_each_tensor():
    told = after("pruned-sharing", [torch.tensor([3.0, -1.0, 2.0, 0.5]), torch.tensor([[1e-9, 1.0]])], {"share": 0.5})
    assert told[0].tolist() == [3.0, 0.0, 2.0, 0.0]
    assert told[1].tolist() == [[0.0, 1.0]]


def test_int8_leaves_at_most_255_values_a_half_step_away():
    t = torch.randn(10_000, dtype=torch.float64)
    (told,) = after("int8-sharing", [t])
    assert len(told.unique()) <= 255
    assert (told - t).abs().max() <= t.abs().max() / 254 + 1e-12


def test_half_keeps_eleven_bits_and_stays_finite():
    t = torch.tensor([1.0, 1 / 3, 1e9, -1e9], dtype=torch.float64)
    (told,) = after("half-sharing", [t])
    assert told[1].item() == pytest.approx(1 / 3, rel=2**-11)
    assert torch.isfinite(told).all()


def test_clipping_shortens_the_whole_update_and_never_lengthens_it():
    knobs = {"clip_norm": 1.0, "noise_multiplier": 1e-9}
    long = after("clipped-sharing", [torch.full((3,), 3.0), torch.full((4,), 4.0)], knobs)
    assert torch.cat(long).norm().item() == pytest.approx(1, abs=1e-6)
    (short,) = after("clipped-sharing", [torch.full((4,), 0.1)], knobs)
    torch.testing.assert_close(short, torch.full((4,), 0.1))


@pytest.mark.parametrize("name", SHARING)
def test_the_adversary_sees_the_altered_update_and_the_true_batch_no_longer_explains_it(name):
    records = batch()
    x, y = torch.as_tensor(records.x), torch.as_tensor(records.y)
    assert seen(defence(name)(RECIPE), records).unexplained(x, y) > 1e-5
    assert seen(RECIPE, records).unexplained(x, y) < 1e-12


@pytest.mark.parametrize(
    ("name", "knobs", "told"),
    [
        ("gaussian-sharing", {"deviation": 0.0}, "deviation must be positive"),
        ("pruned-sharing", {"share": 1.0}, r"share must lie in \(0, 1\)"),
        ("clipped-sharing", {"clip_norm": -1.0}, "clip_norm must be positive"),
    ],
)
def test_senseless_knobs_are_refused(name, knobs, told):
    with pytest.raises(ValueError, match=told):
        defence(name, knobs)(RECIPE)
