"""Records that occur twice. One that is both a member and a non-member has no membership to be inferred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engram import check
from engram.types import Bools, Ints


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Rows whose record occurs more than once, byte for byte; counted once for each such row."""

    across: Ints  # rows whose record is both a member and a non-member
    members: Ints  # rows of members whose record is also another member
    non_members: Ints  # rows of non-members whose record is also another non-member
    group: Ints  # [record] the first row that holds the same record

    def __bool__(self) -> bool:
        return bool(len(self.across) or len(self.members) or len(self.non_members))

    def __str__(self) -> str:
        return (
            f"{len(self.across)} records occur among members and among non-members, "
            f"{len(self.members)} twice among members, {len(self.non_members)} twice among non-members"
        )


def duplicates(x: npt.ArrayLike, member: npt.ArrayLike) -> Duplicates:
    """Exact copies among records, by their bytes and in about linear time. Labels are not compared.

    >>> found = duplicates([[1, 2], [3, 4], [1, 2]], [True, True, False])
    >>> found.across.tolist()
    [0, 2]
    """
    x, member = np.asarray(x), np.asarray(member)
    n = check.same_length(records=x, member=member)
    if member.dtype != bool or member.ndim != 1:
        raise TypeError(f"member must be one bool a record, got {member.dtype} of shape {member.shape}")
    first: dict[bytes, int] = {}
    rows = np.ascontiguousarray(x)
    group = np.fromiter((first.setdefault(rows[i].tobytes(), i) for i in range(n)), np.int64, n)
    inside, outside = _how_often(group, member), _how_often(group, ~member)
    return Duplicates(
        across=np.flatnonzero((inside > 0) & (outside > 0)),
        members=np.flatnonzero(member & (inside > 1)),
        non_members=np.flatnonzero(~member & (outside > 1)),
        group=group,
    )


def _how_often(group: Ints, chosen: Bools) -> Ints:
    """How many of the chosen rows hold the same record as each row."""
    return np.bincount(group[chosen], minlength=len(group))[group]
