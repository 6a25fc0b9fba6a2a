from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from attacks.matrices import drawn
from contract.targets import lab, leaky, noise
from oracles.membership import softmin_threshold
from torch import nn

from engram.access import Knowledge, Probabilities, Unknown, Weights
from engram.attacks.calibrated import CalibratedLoss, CalibratedTaylor, fall, mean_without, threshold
from engram.attacks.learned import (
    SAMIA,
    Learned,
    Nudged,
    Trees,
    described,
    in_order,
    learned,
    posterior_and_label,
    sensitivity,
    top_three,
)  # fmt: skip
from engram.data import dataset
from engram.measure.ranks import ranked
from engram.measure.roc import auc
from engram.models.opponents import AnswerNet, TokenNet
from engram.population import Population, paired
from engram.seed import Seed
from engram.signals import log_posterior, loss, margin
from engram.train import SGD, Batches, Drops, FullBatch, Recipe


def answers(models=3, records=5, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(3 * torch.randn(models, records, classes, generator=generator, dtype=torch.float64), -1)


def test_a_whole_answer_keeps_its_digits_where_the_model_is_sure():
    p = torch.tensor([[1e-30, 1.0 - 1e-12, 1e-12]], dtype=torch.float64)
    told = log_posterior(p, torch.tensor([1])).double()
    assert log_posterior(p, torch.tensor([1])).dtype == torch.float32
    torch.testing.assert_close(told, p.log(), rtol=1e-6, atol=1e-15)
    assert torch.isfinite(log_posterior(torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.tensor([1]))).all()


def test_ways_of_seeing_by_hand():
    log_p, y = np.log([[0.1, 0.2, 0.6, 0.1], [0.7, 0.05, 0.05, 0.2]]), np.array([1, 0])
    np.testing.assert_allclose(top_three(log_p, y), [[0.6, 0.2, 0.1], [0.7, 0.2, 0.05]])
    np.testing.assert_allclose(posterior_and_label(log_p, y)[0], [0.1, 0.2, 0.6, 0.1, 0, 1, 0, 0])
    told = described(log_p, y)
    np.testing.assert_allclose(told[0], [*np.log([0.6, 0.2, 0.1, 0.1]), np.log(0.2), np.log(0.2 / 0.8)])


def test_what_trees_see_of_the_label_is_its_margin():
    p, y = answers(), torch.tensor([0, 1, 2, 3, 1])
    told = described(log_posterior(p, y).numpy(), y.numpy())
    np.testing.assert_allclose(told[..., -1], margin(p, y).numpy(), rtol=1e-4)


def test_sensitivity_is_the_mean_length_of_the_finite_differences():
    p = answers(4, 6).numpy()  # the record as it is, and three nudges
    by_hand = [[sum(abs(p[k, r, c] - p[0, r, c]) / 0.01 for k in (1, 2, 3)) / 3 for c in range(4)] for r in range(6)]
    np.testing.assert_allclose(sensitivity(p, 0.01), by_hand)


def test_the_sensitivity_of_a_linear_model_is_known():
    """|p(x + e u) - p(x)| / e tends to |J u|, and its mean over normal u to sqrt(2 / pi) times the rows' lengths."""
    x = torch.randn(6, 12, generator=torch.Generator().manual_seed(0))
    w = torch.linspace(-1, 1, 36, dtype=torch.float64).view(3, 12)
    views = [x, *(Nudged(Seed(1).child(k), 1e-3)(x) for k in range(4000))]
    told = sensitivity(np.stack([(v.double() @ w.T).numpy() for v in views]), 1e-3)
    np.testing.assert_allclose(told, np.broadcast_to((2 / np.pi) ** 0.5 * w.norm(dim=1), (6, 3)), rtol=0.05)


def test_a_nudge_is_the_same_for_every_record_and_block():
    x = torch.zeros(8, 1, 4, 4)
    moved = Nudged(Seed(0), 0.5)(x)
    assert torch.equal(moved[:3], Nudged(Seed(0), 0.5)(x[:3]))
    assert torch.equal(moved[0], moved[7])
    assert not torch.equal(moved, Nudged(Seed(1), 0.5)(x))


def test_samia_lays_out_answer_sensitivity_and_label():
    p, y = answers(3, 5), np.array([0, 1, 2, 3, 1])
    told = SAMIA(size=0.1).features(p.log().numpy(), y)  # [view, record, class]
    assert told.shape == (5, 3, 4)
    np.testing.assert_allclose(told[:, 0], p[0].numpy())
    np.testing.assert_allclose(told[:, 1], sensitivity(p.numpy(), 0.1))
    np.testing.assert_array_equal(told[:, 2], np.eye(4)[y])


def test_a_token_is_one_class():
    """Without its norm and head, the network turns each class's three numbers into a token, whatever the others are."""
    net = TokenNet(classes=5, depth=1)().eval()
    x = torch.randn(2, 3, 5)
    seen = []
    net.embed.register_forward_hook(lambda _m, given, _o: seen.append(given[0]))
    net(x)
    torch.testing.assert_close(seen[0], x.mT / (1 + net.norm.eps) ** 0.5)


def test_networks_are_those_of_the_papers():
    linear = [m for m in AnswerNet(10)().modules() if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(10, 512), (512, 256), (256, 128), (128, 2)]
    assert [m.p for m in AnswerNet(10)().modules() if isinstance(m, nn.Dropout)] == [0.2, 0.2]
    net = TokenNet(7)()
    assert len(net.encoder.layers) == 3
    assert net.encoder.layers[0].linear1.out_features == 128
    assert net.head[1].in_features == 64 * 7


def test_rates_drop_at_half_and_at_three_quarters():
    assert [Drops()(t) for t in (0.0, 0.49, 0.5, 0.74, 0.75, 0.99)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_rows_have_an_order_of_their_own():
    stream = np.random.default_rng(0)
    rows, member = stream.integers(0, 3, (4, 30, 2)).astype(float), stream.random((4, 30)) < 0.5
    turn = stream.permutation(30)
    for a, b in zip(in_order(rows, member), in_order(rows[:, turn], member[:, turn]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert in_order(rows, member)[1].sum() == member.sum()


def separated(models, records, leak, seed=0):
    """Features of which the first moves with membership."""
    stream = np.random.default_rng(seed)
    member = paired(models, records, Seed(seed))
    rows = stream.normal(size=(models, records, 3))
    rows[..., 0] += leak * member
    return rows, member


@pytest.mark.parametrize(("leak", "low", "high"), [(2.0, 0.85, 1.0), (0.0, 0.4, 0.6)])
def test_a_network_learns_what_there_is_and_nothing_where_there_is_nothing(leak, low, high):
    rows, member = separated(7 + 1, 129, leak)
    recipe = Recipe(AnswerNet(3, (16, 8), 0.0), 6, SGD(0.05, momentum=0.9), Batches(128))
    odds = learned(recipe, rows[1:4], member[1:4], Seed(0))(rows[0])
    assert low <= auc(ranked(odds, member[0])) <= high


def test_odds_are_those_of_a_logistic_regression_in_the_limit():
    """One linear layer, trained to its end, agrees with Newton's method."""
    rows, member = separated(4, 100, 1.0)
    recipe = Recipe(Logistic(), 800, SGD(1.0), FullBatch())
    odds = learned(recipe, rows, member, Seed(0))(rows[0])
    x, t = np.concatenate([rows.reshape(-1, 3), np.ones((400, 1))], 1), member.ravel()
    w = np.zeros(4)
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ w))
        w += np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (t - p))
    np.testing.assert_allclose(odds, rows[0] @ w[:3] + w[3], atol=1e-3)


class Logistic:
    def __call__(self):
        return nn.Linear(3, 2)


def test_trees_rank_members_higher_and_find_nothing_in_noise():
    y = np.arange(200) % 4
    for leak, (low, high) in ((3.0, (0.8, 1.0)), (0.0, (0.4, 0.6))):
        stream = np.random.default_rng(1)
        member = paired(8, 200, Seed(1))
        logits = stream.normal(size=(8, 200, 4)) + leak * member[..., None] * np.eye(4)[y]
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        shadow = Population(member[1:], {"log_posterior": log_p[1:, None]})
        odds = Trees().scored(log_p[0][None], shadow, y, Seed(0))
        assert low <= auc(ranked(odds, member[0])) <= high


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0, np.inf])
def test_each_record_has_the_threshold_of_the_paper(temperature):
    phi, _, shadow = drawn(loss)
    told = threshold(shadow.of(loss)[:, 0], ~shadow.member, temperature)
    np.testing.assert_allclose(told, softmin_threshold(shadow.of(loss)[:, 0], shadow.member, temperature))
    scores = CalibratedLoss(temperature=temperature).scored(phi, shadow)
    np.testing.assert_allclose(scores, told - phi[0])


