"""Stop before the model learns by heart: when the loss on held-out training records no longer falls."""

from __future__ import annotations

from dataclasses import replace

from engram import check
from engram.train.recipe import Patience, Recipe


def early_stopping(recipe: Recipe, *, patience: int = 5, held_out: float = 0.1) -> Recipe:
    """The same training, stopped after `patience` epochs without gain. Costs the held-out share of the records."""
    check.whole("patience", patience, 1)
    return replace(recipe, stop=Patience(patience, held_out))
