"""Share with few digits, or only the large numbers: made to save traffic, tried as defences.

Zhu, Liu, Han: Deep Leakage from Gradients, 2019. Sections 5.1 (half precision, int8) and 5.2 (pruned gradients).
Lin, Han, Mao, Wang, Dally: Deep Gradient Compression, 2018 (the pruning: the smallest share of each tensor is set to zero).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engram import check
from engram.train.recipe import Recipe


@dataclass(frozen=True)
class Half:
    """Rounded to half precision and back; what half cannot hold becomes its largest number."""

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        most = torch.finfo(torch.float16).max
        return [t.clamp(-most, most).to(torch.float16).to(t.dtype) for t in tensors]


@dataclass(frozen=True)
class Int8:
    """Each tensor on 255 equal steps from its largest size down to the negative of it."""

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        steps = [t.abs().max().clamp_min(torch.finfo(t.dtype).tiny) / 127 for t in tensors]
        return [torch.round(t / step) * step for t, step in zip(tensors, steps, strict=True)]


@dataclass(frozen=True)
class Pruned:
    """In each tensor this share of the numbers, the smallest, is set to zero."""

    share: float

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        return [self._pruned(t) for t in tensors]

    def _pruned(self, t: Tensor) -> Tensor:
        gone = int(self.share * t.numel())
        smallest = t.abs().flatten().argsort()[:gone]
        return t.flatten().index_fill(0, smallest, 0.0).view(t.shape)


def half_sharing(recipe: Recipe) -> Recipe:
    """The same training; what is shared is rounded to half precision."""
    return replace(recipe, share=(*recipe.share, Half()))


def int8_sharing(recipe: Recipe) -> Recipe:
    """The same training; what is shared is rounded to 8 bits a number."""
    return replace(recipe, share=(*recipe.share, Int8()))


def pruned_sharing(recipe: Recipe, *, share: float = 0.3) -> Recipe:
    """The same training; the smallest `share` of each tensor is shared as zero."""
    check.fraction("share", share)
    return replace(recipe, share=(*recipe.share, Pruned(share)))
