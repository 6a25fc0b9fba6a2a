"""What events cost: the Renyi divergence of a whole tree of events at every order, for one record or for a group of them.

Mironov: Renyi Differential Privacy, 2017. Proposition 1 (composition adds at equal orders, also when each event is chosen
knowing the earlier answers), Proposition 2 (groups).
Differs from the paper: at each order the smaller of its group bound and of what is proved for the event itself is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engram.accounting import divergence, replacement, schedules
from engram.accounting.events import (
    Event,
    Gaussian,
    Laplace,
    Leaf,
    PoissonSampled,
    RandomisedResponse,
    Relation,
    SampledWithoutReplacement,
    Schedule,
    leaves,
    relation,
    whole,
)
from engram.types import Floats

Divergence = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Curve:
    """The Renyi divergence, in nats, at any order above 1; and its ends.

    >>> curve(Gaussian(2.0))(3.0)
    0.375
    """

    at: Divergence  # orders in [1, infinity] -> nats

    def __call__(self, order: float) -> float:
        """The divergence at one order above 1, infinity included."""
        return float(self.at(ordered(np.array([order], float)))[0])

    @property
    def kullback_leibler(self) -> float:
        """The limit at order 1."""
        return float(self.at(np.ones(1))[0])

    @property
    def pure(self) -> float:
        """The limit at infinity: the epsilon of pure differential privacy. Infinite where there is none."""
        return float(self.at(np.array([np.inf]))[0])


def curve(event: Event, *, group: int = 1, neighbours: Relation | None = None) -> Curve:
    """The cost of an event, at every order: for neighbours that differ in one record, or in a group of several.

    `neighbours` names their relation, and is refused where an event is not understood under it.
    """
    relation(event, neighbours)
    whole("group", group, least=1)
    found = leaves(event)
    if group > 1:
        parts = [_repeated(_for_group(leaf, group), count) for leaf, count in found.items()]
    else:
        parts = [_repeated(of(leaf), n) for leaf, n in found.items() if not isinstance(leaf, PoissonSampled | Schedule)]
        parts += _sampled(found)
    return Curve(lambda orders: np.sum([part(orders) for part in parts], axis=0) if parts else np.zeros(len(orders)))


def of(leaf: Leaf) -> Divergence:
    """The divergence of one event, once."""
    match leaf:
        case Gaussian(noise):
            return lambda orders: divergence.gaussian(noise, orders)
        case Laplace(scale):
            return lambda orders: divergence.laplace(scale, orders)
        case RandomisedResponse(truth):
            return lambda orders: divergence.randomised_response(truth, leaf.lie, leaf.gap, orders)
        case SampledWithoutReplacement():
            base = of(leaf.event)
            pure = float(base(np.array([np.inf]))[0])
            return lambda orders: replacement.bound(base, pure, leaf.rate, orders)
        case _:
            return schedules.together(*pairs(leaf))


def pairs(leaf: PoissonSampled | Schedule) -> tuple[Floats, Floats, Floats]:
    """The different noise multipliers and rates, and how often each pair happened."""
    if isinstance(leaf, Schedule):
        return leaf.pairs
    return np.array([leaf.event.noise_multiplier]), np.array([leaf.rate]), np.ones(1)


def _repeated(at: Divergence, count: int) -> Divergence:
    return lambda orders: count * at(orders)


def _sampled(found: dict[Leaf, int]) -> list[Divergence]:
    """All Poisson-sampled Gaussians of a tree at once."""
    several = [(*pairs(leaf), n) for leaf, n in found.items() if isinstance(leaf, PoissonSampled | Schedule)]
    if not several:
        return []
    noise, rate, counts = (
        np.concatenate(part) for part in zip(*((s, q, k * n) for s, q, k, n in several), strict=True)
    )
    return [schedules.together(noise, rate, counts)]


def _for_group(leaf: Leaf, group: int) -> Divergence:
    at, louder = of(leaf), _louder(leaf, group)

    def smaller(orders: Floats) -> Floats:
        known = np.minimum(stretched(at, group, orders), group * at(np.array([np.inf])))
        return known if louder is None else np.minimum(known, louder(orders))

    return smaller


def stretched(at: Divergence, group: int, orders: Floats) -> Floats:
    """(a / 2^c, 3^c e), for the 2^c that is at least the group, at orders from 2; below, the value at 2.  Proposition 2"""
    c = (group - 1).bit_length()
    return 3.0**c * at(np.maximum(orders, 2.0) * 2.0**c)


def ordered(orders: Floats) -> Floats:
    """The same orders, if each is above 1."""
    orders = np.atleast_1d(np.asarray(orders, float))
    if not (orders > 1).all():
        bad = orders[~(orders > 1)][0]
        raise ValueError(f"orders must be above 1, got {bad}; the limit at 1 is Curve.kullback_leibler")
    return orders


def _louder(leaf: Leaf, group: int) -> Divergence | None:
    """A group moves an answer by at most `group` times as much, and is in a batch if any of it is."""
    match leaf:
        case Gaussian(noise):
            return of(Gaussian(noise / group))
        case Laplace(scale):
            return of(Laplace(scale / group))
        case PoissonSampled() | Schedule():
            noises, rates, counts = pairs(leaf)
            with np.errstate(divide="ignore"):
                any_of = -np.expm1(group * np.log1p(-rates))  # 1 - (1 - rate)^group
            return schedules.together(noises / group, any_of, counts)
        case _:
            return None
