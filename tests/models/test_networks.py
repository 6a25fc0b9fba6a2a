"""The reference networks: the published number of parameters, the shapes, and knobs that are checked."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from engram import models
from engram.models import MLP, VGG16BN, ColumnFC, DenseNet121, LabelOnlyCNN, ResNet18, ResNet20, SmallCNN, TanhFC
from engram.models.layers import ACTIVATIONS

MEAN_AND_STD = ((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))


def count(module):
    return sum(p.numel() for p in module.parameters())


PUBLISHED = [  # the 32-pixel variants with 3 channels and 10 classes that the papers' code shares
    (ResNet20(), 269_722), (ResNet18(), 11_173_962), (VGG16BN(), 14_728_266), (DenseNet121(), 6_956_298),
]  # fmt: skip


@pytest.mark.parametrize(("build", "published"), PUBLISHED, ids=lambda v: type(v).__name__)
def test_parameters_are_as_many_as_published(build, published):
    assert count(build()) == published


COUNTED = [  # by hand: weights and biases, layer after layer
    (MLP(64, 10, width=512), 64 * 512 + 512 + 512 * 10 + 10),
    (MLP(5, 2, width=3, depth=3), 5 * 3 + 3 + 2 * (3 * 3 + 3) + 3 * 2 + 2),
    (TanhFC(7, 3, depth=2), 7 * 128 + 128 + 128 * 128 + 128 + 128 * 3 + 3),
    (ColumnFC(446, 30), 446 * 256 + 256 + 256 * 128 + 128 + 128 * 30 + 30),
    (SmallCNN(1, 8, 10, width=4), 9 * 4 + 4 + 9 * 4 * 8 + 8 + 8 * 4 * 10 + 10),
    (LabelOnlyCNN(3, 32, 10), 896 + 9_248 + 18_496 + 36_928 + 64 * 6 * 6 * 512 + 512 + 512 * 10 + 10),
    (LabelOnlyCNN(1, 28, 10), 320 + 9_248 + 18_496 + 36_928 + 64 * 5 * 5 * 512 + 512 + 512 * 10 + 10),
]


@pytest.mark.parametrize(("build", "counted"), COUNTED, ids=str)
def test_parameters_are_as_many_as_counted_by_hand(build, counted):
    assert count(build()) == counted


SHAPES = [
    (MLP(12, 3), (3, 2, 2)), (MLP(12, 3), (12,)), (TanhFC(7, 3), (7,)), (ColumnFC(7, 3), (7,)),
    (SmallCNN(2, 9, 5), (2, 9, 9)), (SmallCNN(1, 4, 3), (1, 4, 4)), (LabelOnlyCNN(3, 32, 10), (3, 32, 32)),
    (LabelOnlyCNN(1, 10, 4), (1, 10, 10)), (LabelOnlyCNN(1, 16, 4, depth=2), (1, 16, 16)),
    (ResNet20(7, 1), (1, 32, 32)), (ResNet18(7), (3, 32, 32)), (VGG16BN(7), (3, 32, 32)),
    (DenseNet121(7, growth=4), (3, 32, 32)),
]  # fmt: skip


@pytest.mark.parametrize(("build", "shape"), SHAPES, ids=str)
def test_an_answer_has_one_finite_number_for_each_record_and_class(build, shape):
    with torch.no_grad():
        answer = build().eval()(torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)))
    assert answer.shape == (2, build.classes)
    assert answer.isfinite().all()


def test_stages_of_the_residual_networks_halve_the_picture():
    net = ResNet20()()
    sizes = {}
    for name in ("conv1", "layer1", "layer2", "layer3"):
        getattr(net, name).register_forward_hook(
            lambda _, __, out, name=name: sizes.update({name: tuple(out.shape[1:])})
        )
    net(torch.zeros(2, 3, 32, 32))
    assert sizes == {"conv1": (16, 32, 32), "layer1": (16, 32, 32), "layer2": (32, 16, 16), "layer3": (64, 8, 8)}


def test_a_padded_shortcut_takes_every_second_pixel_and_adds_as_many_empty_channels_before_as_after():
    x = torch.arange(2 * 4 * 4.0).view(1, 2, 4, 4)
    out = models.resnet.Pad(2, 2)(x)
    assert out.shape == (1, 4, 2, 2)
    assert (out[:, [0, 3]] == 0).all()
    assert torch.equal(out[:, 1:3], x[:, :, ::2, ::2])


def test_normalisation_is_part_of_the_network_and_not_of_its_weights():
    plain, normalised = SmallCNN(3)(), SmallCNN(3, normalise=MEAN_AND_STD)()
    assert plain.state_dict().keys() == normalised.state_dict().keys()
    normalised.load_state_dict(plain.state_dict())
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(c)[:, None, None] for c in MEAN_AND_STD)
    assert torch.equal(normalised(x), plain((x - mean) / std))
    assert not torch.equal(normalised(x), plain(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_built(activation):
    assert any(type(m) is type(ACTIVATIONS[activation]()) for m in MLP(4, 2, 3, activation=activation)())


def test_dropout_is_built_where_it_is_asked_for():
    assert [m.p for m in MLP(dropout=0.3, depth=2)().modules() if isinstance(m, nn.Dropout)] == [0.3, 0.3]
    assert not [m for m in MLP()().modules() if isinstance(m, nn.Dropout)]
    assert [m.p for m in LabelOnlyCNN(1, 12, 2, dropout=0.25)().modules() if isinstance(m, nn.Dropout)] == [0.25, 0.25]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: MLP(width=0), ValueError, "width must be at least 1, got 0"),
        (lambda: MLP(width=2.0), TypeError, r"width must be a whole number, got 2\.0"),
        (lambda: MLP(depth=True), TypeError, "depth must be a whole number, got True"),
        (lambda: MLP(activation="relo"), ValueError, r"no activation is called 'relo'; did you mean relu\?"),
        (lambda: MLP(dropout=1.0), ValueError, r"dropout must lie in \[0, 1\), got 1\.0"),
        (lambda: SmallCNN(size=3), ValueError, "size must be at least 4, got 3; two poolings"),
        (lambda: LabelOnlyCNN(1, 9, 2), ValueError, "size must be at least 10, got 9"),
        (lambda: SmallCNN(3, normalise=((0.5,), (0.1, 0.2)))(), ValueError, "lengths must agree"),
        (lambda: SmallCNN(1, normalise=((0.5,), (0.0,)))(), ValueError, "each standard deviation must be positive"),
    ],
)
def test_a_bad_knob_gets_one_sentence(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_the_table_of_names_is_complete_and_loads_late():
    assert all(hasattr(models, name) for name in models.__all__)
    with pytest.raises(AttributeError, match="no attribute 'ResNet21'; it has "):
        _ = models.ResNet21
    code = "import sys, engram.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
