"""Poisson sampling: what the accountant of a private training run assumes, and what shuffled epochs are not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engram import check
from engram.seed import Seed
from engram.types import Ints


def poisson(
    records: int,
    rate: float,
    *,
    steps: int,
    share: tuple[int, int] = (0, 1),
    simulated: Seed | None = None,
) -> Iterator[Ints]:
    """`steps` logical batches of positions 0..records-1: every record is in each with probability `rate`, on its own.

    Batches differ in size and may be empty; a step without `backward` is then still owed (it adds the noise).
    Cut a batch into as many pieces as memory asks for (`numpy.array_split`) and call `backward` on each. With several
    processes, `share=(rank, world)` gives each its own records; together they are a Poisson sample of all.
    The draw comes from operating-system entropy; from `simulated` only where no epsilon will be claimed.

    >>> [len(batch) <= 10 for batch in poisson(10, 0.5, steps=2)]
    [True, True]
    """
    check.at_least("records", records, 0)
    check.fraction("rate", rate, zero=True, one=True)
    check.at_least("steps", steps, 0)
    rank, world = share
    if not 0 <= rank < world:
        raise ValueError(f"share must be (rank, world) with 0 <= rank < world, got {share}")
    own = np.arange(rank, records, world, dtype=np.int64)
    stream = np.random.default_rng() if simulated is None else simulated.child("sample", rank).numpy()
    return (own[stream.random(len(own)) < rate] for _ in range(steps))
