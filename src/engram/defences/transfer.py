"""Start from a model of public data, and train little of it on the private records.

Yosinski, Clune, Bengio, Lipson: How transferable are features in deep neural networks?, 2014. As a defence: Choquette-Choo,
Tramer, Carlini, Papernot: Label-Only Membership Inference, 2021, section 5. The adversary knows the public model too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from engram.models import load_weights
from engram.seed import Seed
from engram.train.loop import started
from engram.train.recipe import Build, Given, Recipe


@dataclass(frozen=True)
class LastLayerOnly:
    """The network, of which only the last layer is trained. Batch-norm statistics still follow the records."""

    build: Build

    def __call__(self) -> nn.Module:
        net = self.build()
        last = last_layer(net)
        for name, p in net.named_parameters():
            p.requires_grad_(name.startswith(last))
        return net


def last_layer(net: nn.Module) -> str:
    """The name of the last module with weights of its own, with a dot; empty if the network itself is that."""
    name = [name for name, m in net.named_modules() if list(m.parameters(recurse=False))][-1]
    return f"{name}." if name else ""


def transfer(recipe: Recipe, *, weights: str = "", freeze: bool = True) -> Recipe:
    """Start from the weights in a file, with a new last layer; with `freeze`, nothing else is trained."""
    if not weights:
        raise ValueError("transfer needs a file of weights to start from, got none; set weights to its path")
    net = started(recipe, Seed(0))
    last = last_layer(net)
    held = {name: w for name, w in load_weights(weights).items() if not name.startswith(last)}
    _fits(weights, held, {name: w for name, w in net.state_dict().items() if not name.startswith(last)})
    build = LastLayerOnly(recipe.build) if freeze else recipe.build
    return replace(recipe, build=build, start=Given(held, partly=True))


def _fits(file: str, held: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    if not wanted:
        raise ValueError("transfer keeps all layers but the last, and this network has only one; use a deeper one")
    for name, w in wanted.items():
        if name not in held or held[name].shape != w.shape:
            found = f"has {tuple(held[name].shape)} there" if name in held else "does not have it"
            raise ValueError(
                f"the weights must fit the recipe's network: {name} is {tuple(w.shape)}, {file} {found}; "
                "build the recipe with the network that they come from"
            )
    if odd := sorted(held.keys() - wanted.keys()):
        raise ValueError(f"the weights must fit the recipe's network, which has no {odd[0]}; {file} is of another one")
