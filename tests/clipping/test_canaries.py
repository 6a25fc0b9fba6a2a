"""A training audited by its canaries: what it leaks stays below what it claims, and would not without its noise."""

from __future__ import annotations

import pytest
from clipping.canaries import Canaries

from engram.accounting.calibration import noise_multiplier

WORLD, EPSILON, DELTA = Canaries(), 1.5, 1e-5
NOISE = noise_multiplier(epsilon=EPSILON, delta=DELTA, rate=WORLD.rate, steps=WORLD.steps)


@pytest.mark.parametrize("seed", range(2))
def test_no_observer_proves_more_than_the_claim(seed):
    """A bound is wrong once in twenty at worst; by this noise far less often."""
    assert max(WORLD.lower_bounds(NOISE, DELTA, seed).values()) < EPSILON


@pytest.mark.parametrize("seed", range(2))
def test_without_the_noise_every_observer_refutes_the_claim(seed):
    assert min(WORLD.lower_bounds(0.0, DELTA, seed).values()) > EPSILON
