"""Images turned and shifted a little, with what is between pixels filled in evenly (bilinear)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def shifts(d: int) -> list[tuple[int, int]]:
    """No shift, and all 4 d with |rows| + |columns| = d."""
    ring = [(i, s * (d - abs(i))) for i in range(-d, d + 1) for s in ((1, -1) if abs(i) < d else (1,))]
    return [(0, 0), *ring]


def shifted(x: Tensor, rows: int, columns: int) -> Tensor:
    """x [image, channel, row, column]; what comes in from outside repeats the edge."""
    height, width = x.shape[-2:]
    i = (torch.arange(height, device=x.device) - rows).clamp(0, height - 1)
    j = (torch.arange(width, device=x.device) - columns).clamp(0, width - 1)
    return x[..., i[:, None], j[None]]


def rotated(x: Tensor, degrees: float) -> Tensor:
    """Turned about the centre, counterclockwise; what comes in from outside is the least value of all images.

    Within the image, bilinear: by 90 degrees a square image is only rearranged.
    """
    if not degrees:
        return x
    a, least = math.radians(degrees), x.min()
    height, width = x.shape[-2:]
    stretch = width / height
    turn = [[math.cos(a), -math.sin(a) / stretch, 0.0], [math.sin(a) * stretch, math.cos(a), 0.0]]
    grid = functional.affine_grid(torch.tensor([turn], dtype=x.dtype), [1, *x.shape[1:]], align_corners=False)
    grid = grid.to(x.device).expand(len(x), -1, -1, -1)
    turned = functional.grid_sample(x - least, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return turned + least


def copies(x: Tensor, *, rotation: float = 0, translation: int = 0) -> Sequence[Tensor]:
    """The image and its turns by both signs, or its shifts; each [image, channel, row, column]."""
    if rotation:
        return [x, rotated(x, -rotation), rotated(x, rotation)]
    return [shifted(x, *by) for by in shifts(translation)] if translation else [x]
