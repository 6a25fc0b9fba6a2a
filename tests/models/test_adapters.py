"""Ways of fine-tuning by few parameters: what is trained, where a model begins, and norms of exactly that."""

from __future__ import annotations

import pytest
import torch
from clipping.worlds import norms, per_record

import engram
from engram.models import adapters
from engram.models.language import Reads, Shape, Writes
from engram.models.reparametrised import Carriers, carriers, gradient, low_rank
from engram.seed import Seed
from engram.train import Recipe
from engram.train.loop import started

pytest.importorskip("transformers", reason="needs transformers: pip install 'engram[text]'")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
SHAPE = Shape(vocabulary=23, length=12, width=16, depth=3, heads=2)
WAYS = {
    "full": adapters.whole_model, "LoRA": adapters.lora, "prefix": adapters.prefix, "RGP": low_rank, "top-2": adapters.top,
}  # fmt: skip


def writer(way="full"):
    model = started(Recipe(Writes(SHAPE)), Seed(3))
    return started(Recipe(lambda: WAYS[way](model)), Seed(4)).train()


def ids(records=4):
    return torch.randint(3, 23, (records, 7), generator=torch.Generator().manual_seed(1))


def loss(out, _=None):
    return out.tanh().flatten(1).square().sum(1)


def trained(model):
    return {name for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("way", ["LoRA", "RGP", "top-2"])
def test_a_way_of_fine_tuning_begins_as_the_model_was(way):
    model = writer(way)
    if way == "RGP":
        Carriers(model, lambda whole: torch.optim.SGD(whole, 0.1), torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(ids()), writer()(ids()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("way", "marks"),
    [("LoRA", (".down.", ".up.")), ("prefix", ("prefix.table.",)), ("RGP", (".left.", ".right.")),
     ("top-2", ("h.1.", "h.2.", "ln_f."))],
)  # fmt: skip
def test_only_what_a_way_of_fine_tuning_adds_is_trained(way, marks):
    model = writer(way)
    assert trained(model) == {name for name, _ in model.named_parameters() if any(mark in name for mark in marks)}
    assert trained(model)


@pytest.mark.parametrize("way", WAYS)
def test_norms_are_those_of_the_trained_parameters_alone(way):
    model, x = writer(way), ids()
    if way == "LoRA":  # both matrices matter
        for module in model.modules():
            if isinstance(module, adapters.Beside):
                torch.nn.init.normal_(module.up.weight, generator=torch.Generator().manual_seed(2))
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1.0)
    if way == "RGP":
        optimiser = Carriers(model, lambda whole: torch.optim.SGD(whole, 0.1), torch.Generator().manual_seed(0))
    true = norms(per_record(model, x, loss))
    private = engram.private(model, optimiser, noise_multiplier=1.0, clip_norm=0.1, expected_batch=4)
    private.backward(loss(model(x)))
    torch.testing.assert_close(private.norms[:, 0], true, rtol=2e-5, atol=0)


@pytest.mark.parametrize("way", ["LoRA", "prefix", "RGP", "top-2"])
def test_what_is_frozen_does_not_move(way):
    model = writer(way)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5)
    optimiser = Carriers(model, lambda w: torch.optim.SGD(w, 0.5), torch.Generator()) if way == "RGP" else sgd
    private = engram.private(model, optimiser, noise_multiplier=0, clip_norm=1.0, expected_batch=4)
    for _ in range(2):
        private.backward(loss(model(ids())))
        private.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    carried = {name for name in before if ".rest.weight" in name} if way == "RGP" else set()
    assert moved <= trained(model) | carried
    assert moved >= ({n for n in trained(model) if ".up." in n} if way == "LoRA" else trained(model))


def test_the_gradient_of_carriers_is_the_projected_gradient():
    """Against the definition: what L spans and what R spans of the whole gradient, each counted once."""
    stream = torch.Generator().manual_seed(0)
    whole = torch.randn(7, 5, generator=stream, dtype=torch.float64)
    left, _ = torch.linalg.qr(torch.randn(7, 2, generator=stream, dtype=torch.float64))
    right = torch.linalg.qr(torch.randn(5, 2, generator=stream, dtype=torch.float64))[0].T
    on_left, on_right = left @ left.T, right.T @ right
    expected = whole - (torch.eye(7) - on_left) @ whole @ (torch.eye(5) - on_right)
    found = gradient(left, right, whole @ right.T, left.T @ whole)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_carriers_of_full_rank_train_as_without_them():
    """With as many directions as the matrix has, RGP is ordinary training of the matrices."""
    plain, thin = writer(), adapters_of_full_rank()
    plain.requires_grad_(False)
    for _, _, matrix in adapters.matrices(plain):
        matrix.weight.requires_grad_(True)
    sgd = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], 0.1)
    carried = Carriers(thin, lambda whole: torch.optim.SGD(whole, 0.1), torch.Generator().manual_seed(0))
    for _ in range(3):
        for model, optimiser in ((plain, sgd), (thin, carried)):
            optimiser.zero_grad()
            loss(model(ids())).sum().backward()
            optimiser.step()
    torch.testing.assert_close(thin(ids()), plain(ids()), rtol=1e-4, atol=1e-4)


def adapters_of_full_rank():
    return low_rank(started(Recipe(Writes(SHAPE)), Seed(3)), rank=16).train()


def test_carriers_follow_where_the_matrix_moved():
    stream = torch.Generator().manual_seed(0)
    moved = torch.randn(7, 2, generator=stream) @ torch.randn(2, 5, generator=stream)
    left, right = carriers(moved, torch.randn(7, 2, generator=stream), torch.randn(5, 2, generator=stream))
    torch.testing.assert_close(left @ left.T @ moved, moved, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(moved @ right.T @ right, moved, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(left.T @ left, torch.eye(2), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(right @ right.T, torch.eye(2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["full", "prefix"])
def test_continuing_is_reading_anew_at_every_word(way):
    """Against the slow way: the whole text again for every word, without a cache."""
    model = writer(way).eval()
    if way == "prefix":
        torch.nn.init.normal_(model.prefix.table.weight, generator=torch.Generator().manual_seed(5))
    text = ids(3)
    found = model.continued(text, 4, end=-1)
    for _ in range(4):
        with torch.no_grad():
            text = torch.cat([text, model(text)[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, text[:, 7:])


def test_a_prefix_changes_what_is_said():
    model = writer("prefix")
    before = model(ids())
    torch.nn.init.normal_(model.prefix.table.weight, generator=torch.Generator().manual_seed(5))
    assert (model(ids()) - before).abs().max() > 1e-3


def test_padding_does_not_change_what_is_read():
    model = started(Recipe(Reads(SHAPE)), Seed(3)).eval()
    text, places = ids(2), torch.tensor([[2], [3]])
    padded = torch.cat([text, torch.zeros(2, 3, dtype=torch.int64)], 1)
    torch.testing.assert_close(model(padded, places), model(text, places), rtol=1e-5, atol=1e-5)


def test_a_fresh_head_is_trained_in_every_way():
    for way in ("LoRA", "RGP", "top-2"):
        model = started(Recipe(Reads(SHAPE, classes=2)), Seed(3))
        assert {n for n, _ in model.named_parameters() if n.startswith("classes.")} <= trained(WAYS[way](model))


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="multiple of heads, got 10 and 4"):
        Shape(vocabulary=5, length=4, width=10, depth=1, heads=4)
