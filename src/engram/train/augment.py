"""Changes to the images of a batch, drawn anew each time: what `Recipe.before` holds.

Images are [..., channel, row, column]; each one draws for itself. Randomness is torch's, which the loop seeds and gives back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engram import check


@dataclass(frozen=True)
class Flipped:
    """Left and right exchanged, in a `share` of the images."""

    share: float = 0.5

    def __post_init__(self) -> None:
        check.fraction("share", self.share, zero=True, one=True)

    def __call__(self, x: Tensor) -> Tensor:
        _images(x)
        turn = torch.rand(x.shape[:-3], device=x.device) < self.share
        return torch.where(turn[..., None, None, None], x.flip(-1), x)


@dataclass(frozen=True)
class Shifted:
    """Moved by up to `pixels` in each direction, zeros moving in."""

    pixels: int = 4

    def __post_init__(self) -> None:
        check.at_least("pixels", self.pixels, 1)

    def __call__(self, x: Tensor) -> Tensor:
        _images(x)
        flat = x.reshape(-1, *x.shape[-3:])
        n, _, rows, columns = flat.shape
        padded = functional.pad(flat, [self.pixels] * 4)
        down, right = torch.randint(0, 2 * self.pixels + 1, (2, n, 1), device=x.device)
        row = (torch.arange(rows, device=x.device) + down)[:, :, None]  # [image, row, 1]
        column = (torch.arange(columns, device=x.device) + right)[:, None]  # [image, 1, column]
        moved = padded[torch.arange(n, device=x.device)[:, None, None], :, row, column]  # [image, row, column, channel]
        return moved.permute(0, 3, 1, 2).reshape(x.shape)


def _images(x: Tensor) -> None:
    if x.ndim < 4:
        raise ValueError(
            f"augmentation needs images, [record, channel, row, column], got records of shape {tuple(x.shape[1:])}; "
            "leave it out for tables"
        )
