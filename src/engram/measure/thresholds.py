"""The threshold above which a claim of membership is right most often. Set it on shadows, use it on the target."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from engram import check
from engram.measure.ranks import ranked
from engram.types import Bools, Floats

HUGE = float(np.finfo(np.float64).max)


def best(values: npt.ArrayLike, member: npt.ArrayLike) -> float:
    """The threshold of the highest balanced accuracy, where `values > threshold` is claimed.

    It lies half-way between two neighbouring scores (an infinite score counts as the largest float). Of thresholds that
    do equally well the highest is taken, so scores that say nothing yield infinity: nobody is claimed. Works on arrays
    of any shape, such as [shadow, record].

    >>> best([0.1, 0.4, 0.6, 0.9], [False, False, True, True])
    0.5
    """
    counts = ranked(values, member)
    gain = counts.true_claims * counts.n_others - counts.false_claims * counts.n_members
    claimed = int(np.argmax(gain))  # whole numbers and the first maximum: no rounding, fewest claims
    if claimed == 0:
        return float("inf")
    return _between(float(counts.values[claimed]), float(counts.values[claimed - 1]))


def halfway(values: npt.ArrayLike, member: npt.ArrayLike) -> Floats:
    """Of each record, half-way between its mean score on shadows trained with it and on those without; [record].

    `values` and `member` are [shadow, record], and every record is in some of the shadows and not in others.
    """
    scores, given = np.asarray(values, float), np.asarray(member)
    inside = np.where(given, scores, 0).sum(0) / given.sum(0)
    outside = np.where(given, 0, scores).sum(0) / (~given).sum(0)
    return np.asarray((inside + outside) / 2)


def best_by_group(values: npt.ArrayLike, member: npt.ArrayLike, group: npt.ArrayLike, groups: int) -> Floats:
    """One threshold a group, such as a class. A group with only members or only non-members gets the global one.

    `group` holds whole numbers below `groups`, in a shape that broadcasts to that of `values`.
    """
    scores = np.asarray(values, dtype=np.float64)
    truth = np.broadcast_to(np.asarray(member), scores.shape).ravel()
    kind = np.broadcast_to(
        check.labels("group", np.ravel(group), groups).reshape(np.shape(group)), scores.shape
    ).ravel()
    scores = scores.ravel()
    order = np.argsort(kind, kind="stable")
    ends = np.searchsorted(kind[order], np.arange(groups + 1))
    parts = [order[a:b] for a, b in pairwise(ends)]
    everywhere = best(scores, truth)
    return np.array([best(scores[p], truth[p]) if _both(truth[p]) else everywhere for p in parts])


def _both(truth: Bools) -> bool:
    return bool(truth.any()) and not bool(truth.all())


def _between(below: float, above: float) -> float:
    """Half-way, but never as high as `above` and never lower than `below`."""
    low, high = max(below, -HUGE), min(above, HUGE)
    middle = low / 2 + high / 2
    return middle if low < middle < high else low
