"""Noise on what is shared, with or without clipping it first.

Zhu, Liu, Han: Deep Leakage from Gradients, 2019. Section 5.1 (Gaussian and Laplace noise of a given variance).
Abadi et al.: Deep Learning with Differential Privacy, 2016. Section 3.1, here for the whole update: clip, then noise.
None of these carries an epsilon here: the noise is drawn from the seed so that an audit can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from engram import check
from engram.train.recipe import Recipe


@dataclass(frozen=True)
class Noise:
    """Independent noise of this standard deviation on every number."""

    deviation: float
    shape: Literal["gaussian", "laplace"] = "gaussian"

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        return [t + self.deviation * self._drawn(t) for t in tensors]

    def _drawn(self, like: Tensor) -> Tensor:
        if self.shape == "gaussian":
            return torch.randn_like(like)
        one, other = (torch.empty_like(like).exponential_() for _ in range(2))
        return (one - other) / 2**0.5  # the difference is a Laplace of scale one, hence of variance two


@dataclass(frozen=True)
class Clipped:
    """All tensors together shortened to this length, if they are longer."""

    norm: float

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        length = torch.stack([t.square().sum() for t in tensors]).sum().sqrt()
        factor = (self.norm / length).clamp(max=1.0) if length > 0 else length + 1
        return [t * factor for t in tensors]


def gaussian_sharing(recipe: Recipe, *, deviation: float = 0.01) -> Recipe:
    """The same training; what is shared carries Gaussian noise."""
    check.positive("deviation", deviation)
    return replace(recipe, share=(*recipe.share, Noise(deviation)))


def laplace_sharing(recipe: Recipe, *, deviation: float = 0.01) -> Recipe:
    """The same training; what is shared carries Laplace noise of this standard deviation."""
    check.positive("deviation", deviation)
    return replace(recipe, share=(*recipe.share, Noise(deviation, "laplace")))


def clipped_sharing(recipe: Recipe, *, clip_norm: float = 1.0, noise_multiplier: float = 0.1) -> Recipe:
    """The same training; the whole update is clipped, and carries Gaussian noise of `noise_multiplier` times that length."""
    check.positive("clip_norm", clip_norm)
    check.positive("noise_multiplier", noise_multiplier)
    return replace(recipe, share=(*recipe.share, Clipped(clip_norm), Noise(noise_multiplier * clip_norm)))
