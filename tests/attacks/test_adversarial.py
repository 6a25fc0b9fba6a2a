from __future__ import annotations

import numpy as np
import pytest
import torch
from contract.targets import lab
from torch import nn

from engram.access import Knowledge, Weights
from engram.attacks.adversarial import AdversarialConfidence, surety, worst
from engram.data import dataset
from engram.hopskipjump import box
from engram.population import Answering
from engram.seed import Seed


def plane(n=60, d=8, seed=0):
    """A linear model of two classes, and records about its boundary."""
    stream = np.random.default_rng(seed)
    x = stream.normal(size=(n, d)).astype(np.float32)
    w = stream.normal(size=d).astype(np.float32)
    model = nn.Linear(d, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(np.stack([-w, w]) / 2))
        model.bias.zero_()
    return x, stream.integers(0, 2, n), w, model


def test_the_worst_point_of_a_linear_model_is_a_corner_of_the_ball():
    """margin(x') = margin(x) - sum |w| radius of each column, where the range of the records does not cut the ball."""
    x, y, w, model = plane()
    radius, (low, high) = 0.05, box(torch.tensor(x))
    there = worst(model, torch.tensor(x), torch.tensor(y), radius, 10, low, high).numpy()
    far = radius * (x.max(0) - x.min(0))
    toward = -np.where(y == 1, 1, -1)[:, None] * np.sign(w)
    np.testing.assert_allclose(there, np.clip(x + far * toward, x.min(0), x.max(0)), atol=1e-5)


def test_no_point_leaves_the_ball_or_the_range():
    x, y, *_ = plane()
    x, (low, high) = torch.tensor(x), box(torch.tensor(x))
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    for steps in (1, 3, 20):
        there = worst(net, x, torch.tensor(y), 0.1, steps, low, high)
        assert ((there - x).abs() <= 0.1 * (high - low) + 1e-6).all()
        assert (there >= low).all()
        assert (there <= high).all()


def test_surety_ranks_like_the_confidence_and_keeps_its_digits():
    logits, y = 3 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 4
    p = logits.double().softmax(1)[torch.arange(50), y]
    np.testing.assert_allclose(surety(logits, y), torch.logit(p), rtol=1e-5)
    assert surety(torch.tensor([[60.0, 0.0]]), torch.tensor([0])) > surety(
        torch.tensor([[50.0, 0.0]]), torch.tensor([0])
    )


def test_it_sees_a_margin_that_the_record_itself_does_not_show():
    """Records alike in confidence, of which some lie by a steep slope: only the perturbation tells them apart."""
    steep = Steep()
    x = np.array([[1.0, 0.5], [1.0, -0.5], [-1.0, 0.5], [-1.0, -0.5]], np.float32)
    records = dataset(x, [0, 0, 0, 0], classes=("a", "b"))
    handle = Weights(records, Answering(steep), knowledge=Knowledge(), lab=lab())
    phi = AdversarialConfidence(radius=0.05, steps=4).least(handle)
    told = surety(steep(torch.tensor(x)), torch.zeros(4, dtype=torch.int64)).detach().numpy()
    np.testing.assert_allclose(told, told[0], atol=1e-5)
    assert phi[0] < phi[2] - 0.4
    assert (phi < told + 1e-6).all()


class Steep(nn.Module):
    """Class 0 leads by 1 at every record; the slope of the lead is 10 where the first number is positive, else 0.1."""

    def forward(self, x):
        slope = torch.where(x[:, 0] > 0, 10.0, 0.1)
        lead = 1 + slope * (x[:, 1].abs() - 0.5)
        return torch.stack([lead, torch.zeros_like(lead)], 1)


@pytest.mark.parametrize(("knob", "value"), [("radius", 0.0), ("steps", 0), ("shadows", 1)])
def test_senseless_knobs_are_refused(knob, value):
    with pytest.raises(ValueError, match=knob):
        AdversarialConfidence(**{knob: value})


def test_the_threshold_is_the_best_on_shadows():
    """Shadows whose members keep more: the claims of a target like them are right."""

    class Played(Weights):
        def played(self, shadows, play, *_, **__):  # noqa: ARG002
            member = np.arange(60)[None] % 2 == np.arange(2)[:, None]
            return np.where(member, 3.0, 1.0), member

    x, y, _, model = plane()
    handle = Played(dataset(x, y), Answering(model), knowledge=Knowledge(), lab=lab())
    attack = AdversarialConfidence(shadows=2)
    phi = attack.least(handle)
    whole, by_class = attack(handle, seed=Seed(0))
    np.testing.assert_array_equal(whole.claims, phi > 2.0)
    np.testing.assert_array_equal(by_class.claims, by_class.values > 0)
    np.testing.assert_allclose(by_class.values, phi - 2.0)
