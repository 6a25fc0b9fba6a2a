"""What private training and other noisy answers cost: events, their Renyi curves, budgets that are spent step by step.

>>> from engram import accounting
>>> from engram.accounting import Composed, Gaussian, PoissonSampled
>>> run = Composed((PoissonSampled(0.01, Gaussian(1.1)), 1000))
>>> round(accounting.epsilon(run, delta=1e-5), 3)
1.712
"""

from __future__ import annotations

from engram.accounting.conversion import Guarantee, NoGuarantee, to_delta, to_epsilon
from engram.accounting.curves import Curve, curve
from engram.accounting.events import (
    Composed,
    Event,
    Gaussian,
    Laplace,
    MixedRelations,
    PoissonSampled,
    RandomisedResponse,
    Relation,
    SampledWithoutReplacement,
    Schedule,
    UnknownEvent,
)

__all__ = [
    "Composed",
    "Curve",
    "Event",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "MixedRelations",
    "NoGuarantee",
    "PoissonSampled",
    "RandomisedResponse",
    "Relation",
    "SampledWithoutReplacement",
    "Schedule",
    "UnknownEvent",
    "curve",
    "delta",
    "epsilon",
    "spent",
    "to_delta",
    "to_epsilon",
]


def spent(
    event: Event, delta: float, *, group: int = 1, neighbours: Relation | None = None, conversion: str = "balle"
) -> Guarantee:
    """The least epsilon that the Renyi curve of these events proves at this delta, and the order that proves it."""
    return to_epsilon(curve(event, group=group, neighbours=neighbours), delta, conversion)


def epsilon(event: Event, delta: float, *, group: int = 1, neighbours: Relation | None = None) -> float:
    """The epsilon of these events, by Renyi accounting. For a tighter one see `engram.accounting.tight`."""
    return spent(event, delta, group=group, neighbours=neighbours).epsilon


def delta(event: Event, epsilon: float, *, group: int = 1, neighbours: Relation | None = None) -> float:
    """The delta of these events at this epsilon, by Renyi accounting."""
    return to_delta(curve(event, group=group, neighbours=neighbours), epsilon).delta
