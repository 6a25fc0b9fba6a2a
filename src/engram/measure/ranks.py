"""Scores and the truth about them as counts over the distinct scores: all that an order statistic can see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from engram import check
from engram.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class Ranked:
    """Distinct scores, highest first, with how many members and how many non-members hold each."""

    values: Floats  # [score]
    members: Ints  # [score]
    others: Ints  # [score]

    @cached_property
    def true_claims(self) -> Ints:
        """Members among those claimed when the highest 0, 1, ... distinct scores are claimed."""
        return np.concatenate([[0], np.cumsum(self.members)])  # [score + 1]

    @cached_property
    def false_claims(self) -> Ints:
        """Non-members among those claimed when the highest 0, 1, ... distinct scores are claimed."""
        return np.concatenate([[0], np.cumsum(self.others)])  # [score + 1]

    @property
    def n_members(self) -> int:
        return int(self.true_claims[-1])

    @property
    def n_others(self) -> int:
        return int(self.false_claims[-1])


def ranked(values: npt.ArrayLike, member: npt.ArrayLike) -> Ranked:
    """Scores with their truth, sorted and counted. Equal scores stay together, so no tie is ever broken."""
    scores, truth = np.asarray(values, dtype=np.float64).ravel(), np.asarray(member).ravel()
    _sound(scores, truth)
    order = np.argsort(-scores, kind="stable")
    scores, truth = scores[order], truth[order]
    first = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    sizes = np.diff(first, append=len(scores))
    members = np.add.reduceat(truth.astype(np.int64), first)
    return Ranked(scores[first], members, sizes - members)


def _sound(scores: Floats, truth: npt.NDArray[np.bool_]) -> None:
    check.same_length(scores=scores, member=truth)
    if truth.dtype != np.bool_:
        raise TypeError(f"member must be true or false for each record, got {truth.dtype}; compare it with 1 first")
    if np.isnan(scores).any():
        row = int(np.flatnonzero(np.isnan(scores))[0])
        raise ValueError(
            f"scores must be numbers or infinite, got NaN in record {row} ({int(np.isnan(scores).sum())} in all); "
            "an attack that cannot score a record must leave it out"
        )
    members = int(truth.sum())
    if members in (0, len(truth)):
        raise ValueError(
            f"there must be members and non-members, got {members} and {len(truth) - members}; add records of both kinds"
        )
