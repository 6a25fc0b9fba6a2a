"""The defences, by name: functions from recipe to recipe. A new one is a file here, a test, and a line in this table.

An adversary trains its shadows from the recipe, so every attack on a defended model knows the defence.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engram import check
from engram.train.recipe import Recipe

Defence = Callable[[Recipe], Recipe]

DEFENCES = {
    "adversarial-regularisation": "engram.defences.adversarial_regularisation:adversarial_regularisation",
    "augmentation": "engram.defences.augmentation:augmentation",
    "clipped-sharing": "engram.defences.noisy_sharing:clipped_sharing",
    "dropout": "engram.defences.dropout:dropout",
    "early-stopping": "engram.defences.early_stopping:early_stopping",
    "gaussian-sharing": "engram.defences.noisy_sharing:gaussian_sharing",
    "half-sharing": "engram.defences.coarse_sharing:half_sharing",
    "int8-sharing": "engram.defences.coarse_sharing:int8_sharing",
    "l2": "engram.defences.l2:l2",
    "label-smoothing": "engram.defences.label_smoothing:label_smoothing",
    "laplace-sharing": "engram.defences.noisy_sharing:laplace_sharing",
    "memguard": "engram.defences.memguard:memguard",
    "memguard-optimised": "engram.defences.memguard:memguard_optimised",
    "private": "engram.defences.private:private",
    "pruned-sharing": "engram.defences.coarse_sharing:pruned_sharing",
    "relaxloss": "engram.defences.relaxloss:relaxloss",
    "rounded-outputs": "engram.defences.rounded_outputs:rounded_outputs",
    "top-k-outputs": "engram.defences.top_k_outputs:top_k_outputs",
    "transfer": "engram.defences.transfer:transfer",
}


def known() -> dict[str, str]:
    """Name and place of every defence: ours, and those that installed packages add."""
    return {e.name: e.value for e in importlib.metadata.entry_points(group="engram.defences")} | DEFENCES


def function(name: str) -> Callable[..., Recipe]:
    """The function of a defence."""
    module, _, attribute = known()[check.known("defence", name, known())].partition(":")
    found: Callable[..., Recipe] = getattr(importlib.import_module(module), attribute)
    return found


def knobs_of(name: str) -> dict[str, Any]:
    """The knobs of a defence and their defaults."""
    parameters = list(inspect.signature(function(name)).parameters.values())[1:]
    return {p.name: p.default for p in parameters}


def defence(name: str, knobs: Mapping[str, Any] | None = None) -> Defence:
    """A defence with these knobs; the others have their defaults."""
    knobs = knobs or {}
    for knob in knobs:
        check.known(f"knob of {name}", knob, knobs_of(name))
    return partial(function(name), **knobs)
