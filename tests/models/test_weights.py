"""Weights from files: no code of theirs runs."""

from __future__ import annotations

import os
import pickle  # noqa: TID251  to write the files that must be refused
from pathlib import Path

import numpy as np
import pytest
import torch

from engram.data import load
from engram.models import MLP, ResNet20, load_weights, strip_prefix

CIFAR = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Bomb:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


@pytest.fixture
def weights():
    return {name: w.clone() for name, w in MLP(4, 2, 3)().state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("wrap", [lambda w: w, lambda w: {"state_dict": w, "epoch": 3}], ids=["bare", "checkpoint"])
def test_what_torch_saved_of_a_state_dict_comes_back(tmp_path, weights, wrap):
    torch.save(wrap(weights), tmp_path / "w.pt")
    assert same(load_weights(tmp_path / "w.pt"), weights)


def test_safetensors_come_back(tmp_path, weights):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    safetensors.save_file(weights, tmp_path / "w.safetensors")
    assert same(load_weights(tmp_path / "w.safetensors"), weights)
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.safetensors is not a safetensors file"):
        load_weights(tmp_path / "bad.safetensors")


def test_safetensors_without_their_package_are_answered_with_the_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "safetensors.torch", None)
    (tmp_path / "w.safetensors").write_bytes(b"")
    with pytest.raises(ImportError, match="install it with: pip install"):
        load_weights(tmp_path / "w.safetensors")


@pytest.mark.parametrize("write", [torch.save, lambda held, path: Path(path).write_bytes(pickle.dumps(held))])
@pytest.mark.parametrize("wrap", [lambda bomb: bomb, lambda bomb: {"state_dict": {"w": bomb}}], ids=["bare", "inside"])
def test_a_pickle_that_would_run_code_is_refused_and_its_code_does_not_run(tmp_path, write, wrap):
    trace = tmp_path / "ran"
    write(wrap(Bomb(trace)), tmp_path / "w.pt")
    with pytest.raises(
        ValueError, match=r"a pickle that could run code, so it was not loaded; where you trust the file"
    ):
        load_weights(tmp_path / "w.pt")
    assert not trace.exists()
    torch.load(tmp_path / "w.pt", weights_only=False) if write is torch.save else pickle.loads(
        (tmp_path / "w.pt").read_bytes()
    )
    assert trace.exists()  # the control: read without care, the same file does run its code


def test_a_saved_module_is_refused_with_how_to_convert_it(tmp_path):
    torch.save(MLP(4, 2, 3)(), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"torch\.save\(model\.state_dict\(\), 'weights\.pt'\)"):
        load_weights(tmp_path / "model.pt")


@pytest.mark.parametrize("raw", [b"", b"no weights", b"PK\x03\x04 half a zip", b"\x80\x02."])
def test_what_is_no_file_of_weights_is_refused(tmp_path, raw):
    (tmp_path / "w.pt").write_bytes(raw)
    with pytest.raises(ValueError, match=r"w\.pt is (not a file of PyTorch weights|a pickle that could run code)"):
        load_weights(tmp_path / "w.pt")


@pytest.mark.parametrize("held", [[1, 2], {}, {"w": 1}, torch.zeros(2)])
def test_a_file_without_tensors_by_name_is_refused(tmp_path, held):
    torch.save(held, tmp_path / "w.pt")
    with pytest.raises(ValueError, match="must hold tensors by name, found"):
        load_weights(tmp_path / "w.pt")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a file of weights, found none at"):
        load_weights(tmp_path / "w.pt")


def test_a_prefix_is_stripped_from_every_name_or_from_none():
    assert list(strip_prefix({"module.a": torch.zeros(1), "module.b.module.c": torch.ones(1)})) == ["a", "b.module.c"]
    with pytest.raises(ValueError, match=r"every name must start with 'module\.' to strip it, but 'b' does not"):
        strip_prefix({"module.a": torch.zeros(1), "b": torch.zeros(1)})


@pytest.mark.data
@pytest.mark.parametrize(("part", "published"), [("train", 0.9982), ("test", 0.9142)])
def test_the_published_resnet_20_is_as_right_as_published(part, published):
    """On 500 records of each part: within 4 standard errors, a false alarm below 1e-4. The control is a turned picture."""
    folder = Path(os.environ.get("ENGRAM_DATA", "nowhere"))
    if not folder.is_dir():
        pytest.skip("ENGRAM_DATA does not name a folder of data")
    net = ResNet20(normalise=CIFAR)()
    net.load_state_dict(strip_prefix(load_weights(folder / "resnet20-cifar10-12fca82f.th")))
    records = load(folder / "cifar10_20k_5k.npz", x=f"x_{part}", y=f"y_{part}", images=True)
    some = records.take(np.linspace(0, len(records) - 1, 500).astype(int))
    with torch.no_grad():
        right = (net.eval()(torch.as_tensor(some.x)).argmax(1).numpy() == some.y).mean()
        turned = (net(torch.as_tensor(some.x).flip(-2)).argmax(1).numpy() == some.y).mean()
    spread = 4 * np.sqrt(published * (1 - published) / 500)
    assert abs(right - published) < spread
    assert abs(turned - published) > spread
