"""Networks that answer a record when they are shown a model's weights.

Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022. Table IV (for digits) and Table VI.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from engram.models.layers import whole


@dataclass(frozen=True)
class RecoNN:
    """Two wide layers with ReLU, and a number for every pixel: the reconstructor for pictures of one channel.

    >>> RecoNN(inputs=760, shape=(1, 8, 8), width=100)()(torch.zeros(2, 760)).shape
    torch.Size([2, 64])
    """

    inputs: int
    shape: tuple[int, ...]
    width: int = 1000
    depth: int = 2

    def __post_init__(self) -> None:
        whole(inputs=self.inputs, width=self.width, depth=self.depth)

    def __call__(self) -> nn.Module:
        sizes = [self.inputs, *[self.width] * self.depth]
        layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(self.width, math.prod(self.shape)))


@dataclass(frozen=True)
class TransposedCNN:
    """One wide layer, and two transposed convolutions that double its picture: the reconstructor for colour pictures.

    Of the paper at `width` 4096 and `inner` 64 for 32 x 32 pixels (226 million weights); smaller ones say so.
    """

    inputs: int
    shape: tuple[int, ...]  # channels, rows, columns; sides divisible by 4
    width: int = 4096
    inner: int = 64
    maps: int = 32

    def __post_init__(self) -> None:
        whole(inputs=self.inputs, width=self.width, inner=self.inner, maps=self.maps)
        if len(self.shape) != 3 or self.shape[1] % 4 or self.shape[2] % 4:
            raise ValueError(f"the pictures must be [channel, row, column] with sides divisible by 4, got {self.shape}")

    def __call__(self) -> nn.Module:
        channels, rows, columns = self.shape
        places = rows // 4 * (columns // 4)
        return nn.Sequential(
            nn.Linear(self.inputs, self.width), nn.ReLU(),
            nn.Linear(self.width, self.inner * places) if self.width != self.inner * places else nn.Identity(),
            nn.Unflatten(1, (self.inner, rows // 4, columns // 4)),
            nn.ConvTranspose2d(self.inner, self.maps, 5, 2, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(self.maps, channels, 5, 2, 2, 1), nn.Flatten(),
        )  # fmt: skip


def answered(module: nn.Module, rows: Tensor, shape: tuple[int, ...], at_once: int = 1024) -> Tensor:
    """The records that a reconstructor answers, [record, ...]"""
    with torch.no_grad():
        return torch.cat([module(part) for part in torch.split(rows, at_once)]).view(-1, *shape)