def test_a_threshold_of_its_own_beats_one_for_all_where_records_differ_in_hardness():
    phi, member, shadow = drawn(loss, records=400, leak=-1.5)
    own = auc(ranked(CalibratedLoss(temperature=np.inf).scored(phi, shadow), member))
    assert own > auc(ranked(-phi[0], member)) + 0.1


def test_the_fall_of_a_loss_is_that_of_finite_differences():
    made = [nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double() for _ in range(2)]
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.arange(7) % 3

    def at(share):
        net = copy.deepcopy(made[0])
        with torch.no_grad():
            for p, a, b in zip(net.parameters(), made[0].parameters(), made[1].parameters(), strict=True):
                p.copy_(a + share * (b - a))
            return nn.functional.cross_entropy(net(x), y, reduction="none").numpy()

    np.testing.assert_allclose(fall(*made, x, y), (at(-1e-6) - at(1e-6)) / 2e-6, rtol=1e-6, atol=1e-8)


def test_the_fall_of_a_linear_loss_is_the_difference_of_the_losses():
    """One step of descent lowers the losses of the records it was taken on: to first order by what they gave to it."""
    about, to = nn.Linear(4, 2), nn.Linear(4, 2)
    x, y = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    to.load_state_dict(about.state_dict())
    slope = torch.autograd.grad(nn.functional.cross_entropy(to(x[:10]), y[:10], reduction="sum"), list(to.parameters()))
    with torch.no_grad():
        for p, g in zip(to.parameters(), slope, strict=True):
            p -= 0.01 * g
    told = fall(about, to, x, y)
    assert told[:10].sum() == pytest.approx(0.01 * sum(float((g * g).sum()) for g in slope), rel=1e-4)
    assert told[:10].mean() > told[10:].mean()


