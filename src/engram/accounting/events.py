"""What happened, apart from what it cost: an immutable tree of privacy events.

Units: `noise_multiplier` and `scale` are the standard deviation (Gaussian) or the scale (Laplace) of the noise divided by
the most that one neighbouring change can move the query (in L2, in L1). Under `PoissonSampled` that is the clip norm.

Neighbouring relations: "add-remove" (one record more or less), "replace-one" (one record's content changes, the count stays),
"zero-out" (one record is replaced by one that contributes nothing). Each event knows the relations under which its curves
are proved; under all of those its curve is the same number. A tree whose events share no relation is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from engram import check
from engram.types import Floats

Relation = Literal["add-remove", "replace-one", "zero-out"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)


class MixedRelations(ValueError):
    """The events share no neighbouring relation, so their costs cannot be added."""


class UnknownEvent(TypeError):
    """An accountant was given an event whose cost it cannot bound. Nothing is approximated instead."""


@dataclass(frozen=True)
class Gaussian:
    """One answer with Gaussian noise.

    >>> Gaussian(noise_multiplier=1.1)
    Gaussian(noise_multiplier=1.1)
    """

    relations: ClassVar[tuple[Relation, ...]] = RELATIONS
    noise_multiplier: float

    def __post_init__(self) -> None:
        check.at_least("noise_multiplier", self.noise_multiplier, 0.0, "0 is no noise at all")


@dataclass(frozen=True)
class Laplace:
    """One answer with Laplace noise; purely (1 / scale)-private."""

    relations: ClassVar[tuple[Relation, ...]] = RELATIONS
    scale: float

    def __post_init__(self) -> None:
        check.at_least("scale", self.scale, 0.0, "0 is no noise at all")


@dataclass(frozen=True)
class RandomisedResponse:
    """One record's answer out of `answers`: the true one with probability `truth`, else any other, uniformly.

    The number of reports is public, so only replace-one makes sense.
    """

    relations: ClassVar[tuple[Relation, ...]] = ("replace-one",)
    truth: float
    answers: int = 2

    def __post_init__(self) -> None:
        check.fraction("truth", self.truth, zero=True, one=True)
        whole("answers", self.answers, least=2)

    @property
    def lie(self) -> float:
        """Probability of each particular false answer."""
        return (1 - self.truth) / (self.answers - 1)

    @property
    def gap(self) -> float:
        """truth - lie, without cancellation in the subtraction of nearly equal numbers."""
        return (self.answers * self.truth - 1) / (self.answers - 1)


@dataclass(frozen=True)
class PoissonSampled:
    """`event` on a batch in which every record is present independently with probability `rate`.

    For batches of fixed size use `SampledWithoutReplacement`; a shuffled epoch is neither, and there is no event for it.
    """

    relations: ClassVar[tuple[Relation, ...]] = ("add-remove", "zero-out")
    rate: float
    event: Gaussian

    def __post_init__(self) -> None:
        check.fraction("rate", self.rate, zero=True, one=True)
        if not isinstance(self.event, Gaussian):
            raise UnknownEvent(
                f"PoissonSampled is understood around a Gaussian only, got {self.event!r}; "
                "compose the unsampled event, which costs more"
            )


@dataclass(frozen=True)
class SampledWithoutReplacement:
    """`event` on a batch of exactly `batch` of `records` records, every subset equally likely. Replace-one only.

    Its curve is an upper bound (see `divergence`), so the epsilon is conservative, not exact.
    """

    relations: ClassVar[tuple[Relation, ...]] = ("replace-one",)
    batch: int
    records: int
    event: Gaussian | Laplace | RandomisedResponse

    def __post_init__(self) -> None:
        whole("batch", self.batch)
        whole("records", self.records, least=1)
        if self.batch > self.records:
            raise ValueError(f"batch must be at most records, got {self.batch} of {self.records}")
        if not isinstance(self.event, Gaussian | Laplace | RandomisedResponse):
            raise UnknownEvent(
                f"SampledWithoutReplacement is understood around Gaussian, Laplace and RandomisedResponse, got {self.event!r}"
            )

    @property
    def rate(self) -> float:
        return self.batch / self.records


@dataclass(frozen=True, eq=False)
class Schedule:
    """A private training run whose noise or rate changes from step to step: Poisson-sampled Gaussians, one for each entry.

    The fast way to state many unequal steps; equal ones are cheaper as `Composed((PoissonSampled(...), steps))`.
    """

    relations: ClassVar[tuple[Relation, ...]] = ("add-remove", "zero-out")
    noise_multipliers: Floats  # [step]
    rates: Floats  # [step]

    def __post_init__(self) -> None:
        noise, rates = np.broadcast_arrays(
            np.atleast_1d(np.asarray(self.noise_multipliers, float)), np.atleast_1d(np.asarray(self.rates, float))
        )
        if noise.ndim != 1:
            raise ValueError(f"noise_multipliers and rates must have one number a step, got shape {noise.shape}")
        _everywhere("noise_multipliers", noise, noise >= 0, "at least 0")
        _everywhere("rates", rates, (rates >= 0) & (rates <= 1), "in [0, 1]")
        object.__setattr__(self, "noise_multipliers", _frozen(noise))
        object.__setattr__(self, "rates", _frozen(rates))

    @cached_property
    def pairs(self) -> tuple[Floats, Floats, Floats]:
        """The different noise multipliers and rates, and how often each pair happened."""
        both, counts = np.unique(self.noise_multipliers + 1j * self.rates, return_counts=True)
        return both.real, both.imag, counts.astype(float)


@dataclass(frozen=True, init=False)
class Composed:
    """Several events, one after another, each repeated `count` times; also when each is chosen knowing the earlier answers.

    >>> Composed((PoissonSampled(0.01, Gaussian(1.0)), 1000), (Laplace(2.0), 1)).parts[1]
    (Laplace(scale=2.0), 1)
    """

    parts: tuple[tuple[Event, int], ...]

    def __init__(self, *parts: tuple[Event, int]) -> None:
        for _, count in parts:
            whole("count", count)
        object.__setattr__(self, "parts", tuple(parts))


Event: TypeAlias = (
    Gaussian | Laplace | RandomisedResponse | PoissonSampled | SampledWithoutReplacement | Schedule | Composed
)
Leaf: TypeAlias = Gaussian | Laplace | RandomisedResponse | PoissonSampled | SampledWithoutReplacement | Schedule


def leaves(event: Event) -> dict[Leaf, int]:
    """How often each different event happened. Free ones (never repeated, rate 0) are left out; rate 1 is no sampling."""
    counts: dict[Leaf, int] = {}
    for leaf, count in _walk(event, 1):
        counts[leaf] = counts.get(leaf, 0) + count
    return counts


def _walk(event: Event, times: int) -> Iterator[tuple[Leaf, int]]:
    if isinstance(event, Composed):
        for part, count in event.parts:
            yield from _walk(part, times * count)
        return
    if not isinstance(event, Leaf):
        raise UnknownEvent(f"no accountant knows the event {event!r}; known: {', '.join(names())}")
    if times == 0 or (isinstance(event, PoissonSampled | SampledWithoutReplacement) and event.rate == 0):
        return
    yield event, times


def names() -> list[str]:
    return [kind.__name__ for kind in (*get_args(Leaf), Composed)]


def relation(event: Event, wanted: Relation | None = None) -> Relation:
    """The neighbouring relation that all events of the tree share: `wanted`, or the first in the order of `RELATIONS`."""
    if wanted is not None:
        check.known("neighbouring relation", wanted, RELATIONS)
    allowed = [r for r in RELATIONS if wanted in (None, r)]
    kinds = {type(leaf): leaf.relations for leaf in _every_leaf(event)}
    for known in kinds.values():
        allowed = [r for r in allowed if r in known]
    if not allowed:
        told = "; ".join(f"{kind.__name__}: {', '.join(known)}" for kind, known in kinds.items())
        raise MixedRelations(
            f"expected events that share {'a' if wanted is None else 'the'} neighbouring relation"
            f"{'' if wanted is None else ' ' + repr(wanted)}, got {told}; account for them apart"
        )
    return allowed[0]


def _every_leaf(event: Event) -> Iterator[Leaf]:
    """Also the free ones: what is stated must be consistent even where it costs nothing."""
    if isinstance(event, Composed):
        for part, _ in event.parts:
            yield from _every_leaf(part)
    elif isinstance(event, Leaf):
        yield event
    else:
        raise UnknownEvent(f"no accountant knows the event {event!r}; known: {', '.join(names())}")


def whole(name: str, value: int, least: int = 0) -> int:
    if isinstance(value, bool) or not (isinstance(value, int | np.integer) and value >= least):
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")
    return int(value)


def _everywhere(
    name: str, values: Floats, good: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], expected: str
) -> None:
    if not good.all():
        at = int(np.argmin(good))
        raise ValueError(f"{name} must be {expected}, got {values[at]} at step {at}")


def _frozen(values: Floats) -> Floats:
    values = values.copy()
    values.flags.writeable = False
    return values
