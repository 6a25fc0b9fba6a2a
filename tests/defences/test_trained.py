"""Defences that change how the model is trained: each does what it says, and its leak falls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract.targets import LEARNED_BY_HEART, noise
from torch import nn

from engram.data import dataset
from engram.defences import defence
from engram.defences.adversarial_regularisation import Opponents, Others
from engram.defences.dropout import Dropped
from engram.defences.relaxloss import Relaxed, soft_loss
from engram.measure.ranks import ranked
from engram.measure.roc import auc
from engram.models import MLP, LabelOnlyCNN, ResNet20, SmallCNN
from engram.seed import Seed
from engram.train import Adam, CrossEntropy, FullBatch, Given, Patience, Recipe, fit
from engram.train.loop import started
from engram.train.stack import Stack
from engram.train.steps import Training


def clusters(records=400, classes=4, seed=0):
    """Overlapping clusters: half to be learned, half by heart."""
    stream = np.random.default_rng(seed)
    y = stream.integers(0, classes, records)
    centres = stream.normal(size=(classes, 12))
    return dataset((centres[y] + 2.5 * stream.normal(size=(records, 12))).astype(np.float32), y)


BY_HEART = Recipe(MLP(inputs=12, classes=4, width=64), epochs=150, optimiser=Adam(0.01), sampler=FullBatch())


def measured(recipe, seed=0):
    """Area of the loss attack, and accuracy on records that were not trained on."""
    data, half = clusters(), np.arange(400) < 200
    model = fit(recipe, data.take(half), seed=Seed(seed))
    with torch.no_grad():
        outputs = model(torch.as_tensor(data.x)).double()
    losses = CrossEntropy()(outputs, torch.as_tensor(data.y)).numpy()
    right = (outputs.argmax(-1).numpy() == data.y)[~half].mean()
    return auc(ranked(-losses, half)), right, losses[half].mean()


@pytest.fixture(scope="module")
def undefended():
    return measured(BY_HEART)


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("relaxloss", {"alpha": 0.8}),
        ("dropout", {"share": 0.7}),
        ("l2", {"weight_decay": 0.1}),
    ],
)
def test_the_leak_falls_and_the_accuracy_stays(name, knobs, undefended):
    area, right, _ = measured(defence(name, knobs)(BY_HEART))
    assert area < undefended[0] - 0.04
    assert right > undefended[1] - 0.07


def test_an_opponent_takes_away_what_it_can_tell():
    """Against the same training with an opponent whose word counts for nothing; two trainings of each."""
    knobs = {"width": 64, "steps": 5, "rate": 5e-3}
    opposed, alone = (
        np.mean(
            [measured(defence("adversarial-regularisation", {**knobs, "weight": w})(BY_HEART), s) for s in (0, 1)], 0
        )
        for w in (4.0, 1e-9)
    )
    assert opposed[0] < alone[0] - 0.03
    assert opposed[1] > alone[1] - 0.07


def soft_by_hand(logits, y, upper):
    p = np.exp(logits) / np.exp(logits).sum()
    own = min(p[y], upper)
    target = [own if k == y else (1 - own) / (len(p) - 1) for k in range(len(p))]
    return -sum(t * np.log(q) for t, q in zip(target, p, strict=True))


@pytest.mark.parametrize("upper", [1.0, 0.4])
def test_the_soft_label_is_the_models_own_confidence_and_the_rest_spread_evenly(upper):
    outputs, y = torch.randn(2, 5, 4, dtype=torch.float64), torch.randint(0, 4, (2, 5))
    told = soft_loss(outputs, y, upper)
    for m in range(2):
        for r in range(5):
            assert told[m, r].item() == pytest.approx(soft_by_hand(outputs[m, r].numpy(), int(y[m, r]), upper))


def test_relaxloss_line_by_line():
    """Algorithm 1: even epochs |loss - alpha|; odd ones the loss above alpha, else flattening of what is wrong."""
    outputs = torch.tensor([[[4.0, 0, 0], [3, 0, 0]], [[0, 4, 0], [0, 0, 4]]], dtype=torch.float64)
    y = torch.tensor([[0, 0], [0, 0]])  # the first model is right and sure, the second wrong
    losses = CrossEntropy()(outputs, y)
    step = Relaxed(alpha=1.0, upper=1.0)
    low, high = losses.mean(1)
    np.testing.assert_allclose(step.objective(outputs, y, losses, 0), [1 - low, high - 1])
    np.testing.assert_allclose(step.objective(outputs, y, losses, 1), [-low, high])
    half = torch.tensor([[[4.0, 0, 0], [1.0, 1.1, 1.0]]], dtype=torch.float64)
    told = step.objective(half, y[:1], CrossEntropy()(half, y[:1]), 1)
    by_hand = (-losses[0, 0] + soft_by_hand(half[0, 1].numpy(), 0, 1.0) - CrossEntropy()(half, y[:1])[0, 1]) / 2
    assert told.item() == pytest.approx(by_hand.item())


def test_relaxloss_keeps_the_training_loss_near_its_level(undefended):
    assert undefended[2] < 0.1
    for alpha in (0.4, 0.8):
        mean = measured(defence("relaxloss", {"alpha": alpha})(BY_HEART))[2]
        assert 0.5 * alpha < mean < 1.5 * alpha


def opponents(models=2, shared=False):
    modules = [started(LEARNED_BY_HEART, Seed(m)) for m in range(models)]
    stack = Stack(modules, models)
    x = torch.randn(10, 12) if shared else torch.randn(models, 10, 12)
    y = torch.randint(0, 4, (10,) if shared else (models, 10))
    seeds = [Seed(m) for m in range(models)]
    training = Training(CrossEntropy(), stack, torch.optim.SGD([stack.flat.values]), seeds, 40, False, (x, y, shared))
    return Opponents(training, classes=4, width=16, rate=1e-2)


def test_an_opponent_learns_to_tell_members_and_each_its_own():
    """Members of the first model are sure; those of the second answer like anybody."""
    against = opponents()
    torch_stream = torch.Generator().manual_seed(0)
    flat = torch.randn(2, 40, 4, generator=torch_stream)
    sure = (flat + torch.tensor([4.0, 0.0])[:, None, None] * torch.eye(4)[0]).softmax(-1)
    y = torch.zeros(2, 40, dtype=torch.int64)
    losses = torch.stack([against.learn((sure, y), (flat.roll(1, 1).softmax(-1), y)) for _ in range(60)])
    assert losses[0].tolist() == pytest.approx([0.693, 0.693], abs=0.05)
    assert losses[-1, 0] < 0.3
    assert losses[-1, 1] > 0.5


@pytest.mark.parametrize("shared", [True, False])
def test_others_are_drawn_without_repeats_and_for_each_model_apart(shared):
    x = torch.arange(10.0) if shared else torch.stack([torch.arange(10.0), 100 + torch.arange(10.0)])
    drawn, y = Others((x, x.long(), shared), [Seed(m).numpy() for m in range(2)])(6)
    assert drawn.shape == (2, 6)
    assert torch.equal(drawn.long(), y)
    assert all(len(line.unique()) == 6 for line in drawn)
    assert (drawn[1] >= 100).all() == (not shared)
    assert not torch.equal(drawn[0], drawn[1] - 100 * (not shared))


def test_a_model_against_an_opponent_never_sees_the_others():
    """With nearly all records held out, the rest is what it learns."""
    recipe = defence("adversarial-regularisation", {"beside": 0.9, "width": 8})(replace(LEARNED_BY_HEART, epochs=100))
    data = noise(100)
    model = fit(recipe, data, seed=Seed(0))
    with torch.no_grad():
        right = (model(torch.as_tensor(data.x)).argmax(-1).numpy() == data.y).mean()
    assert right < 0.5


def linears(net):
    return [(name, type(m)) for name, m in net.named_modules() if isinstance(m, nn.Linear)]


@pytest.mark.parametrize(
    ("build", "dropped"),
    [
        (MLP(inputs=12, classes=4, depth=2), [False, True, True]),
        (SmallCNN(), [True]),
        (LabelOnlyCNN(1, 28, 10), [True, True]),
        (ResNet20(), [True]),
    ],
)
def test_dropout_stands_before_every_linear_layer_that_does_not_see_records(build, dropped):
    recipe = Recipe(build)
    plain, net = started(recipe, Seed(0)), started(defence("dropout")(recipe), Seed(0))
    assert [kind is Dropped for _, kind in linears(net)] == dropped
    assert list(plain.state_dict()) == list(net.state_dict())
    for a, b in zip(plain.state_dict().values(), net.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_dropout_leaves_out_its_share_in_training_and_nothing_in_answers():
    layer = Dropped(nn.Linear(10_000, 1, bias=False), 0.3)
    nn.init.ones_(layer.weight)
    whole = layer.eval()(torch.ones(1, 10_000)).item()
    parts = layer.train()(torch.ones(50, 10_000)) * 0.7
    assert whole == pytest.approx(10_000)
    assert parts.mean().item() == pytest.approx(7000, rel=0.01)


def test_a_network_without_hidden_units_cannot_drop_them():
    recipe = defence("dropout")(replace(LEARNED_BY_HEART, build=Only()))
    with pytest.raises(ValueError, match="no linear layer behind another"):
        recipe.build()


class Only:
    def __call__(self):
        return nn.Sequential(nn.Linear(12, 4))


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """A model of other records of the same kind."""
    file = tmp_path_factory.mktemp("public") / "weights.pt"
    torch.save(fit(BY_HEART, clusters(2000, seed=0), seed=Seed(5)).state_dict(), file)
    return str(file)


@pytest.mark.parametrize("freeze", [True, False])
def test_a_transferred_model_starts_from_the_file_with_a_head_of_its_own(public, freeze):
    recipe = defence("transfer", {"weights": public, "freeze": freeze})(BY_HEART)
    held = torch.load(public, weights_only=True)
    a, b = started(recipe, Seed(0)), started(recipe, Seed(1))
    trained = fit(replace(recipe, epochs=3), clusters(), seed=Seed(0)).state_dict()
    assert torch.equal(a.state_dict()["1.weight"], held["1.weight"])
    assert not torch.equal(a.state_dict()["3.weight"], b.state_dict()["3.weight"])
    assert torch.equal(trained["1.weight"], held["1.weight"]) == freeze
    assert not torch.equal(trained["3.weight"], a.state_dict()["3.weight"])


def test_a_transferred_model_leaks_less(public, undefended):
    area, right, _ = measured(defence("transfer", {"weights": public})(BY_HEART))
    assert area < undefended[0] - 0.04
    assert right > undefended[1] - 0.05


def test_weights_of_another_network_are_refused(public, tmp_path):
    with pytest.raises(ValueError, match=r"1.weight is \(32, 12\), .* has \(64, 12\) there"):
        defence("transfer", {"weights": public})(replace(BY_HEART, build=MLP(inputs=12, classes=4, width=32)))
    with pytest.raises(ValueError, match=r"3\.weight is \(64, 64\)"):
        defence("transfer", {"weights": public})(replace(BY_HEART, build=MLP(inputs=12, classes=4, width=64, depth=3)))
    torch.save({"1.weight": torch.zeros(4, 12), "1.bias": torch.zeros(4)}, tmp_path / "one.pt")
    with pytest.raises(ValueError, match="this network has only one"):
        defence("transfer", {"weights": str(tmp_path / "one.pt")})(replace(BY_HEART, build=Only()))
    with pytest.raises(ValueError, match="transfer needs a file of weights to start from, got none"):
        defence("transfer")(BY_HEART)


def test_given_weights_must_name_all_unless_partly():
    weights = {"1.weight": torch.zeros(64, 12)}
    with pytest.raises(RuntimeError, match="Missing key"):
        started(replace(BY_HEART, start=Given(weights)), Seed(0))
    net = started(replace(BY_HEART, start=Given(weights, partly=True)), Seed(0))
    assert not net.state_dict()["1.weight"].any()


def test_a_step_is_not_silently_replaced():
    opposed = defence("adversarial-regularisation")(BY_HEART)
    with pytest.raises(TypeError, match="relaxloss replaces the plain step"):
        defence("relaxloss")(opposed)
    with pytest.raises(TypeError, match="adversarial-regularisation replaces the plain step"):
        defence("adversarial-regularisation")(defence("relaxloss")(BY_HEART))


def test_held_out_records_of_stop_and_opponent_are_apart():
    recipe = defence("adversarial-regularisation", {"width": 8})(replace(BY_HEART, stop=Patience(2, 0.2), epochs=8))
    assert fit(recipe, clusters(), seed=Seed(0))


@pytest.mark.parametrize(
    ("name", "knobs", "told"),
    [
        ("relaxloss", {"alpha": 0.0}, "alpha must be positive"),
        ("relaxloss", {"upper": 1.5}, "upper must lie in"),
        ("adversarial-regularisation", {"weight": 0.0}, "weight must be positive"),
        ("adversarial-regularisation", {"beside": 1.0}, "beside must lie in"),
        ("adversarial-regularisation", {"steps": 0}, "steps must be at least 1"),
        ("dropout", {"share": 1.0}, "share must lie in"),
    ],
)
def test_senseless_knobs_are_refused(name, knobs, told):
    with pytest.raises(ValueError, match=told):
        defence(name, knobs)(BY_HEART)
