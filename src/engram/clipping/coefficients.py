"""From norms to the weight of each record, such that no record moves the sum by more than the clip norm.

Abadi et al.: Deep Learning with Differential Privacy, 2016 (flat). Bu, Wang, Zha, Karypis: Automatic Clipping, 2023
(every record is scaled to C |g| / (|g| + gamma) < C). Per-layer: each of L layers to C / sqrt(L), so that together they
stay below C.
Differs from the papers: norms are taken in float64 and as large as rounding may have hidden, and the weight leaves a
margin for the rounding of the product it goes into.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from engram.clipping.pieces import Norms

Clipping = Literal["flat", "per-layer", "automatic"]
CLIPPINGS: tuple[Clipping, ...] = get_args(Clipping)
GAMMA = 0.01  # of the automatic rule, in the units of the gradient


def gathered(norms: Sequence[Norms], groups: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
    """Squared norms of each group of parameters, and the largest they may be: [record, group] each, float64."""
    squares = _side_by_side([part.squares for part in norms])
    slack = [part.slack for part in norms if part.slack is not None]
    owner = torch.tensor(
        [g for g, part in zip(groups, norms, strict=True) if part.slack is not None], dtype=torch.int64
    )
    exact = _by_group(squares, torch.tensor(groups), count)
    if not slack:
        return exact, exact
    return exact, exact + _by_group(_side_by_side(slack), owner, count)


def _side_by_side(columns: Sequence[Tensor]) -> Tensor:
    """[record, column] in float64; each kind is cast at once, because every cast on its own costs a kernel."""
    alike = len({column.dtype for column in columns}) == 1
    return torch.stack(list(columns) if alike else [column.double() for column in columns], 1).double()


def _by_group(values: Tensor, owner: Tensor, count: int) -> Tensor:
    """Sums the columns [record, parameter] of each group; a product, because its order never changes."""
    if count == 1:
        return values.sum(1, keepdim=True)
    chosen = torch.nn.functional.one_hot(owner, count).to(values.dtype)
    return values @ chosen.to(values.device, non_blocking=True)


def weights(largest: Tensor, clip_norm: float, clipping: Clipping, margin: float) -> Tensor:
    """[record, group] what each record's gradient is multiplied by."""
    norms = largest.sqrt() * (1 + margin)
    bound = clip_norm / math.sqrt(largest.shape[1])
    if clipping == "automatic":
        return bound / (norms + GAMMA)
    return (bound / norms).clamp_max(1 / (1 + margin)) if math.isfinite(bound) else torch.ones_like(norms)
