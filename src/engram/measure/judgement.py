"""What a membership attack's scores are worth: one `Finding` a metric, each with its interval and what it rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engram import check
from engram.measure import epsilon, roc
from engram.measure.ranks import Ranked, ranked
from engram.measure.rates import Claimed, Interval, balanced_accuracy, clopper_pearson, ppv
from engram.seed import Seed
from engram.types import Bools, Finding, Scores

RATES = (0.1, 0.01, 0.001)  # false positive rates
PRIORS = (0.01, 0.1)  # how many of the records are members, where the attack would be used
BALANCED = 0.02  # a share of members within this of one half counts as drawn by fair coins

EXACT = "Clopper-Pearson"
BOOTSTRAP = "joint bootstrap, at least Clopper-Pearson"


def judge(scores: Scores, member: Bools, *, seed: Seed, level: float = 0.95) -> list[Finding]:
    """Everything there is to say of these scores, given the truth about their records."""
    ranks = ranked(scores.values, member)
    found = [area(ranks, level), *(at_rate(ranks, fpr, seed, level) for fpr in RATES), without_error(ranks, level)]
    found += of_claims(scores, member, level)
    return [replace(f, variant=scores.variant) for f in found]


def shuffled(scores: Scores, member: Bools, *, seed: Seed, level: float) -> Finding:
    """The control: the same scores against a membership that was shuffled. Its interval must cover one half."""
    found = area(ranked(scores.values, seed.numpy().permutation(member)), level)
    return replace(found, metric="auc_shuffled", variant=scores.variant)


def simultaneous(level: float, intervals: int) -> float:
    """The level that each of so many intervals needs for all of them to hold together (Bonferroni)."""
    return 1 - (1 - check.fraction("level", level)) / intervals


def proportion(right: npt.ArrayLike, metric: str, level: float = 0.95) -> Finding:
    """How many of these are true, such as right answers."""
    right = np.asarray(right, bool)
    low, high = clopper_pearson(int(right.sum()), len(right), level)
    return Finding(metric, float(right.mean()), low, high, n=len(right), level=level, method=EXACT)


def area(ranks: Ranked, level: float) -> Finding:
    return _finding(ranks, "auc", roc.auc(ranks), roc.auc_interval(ranks, level), level, "DeLong, logit scale")


def at_rate(ranks: Ranked, fpr: float, seed: Seed, level: float) -> Finding:
    metric = f"tpr@{fpr:g}"
    if reason := roc.unresolved(ranks, fpr):
        return _null(ranks, metric, reason)
    low_high = roc.tpr_at_interval(ranks, fpr, seed=seed.child(metric), level=level)
    return _finding(ranks, metric, roc.tpr_at(ranks, fpr), low_high, level, BOOTSTRAP)


def without_error(ranks: Ranked, level: float) -> Finding:
    """The share of members above every non-member here. The false positive rate behind it is unknown, but small."""
    count = roc.members_above_all(ranks)
    bounds = clopper_pearson(count, ranks.n_members, level)
    return _finding(ranks, "tpr@0", count / ranks.n_members, bounds, level, f"{EXACT}, given the threshold")


def of_claims(scores: Scores, member: Bools, level: float) -> list[Finding]:
    """Of what the adversary claimed by thresholds that it set without the truth: here rates can be counted exactly."""
    ranks = ranked(scores.values, member)
    if scores.claims is None:
        reason = "the attack ranks records and claims nothing: it set no threshold without the truth"
        return [_null(ranks, metric, reason) for metric in ("balanced_accuracy", *map(_ppv_named, PRIORS), "epsilon")]
    claimed = counted(scores.claims, member)
    worth = balanced_accuracy(claimed.tpr, claimed.fpr)
    return [
        _finding(
            ranks, "balanced_accuracy", worth, balanced_interval(claimed, level), level, f"{EXACT}, squares added"
        ),
        *(_precision(ranks, claimed, prior, level) for prior in PRIORS),
        _epsilon(ranks, claimed, level),
    ]


def epsilon_at(scores: Scores, member: Bools, delta: float, level: float) -> Finding | None:
    """The lower bound on epsilon at this delta; None where the attack claims nothing."""
    if scores.claims is None:
        return None
    return _epsilon(ranked(scores.values, member), counted(scores.claims, member), level, delta)


def counted(claims: Bools, member: Bools) -> Claimed:
    return Claimed(int(claims[member].sum()), int(member.sum()), int(claims[~member].sum()), int((~member).sum()))


def balanced_interval(claimed: Claimed, level: float = 0.95) -> Interval:
    """Two Clopper-Pearson intervals, their distances to the estimate added as squares (Zou, Donner 2008)."""
    t_low, t_high = clopper_pearson(claimed.true, claimed.members, level)
    f_low, f_high = clopper_pearson(claimed.false, claimed.others, level)
    worth = balanced_accuracy(claimed.tpr, claimed.fpr)
    down = float(np.hypot(claimed.tpr - t_low, f_high - claimed.fpr)) / 2
    up = float(np.hypot(t_high - claimed.tpr, claimed.fpr - f_low)) / 2
    return max(0.0, worth - down), min(1.0, worth + up)


def ppv_interval(claimed: Claimed, prior: float, level: float = 0.95) -> Interval:
    """The worst and the best precision of both rates' intervals, which hold together with probability `level`."""
    each = simultaneous(level, 2)
    t_low, t_high = clopper_pearson(claimed.true, claimed.members, each)
    f_low, f_high = clopper_pearson(claimed.false, claimed.others, each)
    return ppv(t_low, f_high, prior), ppv(t_high, f_low, prior)


def _precision(ranks: Ranked, claimed: Claimed, prior: float, level: float) -> Finding:
    if not claimed.true + claimed.false:
        return _null(ranks, _ppv_named(prior), "the attack claims nobody")
    bounds = ppv_interval(claimed, prior, level)
    return _finding(
        ranks, _ppv_named(prior), ppv(claimed.tpr, claimed.fpr, prior), bounds, level, f"{EXACT}, Bonferroni"
    )


def _epsilon(ranks: Ranked, claimed: Claimed, level: float, delta: float = 0.0) -> Finding:
    """A lower bound, so its value is its lower end and nothing is said of the upper."""
    n = ranks.n_members + ranks.n_others
    if abs(ranks.n_members / n - 0.5) > BALANCED:
        return _null(
            ranks, "epsilon", f"the bound takes as many members as non-members, here are {ranks.n_members} of {n}"
        )
    right = claimed.true + claimed.others - claimed.false
    bound = epsilon.one_run(right, n, n, delta=delta, level=level)
    return _finding(ranks, "epsilon", bound, (bound, None), level, "one run, if membership fell by fair coins")


def _ppv_named(prior: float) -> str:
    return f"ppv@{prior:g}"


def _finding(
    ranks: Ranked, metric: str, value: float, bounds: tuple[float, float | None], level: float, method: str
) -> Finding:
    n = ranks.n_members + ranks.n_others
    return Finding(metric, value, *bounds, n=n, non_members=ranks.n_others, level=level, method=method)


def _null(ranks: Ranked, metric: str, reason: str) -> Finding:
    n = ranks.n_members + ranks.n_others
    return Finding(metric, None, None, None, n=n, non_members=ranks.n_others, reason=reason)
