"""Norms and clipped sums against a float64 loop over records: every kind of layer, every mode, every route."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from clipping.worlds import Block, Losses, TinyGPT, norms, per_record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

import engram
from engram.clipping import pieces, products
from engram.clipping.routes import CHOICES
from engram.clipping.settings import MODES

TIGHT = 1e-5
few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def gathered(model, x, mode="book-keeping", clip_norm=0.7, parts=1, clipping="flat", routes="counted"):
    """The clipped sum of each parameter, and the norms; nothing is trained."""
    private = engram.private(
        model, torch.optim.SGD(model.parameters(), 1.0), noise_multiplier=0, clip_norm=clip_norm, expected_batch=1,
        mode=mode, clipping=clipping, routes=routes,
    )  # fmt: skip
    loss, seen = Losses(3), []
    start = 0
    for part in torch.tensor_split(x, parts):
        out = model(part)
        w = loss.weights(out)[start : start + len(part)].to(out.dtype)
        private.backward((out.tanh() * w).flatten(1).sum(1))
        start += len(part)
        seen.append(private.norms)
    views = private._batch.totals.views(private._batch.total())
    named = {n: views[p].double() for n, p in model.named_parameters() if p in views}
    private.release()
    return SimpleNamespace(sums=named, norms=torch.cat(seen))


def expected(model, x, clip_norm=0.7):
    gradients = per_record(model, x, Losses(3))
    lengths = norms(gradients)
    weights = (clip_norm / lengths).clamp_max(1)
    sums = {n: (g * weights.view(-1, *[1] * (g.ndim - 1))).sum(0) for n, g in gradients.items()}
    return SimpleNamespace(sums=sums, norms=lengths)


def agree(model, x, **how):
    told, true = gathered(model, x, **how), expected(model, x)
    if how.get("mode") != "micro-batch":
        torch.testing.assert_close(told.norms[:, 0], true.norms, rtol=TIGHT, atol=0)
    assert set(told.sums) == set(true.sums)
    apart = sum((told.sums[n] - true.sums[n]).square().sum() for n in true.sums)
    assert apart.sqrt() < TIGHT * sum(s.square().sum() for s in true.sums.values()).sqrt()


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(build):
    with torch.random.fork_rng():
        torch.random.manual_seed(5)
        return build()


sizes = st.integers(1, 7)


@few
@given(st.integers(2, 5), st.lists(sizes, max_size=2), sizes, sizes, st.booleans(), st.sampled_from(CHOICES[1:]))
def test_linear_layers_of_two_three_and_four_dimensions(records, middle, inside, outside, bias, route):
    model = made(lambda: nn.Linear(inside, outside, bias=bias))
    agree(model, drawn(1, records, *middle, inside), routes=route)


@few
@given(st.integers(2, 5), sizes, st.sampled_from([None, 0, 2]), st.booleans())
def test_embeddings_with_repeated_and_padded_ids(records, positions, padding, flat):
    model = made(lambda: nn.Embedding(3, 4, padding_idx=padding))
    x = torch.randint(3, (records,) if flat else (records, positions), generator=torch.Generator().manual_seed(records))
    if padding is not None:
        x.view(-1)[0] = (padding + 1) % 3  # some gradient is left
    agree(model, x)


@few
@given(st.integers(2, 4), st.lists(sizes, max_size=2), st.integers(2, 6), st.booleans())
def test_layer_norms(records, middle, width, affine_bias):
    model = made(
        lambda: nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width, bias=affine_bias), nn.Linear(width, 2))
    )
    agree(model.double(), drawn(2, records, *middle, width).double())  # its own float32 answer is ill-conditioned


@few
@given(st.integers(2, 4), sizes, st.integers(2, 6), st.sampled_from([None, 1e-3]))
def test_rms_norms(records, positions, width, eps):
    model = made(lambda: nn.Sequential(nn.Linear(width, width), nn.RMSNorm(width, eps=eps)))
    agree(model.double(), drawn(2, records, positions, width).double())


@few
@given(st.integers(2, 4), st.sampled_from([1, 2, 4]), st.lists(st.integers(2, 4), max_size=2))
def test_group_norms(records, groups, middle):
    agree(made(lambda: nn.Sequential(nn.GroupNorm(groups, 4), nn.Flatten())), drawn(2, records, 4, *middle, 3))


@few
@given(
    st.integers(2, 4), st.sampled_from([1, 2]), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2),
    st.sampled_from([0, 1, "same"]), st.sampled_from(["zeros", "reflect", "circular"]), st.sampled_from([1, 2]),
    st.booleans(),
)  # fmt: skip
def test_convolutions(records, groups, kernel, stride, dilation, padding, padded_with, dimensions, bias):
    if padding == "same":
        stride = 1
    kind = (nn.Conv1d, nn.Conv2d)[dimensions - 1]
    model = made(
        lambda: kind(4, 2 * groups, kernel, stride, padding, dilation, groups, bias=bias, padding_mode=padded_with)
    )
    agree(model, drawn(4, records, 4, *[7] * dimensions))


WORLDS = {
    "a decoder": lambda: TinyGPT(),
    "a tied decoder": lambda: TinyGPT(tied=True),
    "an encoder layer of torch": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    "a layer used twice": lambda: Twice(nn.Linear(8, 8)),
    "a convolution used twice": lambda: nn.Sequential(nn.Unflatten(1, (5, 1)), Twice(nn.Conv2d(5, 5, 3, padding=1))),
    "a block used twice": lambda: Twice(Block(8, 2)),
    "a recurrent cell": lambda: Recurrent(),
    "weight normalisation": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 4)), nn.Linear(4, 2)),
    "a parameter of its own": lambda: Own(),
    "a list of parameters": lambda: Listed(),
    "a bilinear layer": lambda: Bilinear(),
    "a transposed convolution": lambda: nn.ConvTranspose1d(5, 3, 2),
}


class Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(self.inner(x).tanh())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x):
        state = x.new_zeros(len(x), 6)
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return state


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 8))
        self.inner = nn.Linear(8, 3)

    def forward(self, x):
        return self.inner(x * self.scale + self.scale.sum())


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList([torch.ones(8), torch.full((8,), 0.5)])

    def forward(self, x):
        return x * self.parts[0] + self.parts[1]


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Bilinear(8, 8, 2)

    def forward(self, x):
        return self.inner(x, x.tanh())


def world(name):
    model = made(WORLDS[name])
    x = (
        torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(1))
        if "decoder" in name
        else drawn(6, 5, 5, 8)
    )
    return model, x


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WORLDS)
def test_whole_models_in_every_mode(name, mode):
    agree(*world(name), mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["a tied decoder", "a recurrent cell", "a convolution used twice"])
def test_virtual_batches_are_one_batch(name, mode):
    model, x = world(name)
    whole, parts = gathered(model, x, mode=mode), gathered(model, x, mode=mode, parts=3)
    for n, value in whole.sums.items():
        torch.testing.assert_close(parts.sums[n], value, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("route", CHOICES)
def test_every_route_of_a_tied_decoder(route):
    agree(*world("a tied decoder"), routes=route)
    agree(*world("a decoder"), routes=route)


def test_positions_shared_by_as_many_records_as_there_are_positions():
    """Positions without a batch dimension: once this was seen, seven records of seven positions are right too."""
    model, x = world("a decoder")
    private = engram.private(
        model, torch.optim.SGD(model.parameters(), 1.0), noise_multiplier=0, clip_norm=1.0, expected_batch=1
    )
    private.backward(Losses(3)(model(x)))
    square = torch.cat([x, x[:2]])
    private.backward(Losses(3)(model(square)))
    true = norms(per_record(private.release(), square, Losses(3)))
    torch.testing.assert_close(private.norms[:, 0], true, rtol=TIGHT, atol=0)


@pytest.mark.parametrize("clipping", ["per-layer", "automatic"])
@pytest.mark.parametrize("mode", MODES)
def test_other_clippings_bound_every_record_and_agree_in_every_mode(mode, clipping):
    model, x = world("a tied decoder")
    for i in range(3):
        alone = gathered(model, x[i : i + 1], mode=mode, clip_norm=0.7, clipping=clipping)
        assert sum(s.square().sum() for s in alone.sums.values()).sqrt() <= 0.7
    plain = gathered(model, x, mode="micro-batch", clipping=clipping)
    for n, value in gathered(model, x, mode=mode, clipping=clipping).sums.items():
        torch.testing.assert_close(value, plain.sums[n], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("route", ["gram", "instantiated", "kept"])
def test_no_clipped_gradient_of_one_record_is_longer_than_the_clip_norm(route):
    """60 float32 draws each of sizes at which sums of squares drift, and of positions that nearly cancel."""
    for seed in range(60):
        model = made(lambda: nn.Linear(40, 50))
        x = drawn(seed, 1, 24, 40)
        if seed % 2:
            x[:, 1::2] = -x[:, ::2] * (1 + 1e-3 * seed)
        told = gathered(model, x, clip_norm=1e-3, routes=route)
        assert sum(s.square().sum() for s in told.sums.values()).sqrt() <= 1e-3


def test_squares_of_two_million_numbers_do_not_drift():
    values = drawn(9, 1, 2**21 + 17)
    torch.testing.assert_close(products.squares(values), values.double().square().sum(1), rtol=1e-7, atol=0)


def test_gram_matrices_in_halves_and_their_slack():
    left, right = drawn(1, 2, 1030, 9), drawn(2, 2, 1030, 4)
    true = products.squares(torch.bmm(left.double().transpose(1, 2), right.double()).flatten(1))
    told = products.gram(left, right)
    torch.testing.assert_close(told.double(), true, rtol=1e-4, atol=0)
    assert (told + products.gram_slack(left, right) >= true).all()


def test_blocks_of_few_records_change_nothing(monkeypatch):
    model, x = world("a tied decoder")
    before = gathered(model, x, routes="instantiated")
    monkeypatch.setattr(pieces, "BLOCK", 8)
    after = gathered(model, x, routes="instantiated")
    torch.testing.assert_close(before.norms, after.norms, rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", ["book-keeping", "ghost"])
def test_large_replayed_modules_are_made_again(monkeypatch, mode):
    from engram.clipping import replay

    monkeypatch.setattr(replay, "BLOCK", 8)
    monkeypatch.setattr(pieces, "BLOCK", 8)
    agree(*world("a parameter of its own"), mode=mode)
    agree(*world("a recurrent cell"), mode=mode)


def test_fused_kernels_agree_in_the_interpreter():
    """In a process of its own, because the interpreter is chosen when Triton is imported."""
    pytest.importorskip("triton", reason="needs triton: pip install triton")
    import os
    import subprocess

    work = (
        "import torch; from engram.clipping import kernels, products\n"
        "for shape in ((3, 5, 7, 9), (2, 70, 16, 130), (1, 530, 20, 8)):\n"
        "    left, right = torch.randn(*shape[:3]), torch.randn(*shape[:2], shape[3])\n"
        "    told, true = kernels.gram_squares(left, right), products.gram(left.double(), right.double())\n"
        "    torch.testing.assert_close(told.double(), true, rtol=1e-5, atol=0)\n"
        "x, g = torch.randn(3, 37, 100), torch.randn(3, 37, 100)\n"
        "_, mean, scale = torch.native_layer_norm(x, [100], None, None, 1e-5)\n"
        "w, b = kernels.layer_norm_sums(x, g, mean, scale)\n"
        "torch.testing.assert_close(w, (g * (x - mean) * scale).sum(1), rtol=1e-4, atol=1e-5)\n"
        "torch.testing.assert_close(b, g.sum(1), rtol=1e-4, atol=1e-5)\n"
    )
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", work], env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
