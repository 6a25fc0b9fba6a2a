"""Score matrices without any training: what shadows might have said, with and without a leak."""

from __future__ import annotations

import numpy as np

from engram.population import Population, paired
from engram.seed import Seed


def drawn(signal, *, shadows=16, records=60, leak=1.5, seed=0, confidence=False):
    """A target's answers phi[view, record], its truth, and a population; members stand `leak` deviations higher."""
    stream = np.random.default_rng(seed)
    member = paired(shadows + 2, records, Seed(seed))
    hardness = stream.normal(size=records) * 2
    spread = stream.uniform(0.5, 2, size=records)
    told = hardness + spread * (stream.normal(size=member.shape) + leak * member)
    told = 1 / (1 + np.exp(-told)) if confidence else told
    shadow = Population(member[2:], {signal.__name__: told[2:, None]})
    return told[0][None], member[0], shadow
