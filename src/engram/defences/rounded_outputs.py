"""Answer with few digits. Hides fine differences in confidence, not whether the label is right.

Shokri, Stronati, Song, Shmatikov: Membership Inference Attacks against Machine Learning Models, 2017. Section VIII-A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engram import check
from engram.train.recipe import Recipe


@dataclass(frozen=True)
class Rounded:
    """Probabilities to `digits` decimals. A zero stands for half of the last digit, so that logarithms stay finite."""

    digits: int

    def __call__(self, p: Tensor) -> Tensor:
        unit = 10.0**-self.digits
        return torch.round(p / unit).mul(unit).clamp_min(unit / 2)


def rounded_outputs(recipe: Recipe, *, digits: int = 1) -> Recipe:
    """The same training; what is answered is rounded."""
    check.whole("digits", digits, 1)
    return replace(recipe, after=(*recipe.after, Rounded(digits)))
