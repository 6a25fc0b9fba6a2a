"""Equal content, equal name; and a name that leaves nothing out."""

from __future__ import annotations

import dataclasses
import enum
import functools
import subprocess
import sys
from collections import OrderedDict
from pathlib import PurePosixPath

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from engram.data import fingerprint
from engram.data.dataset import Dataset
from engram.models import MLP
from engram.seed import Seed
from engram.signals import STANDARD
from engram.train import SGD, Adam, Batches, CrossEntropy, FullBatch, Given, Patience, Recipe

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def told(thing):
    """Down to types: what repr shows of plain values."""
    if isinstance(thing, dict):
        return {k: told(thing[k]) for k in sorted(thing)}
    return [told(v) for v in thing] if isinstance(thing, list) else (type(thing).__name__, repr(thing))


@given(plain, plain)
def test_two_plain_values_share_a_name_exactly_when_they_are_alike(one, other):
    alike = type(one) is type(other) and repr(told(one)) == repr(told(other))
    assert (fingerprint(one) == fingerprint(other)) == alike


class Colour(enum.Enum):
    RED = 1
    CRIMSON = 2


@dataclasses.dataclass(frozen=True)
class Knobs:
    a: int = 1
    b: object = None


@dataclasses.dataclass(frozen=True)
class Dials:
    a: int = 1
    b: object = None


APART = [
    (1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ("1", b"1"), ((1, 2), [1, 2]), ([1, [2]], [[1], 2]), (["ab"], ["a", "b"]),
    ({1}, frozenset({1, 2})), (range(3), range(4)), (Colour.RED, Colour.CRIMSON), (PurePosixPath("a"), "a"),
    (np.zeros(3), np.zeros(3, np.float32)), (np.zeros((2, 3)), np.zeros((3, 2))), (np.zeros(3), torch.zeros(3)),
    (np.arange(3), np.arange(3)[::-1]), (torch.zeros(3), torch.zeros(3, dtype=torch.float64)),
    (torch.zeros(1), torch.zeros(())), (torch.float32, torch.float64), (np.dtype("f4"), np.dtype("f8")),
    (Knobs(1), Knobs(2)), (Knobs(1), Knobs(1.0)), (Knobs(), Dials()), (Knobs(b=Knobs(1)), Knobs(b=Knobs(2))),
    (functools.partial(max, 1), functools.partial(max, 2)), (len, max), (np.exp, np.log), (nn.ReLU, nn.ELU),
    (Seed(1).child("a"), Seed(1).child("b")), (nn.Linear(2, 2, bias=False).bias, 0),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), APART)
def test_what_is_told_apart(one, other):
    assert fingerprint(one) != fingerprint(other)


