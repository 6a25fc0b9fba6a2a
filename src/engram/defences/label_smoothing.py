"""Train towards labels that leave something to the other classes.

Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture, 2016. Section 7.
It calibrates a model; whether it hides members is for an audit to say: some attacks gain from it.
"""

from __future__ import annotations

from dataclasses import replace

from engram import check
from engram.train.losses import CrossEntropy
from engram.train.recipe import Recipe


def label_smoothing(recipe: Recipe, *, smoothing: float = 0.2) -> Recipe:
    """The same training with cross-entropy towards smoothed labels."""
    check.fraction("smoothing", smoothing)
    if not isinstance(recipe.loss, CrossEntropy):
        raise TypeError(f"label smoothing replaces cross-entropy, and this recipe trains with {recipe.loss!r}")
    return replace(recipe, loss=CrossEntropy(smoothing))
