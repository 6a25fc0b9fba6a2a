"""Train on shifted and flipped copies: no image is seen twice the same.

Shorten, Khoshgoftaar: A survey on Image Data Augmentation for Deep Learning, 2019. As a defence: Choquette-Choo, Tramer,
Carlini, Papernot: Label-Only Membership Inference, 2021, section 5.2, which finds that it can also help the adversary.
"""

from __future__ import annotations

from dataclasses import replace

from engram.train.augment import Flipped, Shifted
from engram.train.recipe import Recipe


def augmentation(recipe: Recipe, *, pixels: int = 4, flip: bool = True) -> Recipe:
    """The same training on images moved by up to `pixels` and, with `flip`, mirrored half of the time."""
    return replace(recipe, before=(*recipe.before, Shifted(pixels), *([Flipped()] if flip else [])))
