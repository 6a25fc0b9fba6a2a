"""Strong weight decay: small weights cannot store single records. Costs little at first, then accuracy on both sides."""

from __future__ import annotations

from dataclasses import replace

from engram import check
from engram.train.recipe import Recipe


def l2(recipe: Recipe, *, weight_decay: float = 0.02) -> Recipe:
    """The same training with this much of each weight added to its gradient."""
    check.positive("weight_decay", weight_decay)
    return replace(recipe, optimiser=replace(recipe.optimiser, weight_decay=weight_decay))
