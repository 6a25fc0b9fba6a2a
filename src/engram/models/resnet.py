"""Residual networks for 32-pixel images.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2016.
Differs from the paper: ResNet-18 is the ImageNet network with a 3 x 3 stem and no first pooling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from engram.models.layers import Channels, GlobalMean, activation_layer, image_net, whole

Shortcut = Literal["pad", "project"]  # options A and B of section 3.3


@dataclass(frozen=True)
class ResNet20:
    """Section 4.2, n = 3: three stages of three blocks, 16, 32 and 64 wide, shortcuts without parameters.

    With `blocks=9` it is ResNet-56. Zhu, Liu, Han 2019 use both with `activation="sigmoid"`.
    """

    classes: int = 10
    channels: int = 3
    normalise: Channels | None = None
    blocks: int = 3
    activation: str = "relu"

    def __post_init__(self) -> None:
        whole(classes=self.classes, channels=self.channels, blocks=self.blocks)

    def __call__(self) -> nn.Module:
        n, kind = self.blocks, self.activation
        return image_net(
            self.normalise,
            conv1=_conv3(self.channels, 16, 1), bn1=nn.BatchNorm2d(16), relu=activation_layer(kind),
            layer1=_stage(16, 16, n, 1, "pad", kind),
            layer2=_stage(16, 32, n, 2, "pad", kind),
            layer3=_stage(32, 64, n, 2, "pad", kind),
            pool=GlobalMean(), linear=nn.Linear(64, self.classes),
        )  # fmt: skip


@dataclass(frozen=True)
class ResNet18:
    """Table 1, 18 layers: four stages of two blocks, 64 to 512 wide, projected shortcuts."""

    classes: int = 10
    channels: int = 3
    normalise: Channels | None = None

    def __post_init__(self) -> None:
        whole(classes=self.classes, channels=self.channels)

    def __call__(self) -> nn.Module:
        return image_net(
            self.normalise,
            conv1=_conv3(self.channels, 64, 1), bn1=nn.BatchNorm2d(64), relu=nn.ReLU(),
            layer1=_stage(64, 64, 2, 1, "project"),
            layer2=_stage(64, 128, 2, 2, "project"),
            layer3=_stage(128, 256, 2, 2, "project"),
            layer4=_stage(256, 512, 2, 2, "project"),
            pool=GlobalMean(), linear=nn.Linear(512, self.classes),
        )  # fmt: skip


class Block(nn.Module):
    """Two 3 x 3 convolutions and what came in, added."""

    def __init__(self, n_in: int, n_out: int, stride: int, shortcut: Shortcut, activation: str = "relu") -> None:
        super().__init__()
        self.activation = activation_layer(activation)
        self.conv1, self.bn1 = _conv3(n_in, n_out, stride), nn.BatchNorm2d(n_out)
        self.conv2, self.bn2 = _conv3(n_out, n_out, 1), nn.BatchNorm2d(n_out)
        self.shortcut = _shortcut(n_in, n_out, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.bn1(self.conv1(x)))
        mixed: Tensor = self.activation(self.bn2(self.conv2(inner)) + self.shortcut(x))
        return mixed


class Pad(nn.Module):
    """Option A: every second pixel, and zeros for the new channels, as many before as after."""

    def __init__(self, stride: int, extra: int) -> None:
        super().__init__()
        self.stride, self.extra = stride, extra

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(
            x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2)
        )


def _shortcut(n_in: int, n_out: int, stride: int, shortcut: Shortcut) -> nn.Module:
    if stride == 1 and n_in == n_out:
        return nn.Identity()
    if shortcut == "pad":
        return Pad(stride, n_out - n_in)
    return nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))


def _stage(
    n_in: int, n_out: int, blocks: int, stride: int, shortcut: Shortcut, activation: str = "relu"
) -> nn.Sequential:
    first = Block(n_in, n_out, stride, shortcut, activation)
    return nn.Sequential(first, *(Block(n_out, n_out, 1, shortcut, activation) for _ in range(blocks - 1)))


def _conv3(n_in: int, n_out: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
