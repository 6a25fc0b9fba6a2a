"""What has been spent. The seam to the accountants: anything with `spend` and `epsilon` can stand here."""

from __future__ import annotations

import importlib
import math
from typing import Any, Protocol

from engram.accounting.events import Composed, Event, Gaussian, PoissonSampled


class Budget(Protocol):
    """Counts steps before they are taken. `spend` raises instead of letting a step through that would overrun."""

    def spend(self, event: Any, count: int = 1) -> None: ...

    def epsilon(self, delta: float) -> float: ...


def step_event(noise_multiplier: float, rate: float | None) -> Event:
    """One private step. Without a sampling rate no amplification is claimed."""
    noise = Gaussian(noise_multiplier)
    return noise if rate is None else PoissonSampled(rate, noise)


class Ledger:
    """How many steps of which noise and rate; enough to give the spent budget back after a restart."""

    def __init__(self) -> None:
        self.counts: dict[tuple[float, float | None], int] = {}

    def add(self, noise_multiplier: float, rate: float | None, times: int = 1) -> None:
        key = (noise_multiplier, rate)
        self.counts[key] = self.counts.get(key, 0) + times

    @property
    def steps(self) -> int:
        return sum(self.counts.values())

    def event(self) -> Event:
        """All of it, as one tree of events."""
        return Composed(*((step_event(*key), count) for key, count in self.counts.items()))

    def told(self) -> list[list[float | None]]:
        return [[noise, rate, count] for (noise, rate), count in self.counts.items()]


def limited(epsilon: float, delta: float, plan: Event) -> Budget:
    """A budget that refuses the step which would overrun (epsilon, delta), made for many steps like `plan`."""
    made: Budget = importlib.import_module("engram.accounting.filters").Filter(epsilon, delta, plan=plan)
    return made


def price(ledger: Ledger, delta: float) -> float:
    """The epsilon of the steps taken."""
    if not ledger.steps:
        return 0.0
    if any(noise == 0 for noise, _ in ledger.counts):
        return math.inf
    return float(importlib.import_module("engram.accounting").epsilon(ledger.event(), delta))