ALIKE = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (np.arange(6).reshape(2, 3).T, np.arange(6).reshape(2, 3).T.copy()),
    (torch.arange(6).view(2, 3).mT, torch.arange(6).view(2, 3).mT.contiguous()), (Knobs(3), Knobs(3)),
    (Seed(1).child("a", 2), Seed(1).child("a").child(2)), ({1, 2, 3}, {3, 2, 1}), (np.float64(2), np.array(2.0)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_is_the_same(one, other):
    assert fingerprint(one) == fingerprint(other)


def test_several_things_are_not_a_list_of_them():
    assert fingerprint(1, 2) != fingerprint([1, 2])
    assert fingerprint(1, 2) != fingerprint(2, 1)


def test_another_process_gives_the_same_name():
    code = (
        "import numpy as np; from engram.data import fingerprint; from engram.models import MLP;"
        "print(fingerprint({'b', 'a', 'c'}, {'x': np.arange(3)}, MLP()))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == fingerprint({"b", "a", "c"}, {"x": np.arange(3)}, MLP())


SCALE = 2


def _defined(source: str, name: str = "f"):
    """What a user's file defines under a name, as if the file had been edited and run again."""
    scope = {"__name__": "my_target", "torch": torch, "nn": nn, "dataclass": dataclasses.dataclass}
    exec(compile(source, "my_target.py", "exec", dont_inherit=True), scope)
    return scope[name]


EDITS = [
    ("def f(x): return x + 1", "def f(x): return x + 2"),
    ("def f(x): return x + 1", "def f(x): return x - 1"),
    ("def f(x, a=1): return x", "def f(x, a=2): return x"),
    ("def f(x, *, a=1): return x", "def f(x, *, a=2): return x"),
    ("def f(x): return x", "def f(*x): return x"),
    ("def f(x, y): return x", "def f(x, *, y): return x"),
    ("def f(x): return x.sin()", "def f(x): return x.cos()"),
    ("A = 1\ndef f(x): return x + A", "A = 2\ndef f(x): return x + A"),
    ("def g(x): return x\ndef f(x): return g(x)", "def g(x): return -x\ndef f(x): return g(x)"),
    ("A = 1\ndef f(x): return (lambda: A)()", "A = 2\ndef f(x): return (lambda: A)()"),
    (
        "def h(a):\n def g(x): return x + a\n return g\nf = h(1)",
        "def h(a):\n def g(x): return x + a\n return g\nf = h(2)",
    ),
    (
        "class N(nn.Module):\n def forward(self, x): return x\ndef f(): return N()",
        "class N(nn.Module):\n def forward(self, x): return -x\ndef f(): return N()",
    ),
    (
        "class M:\n a = 1\nclass N(M):\n pass\ndef f(): return N()",
        "class M:\n a = 2\nclass N(M):\n pass\ndef f(): return N()",
    ),
    (
        "@dataclass(frozen=True)\nclass L:\n a: int = 1\n def __call__(self, x): return x\nf = L()",
        "@dataclass(frozen=True)\nclass L:\n a: int = 1\n def __call__(self, x): return -x\nf = L()",
    ),
    (
        "class L:\n @staticmethod\n def g(x): return x\nf = L",
        "class L:\n @staticmethod\n def g(x): return -x\nf = L",
    ),
    (
        "class L:\n @property\n def g(self): return 1\nf = L",
        "class L:\n @property\n def g(self): return 2\nf = L",
    ),
]


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_an_edit_of_the_code_changes_the_name(before, after):
    assert fingerprint(_defined(before)) == fingerprint(_defined(before))
    assert fingerprint(_defined(before)) != fingerprint(_defined(after))


def test_where_the_code_stands_does_not_matter():
    assert fingerprint(_defined("def f(x): return x + 1")) == fingerprint(
        _defined("\n\n# note\ndef f(x):\n  return x + 1")
    )


@pytest.mark.parametrize(
    "source",
    [
        "def f(n): return n and f(n - 1)",
        "def g(n): return f(n)\ndef f(n): return n and g(n - 1)",
        "class f:\n def g(self): return f()\n def h(self): return f().g()",
        "\n".join(f"def f{k}(): return f{(k + 1) % 5}()" for k in range(5)) + "\nf = f0",
        "class f:\n" + "\n".join(f" def g{k}(self): return f()" for k in range(30)),
    ],
)
def test_what_calls_itself_has_a_name(source):
    assert fingerprint(_defined(source)) == fingerprint(_defined(source))


def test_modules_are_named_by_weights_buffers_order_attributes_and_what_is_trained():
    def net(*, slope=0.1, turned=False, frozen=False):
        layers = [("a", nn.Linear(2, 2, bias=False)), ("b", nn.LeakyReLU(slope))]
        made = nn.Sequential(OrderedDict(layers[::-1] if turned else layers))
        made.a.weight.data.fill_(1.0)
        made.a.weight.requires_grad_(not frozen)
        return made

    assert fingerprint(net()) == fingerprint(net())
    assert fingerprint(net()) == fingerprint(net().eval())
    others = [net(slope=0.2), net(turned=True), net(frozen=True)]
    assert len({fingerprint(n) for n in (net(), *others)}) == 4
    changed = net()
    changed.a.weight.data[0, 0] = 2.0
    assert fingerprint(changed) != fingerprint(net())
    norm = nn.BatchNorm1d(2)
    norm.running_mean.fill_(1.0)
    assert fingerprint(norm) != fingerprint(nn.BatchNorm1d(2))


RECIPE = Recipe(MLP())


@pytest.mark.parametrize(
    "change",
    [
        {"build": MLP(width=511)}, {"epochs": 31}, {"optimiser": Adam(2e-3)}, {"optimiser": SGD()},
        {"sampler": FullBatch()}, {"sampler": Batches(31)}, {"loss": CrossEntropy(0.1)}, {"stop": Patience()},
        {"start": Given({"w": torch.zeros(1)})}, {"before": (torch.relu,)}, {"after": (torch.relu,)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_field_of_a_recipe_counts(change):
    assert fingerprint(RECIPE) == fingerprint(Recipe(MLP()))
    assert fingerprint(dataclasses.replace(RECIPE, **change)) != fingerprint(RECIPE)


def test_signals_have_names_of_their_own():
    assert len({fingerprint(signal) for signal in STANDARD.values()}) == len(STANDARD)


def test_a_data_set_is_named_by_its_records():
    x, y = np.zeros((2, 3), np.float32), np.array([0, 1])
    assert fingerprint(Dataset(x, y, ("a", "b"))) == fingerprint(Dataset(x.copy(), y.copy(), ("a", "b")))
    assert fingerprint(Dataset(x, y, ("a", "b"))) != fingerprint(Dataset(x + 1, y, ("a", "b")))


@dataclasses.dataclass
class Loose:
    a: int = 1


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (object(), "cannot fingerprint builtins.object; make it a frozen dataclass"),
        (Loose(), "a dataclass that can change; make it frozen"),
        (np.array([object()]), "an array of object"),
        (torch.eye(2).to_sparse(), "call to_dense"),
        (np.random.default_rng(0), "cannot fingerprint numpy.random"),
        ([{"deep": (object(),)}], "cannot fingerprint builtins.object"),
        (functools.partial(max, object()), "cannot fingerprint builtins.object"),
        (iter([]), "cannot fingerprint builtins.list_iterator"),
    ],
)
def test_what_cannot_be_named_is_refused(thing, says):
    with pytest.raises(TypeError, match=says):
        fingerprint(thing)
