"""Fully connected networks, for tables and for small images."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from engram import check
from engram.models.layers import activation_layer, whole


@dataclass(frozen=True)
class MLP:
    """`depth` hidden layers of equal width; images are flattened. The default network for digits.

    >>> sum(p.numel() for p in MLP(inputs=64, classes=10)().parameters())
    38410
    """

    inputs: int = 64
    classes: int = 10
    width: int = 512
    depth: int = 1
    activation: str = "relu"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        whole(inputs=self.inputs, classes=self.classes, width=self.width, depth=self.depth)
        check.fraction("dropout", self.dropout, zero=True)
        activation_layer(self.activation)

    def __call__(self) -> nn.Module:
        sizes = [self.inputs, *[self.width] * self.depth]
        layers: list[nn.Module] = [nn.Flatten()]
        for n_in, n_out in pairwise(sizes):
            layers += [nn.Linear(n_in, n_out), activation_layer(self.activation)]
            layers += [nn.Dropout(self.dropout)] if self.dropout else []
        return nn.Sequential(*layers, nn.Linear(self.width, self.classes))


@dataclass(frozen=True)
class TanhFC:
    """The tabular network of Choquette-Choo, Tramer, Carlini, Papernot: Label-Only Membership Inference, 2021."""

    inputs: int
    classes: int
    depth: int = 1

    def __post_init__(self) -> None:
        whole(inputs=self.inputs, classes=self.classes, depth=self.depth)

    def __call__(self) -> nn.Module:
        return MLP(self.inputs, self.classes, width=128, depth=self.depth, activation="tanh")()


@dataclass(frozen=True)
class ColumnFC:
    """The tabular network of WeMem (Shang et al., NDSS 2025): 256 and 128 units, each with ReLU and dropout."""

    inputs: int
    classes: int
    dropout: float = 0.1

    def __post_init__(self) -> None:
        whole(inputs=self.inputs, classes=self.classes)
        check.fraction("dropout", self.dropout, zero=True)

    def __call__(self) -> nn.Module:
        return nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(self.inputs, 256), relu1=nn.ReLU(), drop1=nn.Dropout(self.dropout),
                fc2=nn.Linear(256, 128), relu2=nn.ReLU(), drop2=nn.Dropout(self.dropout),
                fc3=nn.Linear(128, self.classes),
            )
        )  # fmt: skip
