"""Rates counted on records that were not used to choose them, and what follows from two of them.

Clopper, Pearson: The use of confidence or fiducial limits illustrated in the case of the binomial, 1934.
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import betaincinv

from engram import check

Interval = tuple[float, float]


@dataclass(frozen=True)
class Claimed:
    """How many members and how many non-members were claimed to be members."""

    true: int
    members: int
    false: int
    others: int

    def __post_init__(self) -> None:
        if not (0 <= self.true <= self.members and 0 <= self.false <= self.others):
            raise ValueError(f"claims cannot outnumber records, got {self}; count again")

    @property
    def tpr(self) -> float:
        return self.true / self.members

    @property
    def fpr(self) -> float:
        return self.false / self.others


def at_least(count: int, n: int, miss: float) -> float:
    """A lower bound on the rate behind `count` of `n`, wrong with probability at most `miss` (Clopper-Pearson)."""
    return float(betaincinv(count, n - count + 1, miss)) if count else 0.0


def at_most(count: int, n: int, miss: float) -> float:
    """An upper bound on the rate behind `count` of `n`, wrong with probability at most `miss` (Clopper-Pearson)."""
    return float(betaincinv(count + 1, n - count, 1 - miss)) if count < n else 1.0


def clopper_pearson(count: int, n: int, level: float = 0.95) -> Interval:
    """The interval of the rate behind `count` of `n`. Exact: it covers with probability at least `level`.

    >>> low, high = clopper_pearson(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    miss = (1 - check.fraction("level", level)) / 2
    return at_least(count, n, miss), at_most(count, n, miss)


def balanced_accuracy(tpr: float, fpr: float) -> float:
    return (tpr + 1 - fpr) / 2


def ppv(tpr: float, fpr: float, prior: float) -> float:
    """How many of those claimed are members where a fraction `prior` of the records are. NaN where nobody is claimed."""
    claimed = prior * tpr + (1 - prior) * fpr
    return prior * tpr / claimed if claimed else float("nan")
