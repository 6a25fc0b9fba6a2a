"""Densely connected networks for 32-pixel images.

Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks, 2017. Table 1, DenseNet-121.
Differs from the paper: a 3 x 3 stem without normalisation and pooling, so that the first block sees all 32 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engram.models.layers import Channels, GlobalMean, image_net, whole


@dataclass(frozen=True)
class DenseNet121:
    """Four dense blocks of 6, 12, 24 and 16 layers, bottlenecked, halved in width and size between blocks."""

    classes: int = 10
    channels: int = 3
    growth: int = 32
    normalise: Channels | None = None

    def __post_init__(self) -> None:
        whole(classes=self.classes, channels=self.channels, growth=self.growth)

    def __call__(self) -> nn.Module:
        width = 2 * self.growth
        layers: dict[str, nn.Module] = {"conv1": nn.Conv2d(self.channels, width, 3, padding=1, bias=False)}
        for stage, depth in enumerate((6, 12, 24, 16), 1):
            if stage > 1:
                layers[f"transition{stage - 1}"], width = _transition(width), width // 2
            layers[f"dense{stage}"] = nn.Sequential(*(Grow(width + i * self.growth, self.growth) for i in range(depth)))
            width += depth * self.growth
        last = {
            "bn": nn.BatchNorm2d(width),
            "relu": nn.ReLU(),
            "pool": GlobalMean(),
            "linear": nn.Linear(width, self.classes),
        }
        return image_net(self.normalise, **layers, **last)


class Grow(nn.Module):
    """One layer: BN-ReLU-Conv(1 x 1, four times the growth)-BN-ReLU-Conv(3 x 3), joined to what came in."""

    def __init__(self, n_in: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(n_in), nn.ReLU(), nn.Conv2d(n_in, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], -3)


def _transition(width: int) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2))
