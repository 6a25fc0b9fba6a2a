from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract.targets import LEARNED_BY_HEART, lab, leaky, noise

from engram.access import Probabilities
from engram.attacks.gap import Gap
from engram.attacks.thresholds import Confidence
from engram.data.fingerprints import fingerprint
from engram.defences import defence
from engram.defences.memguard import Classifier, Guarded, Level, chance, defence_classifier, drawn, moved
from engram.measure.ranks import ranked
from engram.measure.roc import auc
from engram.seed import Seed
from engram.signals import shown


def answers(records=200, classes=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(4 * torch.randn(records, classes, generator=generator, dtype=torch.float64), -1)


@pytest.fixture(scope="module")
def weights():
    """A defence classifier that says member where the largest probability is high."""
    data = noise(120)
    return defence_classifier(replace(LEARNED_BY_HEART, epochs=30), data, seed=Seed(3), epochs=30)


def test_a_level_answer_is_the_papers():
    told = Level(0.001)(torch.tensor([[0.2, 0.7, 0.1]], dtype=torch.float64))
    off = 1 / 3 - 0.001 / 2
    torch.testing.assert_close(told, torch.tensor([[off, 1 / 3 + 0.001, off]], dtype=torch.float64))


def test_a_level_answer_depends_on_the_label_alone():
    p = answers()
    told = Level(0.001)(p)
    assert torch.equal(shown(told), shown(p))
    assert len(told.unique(dim=0)) == 5
    torch.testing.assert_close(told.sum(-1), torch.ones(200, dtype=torch.float64))


def area(attack, target, shared):
    said = attack(target.handle(attack.asks, shared), seed=Seed(0))
    said = said[0] if isinstance(said, list) else said
    return auc(ranked(said.values, target.member[said.ids]))


def test_behind_it_confidence_is_worth_what_the_label_is_worth():
    """The gap attack does not notice it; before it, confidences were worth more."""
    target = leaky()
    hidden = replace(target, recipe=defence("memguard")(target.recipe))
    shared, gap = lab(), area(Gap(), target, lab())
    assert area(Gap(), hidden, shared) == gap
    assert area(Confidence(shadows=4), hidden, shared) == pytest.approx(gap, abs=1e-12)
    assert area(Confidence(shadows=4), target, shared) > gap + 0.01


def test_noise_takes_an_answer_across_the_border_and_keeps_its_label(weights):
    p = torch.cat([answers(classes=4), answers(classes=4, seed=1)])
    classifier = Classifier(weights, p)
    found = moved(p, classifier, 300)
    with torch.no_grad():
        before, after = classifier(p.log()), classifier(found.log())
    assert torch.equal(shown(found), shown(p))
    touched = (found != p).any(-1)
    assert (before[touched] * after[touched] <= 0).all()
    assert torch.equal(found[~touched], p[~touched])
    assert touched.double().mean() > 0.3
    torch.testing.assert_close(found.sum(-1), torch.ones(400, dtype=torch.float64))


def literal(p, h, steps=300):
    """Algorithm 1 for one answer, as it is printed; c3 ends where ours does."""
    z = p.log()
    label, best = int(z.argmax()), torch.zeros_like(z)
    for c3 in (0.1, 1.0, 10.0, 100.0):
        e, done = torch.zeros_like(z), False
        for _ in range(steps):
            e = e.requires_grad_()
            moved_z = z + e
            highest = max(moved_z[j] for j in range(len(p)) if j != label)
            loss = h(moved_z[None])[0].abs() + 10 * torch.relu(highest - moved_z[label])
            loss = loss + c3 * (torch.softmax(moved_z, -1) - torch.softmax(z, -1)).abs().sum()
            (slope,) = torch.autograd.grad(loss, e)
            e = (e - 0.1 * slope / slope.norm()).detach()
            if int((z + e).argmax()) == label and h((z + e)[None]) * h(z[None]) <= 0:
                done = True
                break
        if not done:
            break
        best = e
    return torch.softmax(z + best, -1).detach() if best.any() else p


def sure_of_the_first(z):
    """Log-odds that can only change sign near, or beyond, the border where another class takes over."""
    return 10 * (z.softmax(-1)[:, 0] - 0.4)


def test_many_answers_at_once_are_each_moved_as_the_paper_moves_one(weights):
    p = answers(12, classes=4, seed=2)
    for h in (Classifier(weights, p), sure_of_the_first):
        by_hand = torch.stack([literal(row, h, 60) for row in p])
        torch.testing.assert_close(moved(p, h, 60), by_hand, rtol=1e-9, atol=1e-9)
        assert not torch.equal(by_hand, p)


def test_a_label_is_kept_where_nothing_but_its_loss_would_help():
    p = torch.tensor([[0.8, 0.15, 0.05]], dtype=torch.float64)
    found = moved(p, lambda z: 10 * (z.softmax(-1)[:, 0] - 0.3), 200)
    assert torch.equal(found, p)  # a class with less than a third is not the label


def test_noise_that_does_not_help_is_never_added():
    p = torch.tensor([[0.7, 0.3], [0.6, 0.4]], dtype=torch.float64)
    assert not chance(p, p, lambda z: z[:, 0], 1.0).any()
    assert not chance(p, p.flip(1), lambda z: (z[:, 0] - z[:, 1]).abs(), 1.0).any()  # as telling as before
    assert chance(p, p * 0 + 0.5, lambda z: z[:, 0] - z[:, 1], 1.0).all()


def test_the_expected_distortion_is_bounded(weights):
    p = answers(400, classes=4)
    classifier = Classifier(weights, p)
    found = moved(p, classifier, 300)
    for budget in (0.05, 0.5):
        often = chance(p, found, classifier, budget)
        assert ((found - p).abs().sum(-1) * often <= budget + 1e-12).all()
        assert (often <= 1).all()
    assert (often > 0).any()


def test_an_answer_is_the_same_each_time_and_in_any_company(weights):
    p = answers(60, classes=4)
    mask = Guarded(weights, 0.3, 50)
    whole = mask(p)
    assert torch.equal(whole, mask(p))
    torch.testing.assert_close(mask(p[17:40]), whole[17:40], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mask(p.view(3, 20, 4)), whole.view(3, 20, 4), rtol=1e-9, atol=1e-9)


def test_what_decides_looks_uniform():
    told = drawn(answers(20_000)).numpy()
    assert np.histogram(told, 10, (0, 1))[0].max() < 2000 + 5 * 2000**0.5
    assert abs(told.mean() - 0.5) < 0.01


def test_the_classifier_tells_less_behind_it(weights):
    """On answers of the models that it learned from: the leak it sees is gone, and that of the labels stays."""
    target = leaky()
    handle = target.handle(Probabilities, lab())
    p = torch.as_tensor(handle.probabilities(target.records.x))
    classifier = Classifier(weights, p)
    with torch.no_grad():
        told = [classifier(a.clamp_min(1e-300).log()).sigmoid() for a in (p, Guarded(weights, 2.0, 300)(p))]
    assert (told[0] - 0.5).abs().mean() > 2 * (told[1] - 0.5).abs().mean()


def test_the_recipe_carries_the_classifier(weights, tmp_path):
    torch.save(weights, tmp_path / "guard.pt")
    knobs = {"classifier": str(tmp_path / "guard.pt")}
    recipe = defence("memguard-optimised", knobs)(LEARNED_BY_HEART)
    assert fingerprint(recipe) == fingerprint(defence("memguard-optimised", knobs)(LEARNED_BY_HEART))
    torch.save({k: w + 1 for k, w in weights.items()}, tmp_path / "guard.pt")
    assert fingerprint(recipe) != fingerprint(defence("memguard-optimised", knobs)(LEARNED_BY_HEART))


@pytest.mark.parametrize(
    ("name", "knobs", "told"),
    [
        ("memguard", {"margin": 0.0}, "margin must lie in"),
        ("memguard-optimised", {}, "needs a file of a defence classifier's weights, got none; make one"),
        ("memguard-optimised", {"classifier": "x", "distortion": 0.0}, "distortion must be positive"),
    ],
)
def test_senseless_knobs_are_refused(name, knobs, told):
    with pytest.raises(ValueError, match=told):
        defence(name, knobs)(LEARNED_BY_HEART)
