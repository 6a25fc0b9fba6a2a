"""The shapes that travel between rooms: what an adversary said, and what it was measured to be worth. No logic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

T = TypeVar("T")


class Track(Protocol):
    """Progress: yields what it is given, and may say how far it has come."""

    def __call__(self, items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]: ...


def quiet(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:  # noqa: ARG001  the silent Track
    """A `Track` that says nothing."""
    return iter(items)


@dataclass(frozen=True, eq=False)
class Scores:
    """One number a record; larger = more likely true (a member, a poison)."""

    values: Floats  # [record]
    ids: Ints  # [record]
    claims: Bools | None = None  # [record] what the adversary claims, by a threshold it set without the truth
    variant: str = ""  # names apart what peers confuse: "offline, density"


@dataclass(frozen=True, eq=False)
class Recovered:
    """Guesses of one kind, best first, each with a score and a certificate (smaller = better explained)."""

    kind: Literal["record", "text", "labels", "trigger", "subspace", "parameters"]
    guesses: Array  # [guess, ...]
    scores: Floats  # [guess]
    certificates: Floats  # [guess]
    variant: str = ""
    labels: Ints | None = None  # [guess] the class of each, where the attack says so


@dataclass(frozen=True, eq=False)
class Copied:
    """A model rebuilt from answers, and what it cost."""

    weights: Arrays
    queries: int
    variant: str = ""


Evidence = Scores | Recovered | Copied


@dataclass(frozen=True)
class Finding:
    """A measured value, its interval, and what it rests on; None with a reason where the records cannot tell.

    A one-sided bound is its own value and its own `low`; its `high` is None.
    """

    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int  # records it rests on
    non_members: int | None = None
    level: float = 0.95
    method: str = ""  # how the interval was made
    reason: str = ""  # why there is no value
    attack: str = ""
    variant: str = ""
    defence: str = ""


class Attack(Protocol):
    """A frozen dataclass of knobs. `asks` names the access handle that it must be given."""

    asks: ClassVar[type]

    def __call__(self, target: Any, *, seed: Any, track: Track = quiet) -> Evidence | Sequence[Evidence]: ...


@dataclass(frozen=True)
class Piece:
    """One chunk of work: a name unique to what it computes, and the numbers that say which part."""

    name: str
    part: Mapping[str, int] = field(default_factory=dict)


class Chunks(Protocol):
    """Where work runs and what is kept of it. A piece that is already stored is not run again."""

    def agree(self, name: str, proposed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The plan stored under this name; at the first call, `proposed` is stored."""
        ...

    def run(self, pieces: Sequence[Piece], work: Callable[[Piece], Arrays]) -> Iterator[Arrays]:
        """The result of each piece, in order."""
        ...
