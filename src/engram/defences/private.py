"""Train with differential privacy: no attack whatever can do better than the budget allows.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy, 2016.
In an audit the noise is drawn from the seed, so that the audit can be repeated: a simulation, which promises nothing.
"""

from __future__ import annotations

from dataclasses import replace

from engram.accounting.calibration import noise_multiplier as least_noise
from engram.train.private import Private
from engram.train.recipe import Recipe
from engram.train.sampling import Poisson
from engram.train.steps import Plain


def private(
    recipe: Recipe,
    *,
    epsilon: float | None = None,
    delta: float = 1e-5,
    noise_multiplier: float = 1.0,
    clip_norm: float = 1.0,
    rate: float = 0.1,
) -> Recipe:
    """The same training by noised sums of clipped gradients. With `epsilon`, just enough noise for that budget."""
    if not isinstance(recipe.step, Plain):
        raise TypeError(f"private training replaces the plain step, and this recipe has {recipe.step!r}")
    sampler = Poisson(rate)
    noise = noise_multiplier
    if epsilon is not None:
        noise = least_noise(epsilon=epsilon, delta=delta, rate=rate, steps=recipe.epochs * sampler.batches)
    return replace(recipe, sampler=sampler, step=Private(noise, clip_norm, rate))
