"""Who is a member: random disjoint parts of a data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram import check
from engram.seed import Seed
from engram.types import Ints


def split(n: int, fractions: Sequence[float] = (0.5, 0.5), *, seed: Seed) -> tuple[Ints, ...]:
    """Random disjoint parts of `n` records, as sorted row numbers; halves (members, non-members) unless told.

    Fractions may add up to less than one: the rest is left out. Members and non-members drawn at random differ in
    nothing but membership; parts published as "train" and "test" often differ in more.

    >>> members, others = split(10, seed=Seed(7))
    >>> len(members), len(others), len({*members, *others})
    (5, 5, 10)
    """
    for share in fractions:
        check.fraction("each fraction", share, one=True)
    if sum(fractions) > 1 + 1e-9:
        raise ValueError(f"fractions must add up to at most 1, got {tuple(fractions)}; make them smaller")
    ends = np.rint(np.cumsum(fractions) * n).astype(int)
    if np.diff(ends, prepend=0).min(initial=1) < 1:
        raise ValueError(
            f"every part needs a record, got {n} records for fractions {tuple(fractions)}; give more records"
        )
    order = seed.numpy().permutation(n)
    return tuple(np.sort(part).astype(np.int64) for part in np.split(order[: ends[-1]], ends[:-1]))
