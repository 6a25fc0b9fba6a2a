"""How well scores tell members from non-members, at every threshold and at chosen ones.

DeLong, DeLong, Clarke-Pearson: Comparing the areas under two or more correlated ROC curves, 1988 (variance of the area).
Pepe: The Statistical Evaluation of Medical Tests, 2003, section 5.2 (intervals of the area on the logit scale).
Efron: Bootstrap methods, 1979 (members and non-members are resampled apart, the threshold is set anew each time).
Differs from the papers: no interval is narrower than an exact one that the same counts allow, so neither a perfect score
nor a rate of zero comes out as certain.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from engram import check
from engram.measure.ranks import Ranked
from engram.measure.rates import Interval, at_least, clopper_pearson
from engram.seed import Seed
from engram.types import Floats, Ints

RESAMPLES = 1000
RESOLVED = 10  # false positives that a rate must allow, among the non-members there are
AT_ONCE = 2**22  # numbers held at a time while resampling


def curve(scores: Ranked) -> tuple[Floats, Floats]:
    """False and true positive rates, from claiming nobody to claiming everybody; equal scores are claimed together."""
    return scores.false_claims / scores.n_others, scores.true_claims / scores.n_members


def auc(scores: Ranked) -> float:
    """The probability that a member scores above a non-member, where equal scores count one half."""
    return float((scores.members * _placed(scores.others)).sum() / scores.n_members)


def auc_interval(scores: Ranked, level: float = 0.95) -> Interval:
    """By DeLong's variance on the logit scale; where the two kinds do not overlap, from disjoint pairs, exactly."""
    miss = 1 - check.fraction("level", level)
    area, pairs = auc(scores), min(scores.n_members, scores.n_others)
    if area in (0.0, 1.0):
        bound = at_least(pairs, pairs, miss / 2)  # that many independent pairs all stood the same way
        return (bound, 1.0) if area else (0.0, 1 - bound)
    if pairs < 2:
        return 0.0, 1.0
    wide = norm.isf(miss / 2) * math.sqrt(_variance(scores, area)) / (area * (1 - area))  # delta method
    return float(expit(logit(area) - wide)), float(expit(logit(area) + wide))


def tpr_at(scores: Ranked, fpr: float) -> float:
    """The largest true positive rate of a threshold whose false positive rate is at most `fpr`."""
    return int(scores.true_claims[_last(scores.false_claims, fpr, scores.n_others)]) / scores.n_members


def lowest_at(scores: Ranked, fpr: float) -> float:
    """The lowest score that may be claimed, with all above it, at a false positive rate of at most `fpr`; or infinity."""
    claimed = int(_last(scores.false_claims, fpr, scores.n_others))
    return float(scores.values[claimed - 1]) if claimed else math.inf


def tpr_at_interval(scores: Ranked, fpr: float, *, seed: Seed, level: float = 0.95) -> Interval:
    """By a joint bootstrap that sets the threshold anew, and at least as wide as Clopper-Pearson at this threshold."""
    miss = (1 - check.fraction("level", level)) / 2
    low, high = np.quantile(_resampled_tpr(scores, fpr, seed.numpy()), [miss, 1 - miss])
    claimed = int(scores.true_claims[_last(scores.false_claims, fpr, scores.n_others)])
    exact = clopper_pearson(claimed, scores.n_members, level)
    return min(float(low), exact[0]), max(float(high), exact[1])


def unresolved(scores: Ranked, fpr: float) -> str:
    """Why these records cannot tell the rate at `fpr`; empty where they can."""
    needed = math.ceil(RESOLVED / fpr - 1e-9)
    if scores.n_others >= needed:
        return ""
    return f"a false positive rate of {fpr:g} takes at least {needed} non-members to see, here are {scores.n_others}"


def members_above_all(scores: Ranked) -> int:
    """How many members score above every non-member: what is claimed without one false positive here."""
    return int(scores.true_claims[_last(scores.false_claims, 0.0, scores.n_others)])


def _placed(counts: Ints) -> Floats:
    """For each score, the share of `counts` below it; equal scores count one half."""
    below = counts.sum() - np.cumsum(counts)
    return np.asarray((below + counts / 2) / counts.sum(), float)


def _variance(scores: Ranked, area: float) -> float:
    of_members = (scores.members * (_placed(scores.others) - area) ** 2).sum() / (scores.n_members - 1)
    of_others = (scores.others * (1 - _placed(scores.members) - area) ** 2).sum() / (scores.n_others - 1)
    return float(of_members / scores.n_members + of_others / scores.n_others)


def _last(false_claims: Ints, fpr: float, others: int) -> Ints:
    """The lowest threshold that keeps the rate; the last axis runs over thresholds, highest first."""
    return np.asarray((false_claims <= fpr * others + 1e-9).sum(-1) - 1)


def _resampled_tpr(scores: Ranked, fpr: float, stream: np.random.Generator) -> Floats:
    rows = max(1, AT_ONCE // len(scores.values))
    parts = [_draw(scores, fpr, stream, min(rows, RESAMPLES - done)) for done in range(0, RESAMPLES, rows)]
    return np.concatenate(parts)


def _draw(scores: Ranked, fpr: float, stream: np.random.Generator, times: int) -> Floats:
    members = stream.multinomial(scores.n_members, scores.members / scores.n_members, times)  # [resample, score]
    others = stream.multinomial(scores.n_others, scores.others / scores.n_others, times)
    none = np.zeros((times, 1), np.int64)
    true = np.concatenate([none, members.cumsum(1)], 1)
    last = _last(np.concatenate([none, others.cumsum(1)], 1), fpr, scores.n_others)
    return np.take_along_axis(true, last[:, None], 1)[:, 0] / scores.n_members
