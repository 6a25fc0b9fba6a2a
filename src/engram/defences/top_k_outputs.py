"""Answer for the most probable classes only.

Shokri, Stronati, Song, Shmatikov: Membership Inference Attacks against Machine Learning Models, 2017. Section VIII-A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from engram import check
from engram.train.recipe import Recipe


@dataclass(frozen=True)
class Top:
    """The `classes` largest probabilities; the others share what is left, as anybody who reads the answer can work out."""

    classes: int

    def __call__(self, p: Tensor) -> Tensor:
        ranks = p.argsort(dim=-1, descending=True, stable=True).argsort(-1)
        hidden = ranks >= self.classes
        left = (p * hidden).sum(-1, keepdim=True) / hidden.sum(-1, keepdim=True).clamp_min(1)
        least = p.masked_fill(hidden, 1).amin(-1, keepdim=True)  # a mean of equal numbers may be rounded above them
        return p.where(~hidden, left.minimum(least))


def top_k_outputs(recipe: Recipe, *, classes: int = 1) -> Recipe:
    """The same training; only the probabilities of the first `classes` classes are answered."""
    check.whole("classes", classes, 1)
    return replace(recipe, after=(*recipe.after, Top(classes)))
