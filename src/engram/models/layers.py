"""What several networks are made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from engram import check

Channels = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each channel

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "celu": nn.CELU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "hardtanh": nn.Hardtanh,
    "identity": nn.Identity,
    "leaky_relu": nn.LeakyReLU,
    "max(-0.5, x)": partial(nn.Threshold, -0.5, -0.5),
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "tanh": nn.Tanh,
}


def activation_layer(name: str) -> nn.Module:
    return ACTIVATIONS[check.known("activation", name, ACTIVATIONS)]()


def whole(**numbers: int) -> None:
    """Each of the named sizes is a whole number of at least one."""
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"{name} must be a whole number, got {number!r}")
        check.at_least(name, number, 1)


class Normalise(nn.Module):
    """(x - mean) / std, channel by channel. Its two constants belong to the network, not to its weights."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        check.same_length(mean=mean, std=std)
        for number in std:
            check.positive("each standard deviation", number)
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class GlobalMean(nn.Module):
    """The mean over all pixels of each channel."""

    def forward(self, x: Tensor) -> Tensor:  # [record, channel, row, column] -> [record, channel]
        return x.mean((-2, -1))


def image_net(normalise: Channels | None, **layers: nn.Module) -> nn.Sequential:
    """Named layers in a row; with `normalise`, its constants first. Weights are called the same either way."""
    first = {} if normalise is None else {"normalise": Normalise(*normalise)}
    return nn.Sequential(OrderedDict({**first, **layers}))
