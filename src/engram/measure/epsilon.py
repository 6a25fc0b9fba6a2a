"""How private a training cannot have been: lower bounds on epsilon from what an attack got right.

Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy, 2015 (what epsilon allows of two error rates).
Jagielski, Ullman, Oprea: Auditing Differentially Private Machine Learning, 2020 (the bound with confidence).
Steinke, Nasr, Jagielski: Privacy Auditing with One (1) Training Run, 2023. Theorem 5.2 and its numerical form.

Each is a lower bound that is wrong with probability at most 1 - level; neighbouring = add or remove one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import bisect
from scipy.stats import binom

from engram import check
from engram.measure.rates import Claimed, at_least, at_most
from engram.types import Bools, Floats

LARGEST = 100.0  # no count of records tells an epsilon above this from infinity


def from_rates(claims: Claimed, *, delta: float = 0.0, level: float = 0.95) -> float:
    """From claims over independent trainings (one canary each, in or out), by two Clopper-Pearson bounds.

    Not for the records of one model: those share its training. See `one_run`.
    """
    miss = (1 - check.fraction("level", level)) / 2
    tpr = at_least(claims.true, claims.members, miss)  # lower bound
    fpr = at_most(claims.false, claims.others, miss)  # upper bound
    return max(0.0, _ratio(tpr - delta, fpr), _ratio(1 - fpr - delta, 1 - tpr))


def one_run(right: int, guesses: int, canaries: int, *, delta: float = 0.0, level: float = 0.95) -> float:
    """From one model whose `canaries` went in or out by a fair coin each, of which `guesses` were guessed.

    Leaving the doubtful ones out is allowed and helps. The guesses must not depend on the truth.

    >>> round(one_run(right=100, guesses=100, canaries=1000), 2)
    3.49
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"right <= guesses <= canaries must hold, got {right}, {guesses}, {canaries}; count again")
    check.fraction("delta", delta, zero=True)
    miss = 1 - check.fraction("level", level)

    def excess(epsilon: float) -> float:
        return as_lucky(right, guesses, canaries, epsilon, delta) - miss

    return _crossing(excess)


def from_scores(
    values: Floats, member: Bools, *, guesses: int | None = None, delta: float = 0.0, level: float = 0.95
) -> float:
    """From the scores of canaries that went into one training by a fair coin each; larger = more likely in.

    The half of the guesses with the largest scores is guessed to be in, the half with the smallest to be out; by default
    all are guessed. How many must be decided without the truth. Ties are broken by position, which the coins did not see.
    """
    check.same_length(values=values, member=member)
    half = (len(values) if guesses is None else guesses) // 2
    if not 0 <= half <= len(values) // 2:
        raise ValueError(f"guesses must lie in [0, {len(values)}], the number of canaries, got {guesses}")
    order = np.argsort(values, kind="stable")
    right = int((~member[order[:half]]).sum() + member[order[len(order) - half :]].sum())
    return one_run(right, 2 * half, len(values), delta=delta, level=level)


def as_lucky(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """At most this probable is it that an (epsilon, delta)-private training lets `right` or more guesses be right."""
    q = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, q))
    if not delta or not right:
        return min(1.0, tail)
    mass = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, q))  # P(right - i <= W < right), i = 1, 2, ...
    steepest = float((mass / np.arange(1, right + 1)).max())
    return min(1.0, tail + 2 * canaries * delta * steepest)


def _ratio(above: float, below: float) -> float:
    if above <= 0:
        return 0.0
    return math.log(above / below) if below > 0 else LARGEST


def _crossing(excess: Callable[[float], float]) -> float:
    """The epsilon below which the observation is too lucky; rounded down."""
    if excess(0.0) >= 0:
        return 0.0
    if excess(LARGEST) < 0:
        return LARGEST
    return max(0.0, float(bisect(excess, 0.0, LARGEST, xtol=1e-9)) - 1e-9)
