"""A budget that is spent step by step, with noise and rate chosen as one goes.

Feldman, Zrnic: Individual Privacy Accounting via a Renyi Filter, 2021. Theorem 4.3: at an order fixed beforehand, stopping
before the sum of divergences passes a bound makes the whole interaction private at that order, however steps are chosen.
Differs from the paper: several orders may be watched. Which of them survives may then depend on the answers, so each is
given its share of delta, and the shares add up. For the odometer each order's sum is a supermartingale's, so by Ville's
inequality one bound holds at all times together.

A curve minimised over orders afterwards (`engram.accounting.epsilon`) is right only for steps fixed beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engram import check
from engram.accounting.conversion import NoGuarantee, balle, mironov
from engram.accounting.curves import curve, ordered
from engram.accounting.events import Composed, Event, whole
from engram.accounting.search import least
from engram.accounting.written import plain, read
from engram.types import Floats

SPREAD = (1.0, 0.7, 0.5, 0.35, 0.25, 0.17)  # of the order that suits Gaussians, less 1: little noise wants a lower one


class BudgetError(RuntimeError):
    """
    BudgetError
      BudgetSpent   the step was refused and not counted: stop, or ask for less
    """


class BudgetSpent(BudgetError):
    """This step would overrun the budget. Nothing was spent; a cheaper step may still fit."""


class Ledger:
    """What was spent, at orders that were fixed beforehand. Adding a step seen before costs about a microsecond."""

    def __init__(self, orders: Sequence[float]) -> None:
        self.orders = tuple(float(a) for a in ordered(np.asarray(orders, float)))
        self.spent = (0.0,) * len(self.orders)
        self._costs: dict[Event, tuple[float, ...]] = {}
        self._counts: dict[Event, int] = {}

    def after(self, event: Event, count: int) -> tuple[float, ...]:
        """What would be spent after this event, so many times."""
        costs = self._costs.get(event)
        if costs is None:
            costs = self._costs[event] = tuple(curve(event).at(np.array(self.orders)).tolist())
        return tuple(before + cost * count if count else before for before, cost in zip(self.spent, costs, strict=True))

    def add(self, event: Event, count: int, spent: tuple[float, ...]) -> None:
        self.spent = spent
        self._counts[event] = self._counts.get(event, 0) + count

    @property
    def event(self) -> Composed:
        """All that happened."""
        return Composed(*self._counts.items())

    def at_all_times(self, delta: float) -> float:
        """The epsilon of what was spent that is right at all times together, at this delta."""
        share = check.fraction("delta", delta) / len(self.orders)
        added = mironov(np.array(self.orders), share)
        return float(np.min(np.array(self.spent) + added)) if any(self.spent) else 0.0

    def state(self) -> dict[str, Any]:
        events = [[plain(event), count] for event, count in self._counts.items()]
        return {"orders": list(self.orders), "spent": list(self.spent), "events": events}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Ledger:
        ledger = cls(state["orders"])
        ledger.spent = tuple(float(v) for v in state["spent"])
        check.same_length(orders=ledger.orders, spent=ledger.spent)
        ledger._counts = {read(event): whole("count", count) for event, count in state["events"]}
        return ledger


class Filter:
    """Holds an (epsilon, delta) budget: `spend` counts a step, or refuses it if the budget would be overrun.

    Its orders are fixed when it is made. With a `plan`, a typical step, it watches the one order that is best for many such
    steps: then fixed steps get all that the budget allows. Without, it watches SPREAD, for a little of the budget.

    >>> from engram.accounting import Gaussian, PoissonSampled
    >>> step = PoissonSampled(0.01, Gaussian(1.1))
    >>> budget = Filter(epsilon=3.0, delta=1e-5, plan=step)
    >>> for _ in range(1000):
    ...     budget.spend(step)
    >>> budget.fits(step, 10**6)
    False
    """

    def __init__(
        self, epsilon: float, delta: float, *, plan: Event | None = None, orders: Sequence[float] | None = None
    ) -> None:
        self.target = check.positive("epsilon", epsilon)
        self.delta = check.fraction("delta", delta)
        if plan is not None and orders is not None:
            raise ValueError("give a plan, from which the order follows, or orders; not both")
        best = best_order(epsilon, delta, plan)
        chosen = [best] if plan is not None else [1 + (best - 1) * part for part in SPREAD]
        self._ledger = Ledger(chosen if orders is None else orders)
        share = delta / len(self._ledger.orders)
        allowed = epsilon - balle(np.array(self._ledger.orders), share)
        self._allowed = tuple(allowed.tolist())
        if max(self._allowed) <= 0:
            raise NoGuarantee(
                f"at none of the orders {self._ledger.orders} does epsilon {epsilon:g} at delta {delta:g} leave anything to "
                "spend; leave out `orders` to have one chosen"
            )

    def spend(self, event: Event, count: int = 1) -> None:
        """Count an event, or raise `BudgetSpent` and count nothing. Call it before the step is taken."""
        spent = self._ledger.after(event, whole("count", count))
        if not self._within(spent):
            raise BudgetSpent(
                f"this step would overrun the budget of epsilon {self.target:g} at delta {self.delta:g}: "
                f"{self.share:.1%} of it is spent; stop here, or take a step with more noise or a smaller rate"
            )
        self._ledger.add(event, count, spent)

    def fits(self, event: Event, count: int = 1) -> bool:
        """Whether `spend` would accept it."""
        return self._within(self._ledger.after(event, whole("count", count)))

    def epsilon(self, delta: float) -> float:
        """What has been spent so far, right at all times together; never above the target at the target's delta."""
        now = self._ledger.at_all_times(delta)
        return min(now, self.target) if delta >= self.delta else now

    @property
    def share(self) -> float:
        """How much of the budget is spent, from 0 to 1, at the order that has most left."""
        return float(min(s / a for s, a in zip(self._ledger.spent, self._allowed, strict=True) if a > 0))

    @property
    def event(self) -> Composed:
        """All that was spent, as one event."""
        return self._ledger.event

    def state(self) -> dict[str, Any]:
        """All of it as a plain dictionary."""
        return {"epsilon": self.target, "delta": self.delta, **self._ledger.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Filter:
        """The filter as it was when its state was taken."""
        made = cls(state["epsilon"], state["delta"], orders=state["orders"])
        made._ledger = Ledger.from_state(state)
        return made

    def _within(self, spent: tuple[float, ...]) -> bool:
        return any(s <= a for s, a in zip(spent, self._allowed, strict=True) if a > 0)


class Odometer:
    """Tells at any time what has been spent, with no budget set. Looser than a filter: its bound holds at all times."""

    def __init__(self, delta: float, *, orders: Sequence[float] = (1.5, 2, 3, 4, 6, 8, 12, 20, 40, 100)) -> None:
        self.delta = check.fraction("delta", delta)
        self._ledger = Ledger(orders)

    def spend(self, event: Event, count: int = 1) -> None:
        self._ledger.add(event, count, self._ledger.after(event, whole("count", count)))

    @property
    def epsilon(self) -> float:
        return self._ledger.at_all_times(self.delta)

    @property
    def event(self) -> Composed:
        """All that was spent, as one event."""
        return self._ledger.event

    def state(self) -> dict[str, Any]:
        """All of it as a plain dictionary."""
        return {"delta": self.delta, **self._ledger.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Odometer:
        """The odometer as it was when its state was taken."""
        made = cls(state["delta"], orders=state["orders"])
        made._ledger = Ledger.from_state(state)
        return made


def best_order(epsilon: float, delta: float, plan: Event | None = None) -> float:
    """The order at which most steps fit: of the plan, or of a curve that grows in proportion to the order."""
    cost = (lambda orders: orders) if plan is None else curve(plan).at

    def share(orders: Floats) -> Floats:
        allowed = epsilon - balle(orders, delta)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(allowed > 0, cost(orders) / allowed, np.inf)

    least_share, order = least(share)
    if not least_share <= (1 if plan else math.inf):
        raise NoGuarantee(
            f"epsilon {epsilon:g} at delta {delta:g} does not allow one such step at any order; raise either"
        )
    return order