def test_only_shadows_without_the_record_have_a_say():
    told, member = np.array([[1.0, 5.0], [3.0, 7.0], [8.0, 9.0]]), np.array([[1, 0], [0, 0], [0, 1]], bool)
    np.testing.assert_allclose(mean_without(told, member), [5.5, 6.0])


def test_models_that_start_anew_each_are_too_far_apart_to_expand():
    target = dataclasses.replace(leaky(), access=Weights)
    with pytest.raises(Unknown, match="draws the start of each anew"):
        CalibratedTaylor(shadows=4)(target.handle(Weights, lab()), seed=Seed(0))


def test_tokens_cannot_be_nudged():
    records = dataset(np.random.default_rng(0).integers(0, 5, (20, 3)), np.arange(20) % 2)
    target = Probabilities(records, None, knowledge=Knowledge(leaky().recipe), lab=lab())
    with pytest.raises(Unknown, match="samia nudges records, and these are not real numbers but int64"):
        SAMIA()(target, seed=Seed(0))


@pytest.mark.parametrize(
    ("attack", "knobs", "told"),
    [
        (Learned, {"sees": ("label",)}, "no way of seeing an answer is called 'label'"),
        (Learned, {"epochs": 0}, "epochs must be at least 1"),
        (SAMIA, {"size": 0.0}, "size must be positive"),
        (SAMIA, {"nudges": 0}, "nudges must be at least 1"),
        (Trees, {"rounds": 0}, "rounds must be at least 1"),
        (CalibratedTaylor, {"shadows": 2}, "shadows must be at least 4"),
        (CalibratedLoss, {"temperature": 0.0}, "temperature must be positive"),
    ],
)
def test_senseless_knobs_are_refused(attack, knobs, told):
    with pytest.raises(ValueError, match=told):
        attack(**knobs)


def test_a_whole_answer_goes_through_a_population():
    target = leaky()
    handle = target.handle(Probabilities, lab())
    shadow = handle.population(4, signals=(log_posterior, loss))
    told, y = shadow.of(log_posterior), target.records.y
    assert told.shape == (4, 1, len(noise()), 4)
    assert told.dtype == np.float32
    assert shadow.of(loss).dtype == np.float64
    np.testing.assert_allclose(np.exp(told).sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(-told[:, 0, np.arange(len(y)), y], shadow.of(loss)[:, 0], rtol=1e-6, atol=1e-12)
    assert handle.signal(log_posterior).shape == (1, len(y), 4)
