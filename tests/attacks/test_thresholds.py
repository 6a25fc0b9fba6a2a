from __future__ import annotations

import numpy as np
import pytest

from engram.access import Knowledge, Lab, Labels, Probabilities
from engram.attacks.gap import Gap
from engram.attacks.thresholds import Confidence, Entropy, LargestConfidence, ModifiedEntropy
from engram.data import dataset
from engram.population import Population, paired
from engram.seed import Seed
from engram.signals import STANDARD, doubt


class Recorded(Probabilities, Labels):
    """A handle whose shadows are given, so that nothing is trained."""

    shadow: Population

    def population(self, *_, **__):
        return self.shadow


def handle(p, shadow_p, member, y):
    import torch

    records = dataset(np.arange(len(y), dtype=np.float32)[:, None], y)
    made = Recorded(records, lambda x: p[x[:, 0].long()], knowledge=Knowledge(), lab=Lab(Seed(0), None))
    labels = torch.as_tensor(y)
    made.shadow = Population(member, {s.__name__: s(shadow_p, labels).numpy()[:, None] for s in STANDARD.values()})
    return made


@pytest.fixture
def made():
    """Members are surer by a lot in class 1 and by a little in class 0, where all are surer to begin with."""
    import torch

    generator = torch.Generator().manual_seed(3)
    member = paired(10, 80, Seed(1))
    y = np.arange(80) % 2
    lift = torch.as_tensor(member) * torch.as_tensor(np.where(y == 1, 2.0, 1.0)) + torch.as_tensor(
        np.where(y == 0, 3.0, 0.0)
    )
    logits = torch.randn(10, 80, generator=generator, dtype=torch.float64) * 0.5 + lift
    right = torch.sigmoid(logits)
    p = torch.stack([torch.where(torch.as_tensor(y) == k, right, 1 - right) for k in (0, 1)], -1)
    return handle(p[0], p[2:], member[2:], y), member[0], y


@pytest.mark.parametrize("attack", [Confidence(), Entropy(), LargestConfidence(), ModifiedEntropy()])
def test_members_score_higher_and_classes_help(attack, made):
    target, member, _ = made
    whole, by_class = attack(target, seed=Seed(0))
    assert whole.values[member].mean() > whole.values[~member].mean()
    right = [(e.claims == member).mean() for e in (whole, by_class)]
    assert right[1] > right[0]


def test_the_largest_confidence_is_that_of_any_label(made):
    """A wrong label that is answered for sure counts like a right one, and the order is that of the largest number."""
    import torch

    p = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.4, 0.6], [0.5, 0.5]], dtype=torch.float64)
    np.testing.assert_allclose(doubt(p, torch.zeros(4, dtype=torch.int64)), [0.1, 0.1, 0.4, 0.5])
    assert float(doubt(torch.tensor([[1 - 1e-12, 1e-25]], dtype=torch.float64), torch.tensor([0]))) == 1e-25
    target, *_ = made
    turned = handle(
        target._answer(torch.arange(80.0)[:, None]).flip(1), torch.ones(8, 80, 2) / 2, target.shadow.member, made[2]
    )
    before, after = (LargestConfidence()(t, seed=Seed(0))[0].values for t in (target, turned))
    np.testing.assert_allclose(before, after)


def test_the_threshold_is_the_best_one_on_shadows_by_exhaustion(made):
    from oracles.membership import best_balanced_accuracy

    target, _, _ = made
    whole, _ = Confidence()(target, seed=Seed(0))
    told, member = -target.shadow.signals["loss"][:, 0].ravel(), target.shadow.member.ravel()
    threshold = (whole.values[whole.claims].min() + whole.values[~whole.claims].max()) / 2
    reached = ((told > threshold)[member].mean() + (told <= threshold)[~member].mean()) / 2
    assert reached == pytest.approx(best_balanced_accuracy(told, member), abs=0.01)


def test_modified_entropy_counts_a_confident_mistake_and_entropy_does_not(made):
    target, _, y = made
    import torch

    sure = torch.zeros(80, 2, dtype=torch.float64) + 1e-6
    sure[torch.arange(80), torch.as_tensor(1 - y)] = 1 - 1e-6  # sure, and wrong
    target._answer = lambda x: sure[x[:, 0].long()]
    assert Entropy()(target, seed=Seed(0))[0].claims.all()
    assert not ModifiedEntropy()(target, seed=Seed(0))[0].claims.any()


def test_gap_claims_what_is_right(made):
    target, _, y = made
    said = Gap()(target, seed=Seed(0))
    np.testing.assert_array_equal(said.claims, target.labels(target.records.x) == y)
    np.testing.assert_array_equal(said.values, said.claims.astype(float))
