"""Which records, in which batches, in each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engram import check
from engram.types import Ints


@dataclass(frozen=True)
class FullBatch:
    """All records in every step."""

    def expected(self, records: int) -> int:
        return records

    def __call__(self, streams: list[np.random.Generator], records: int) -> Iterator[Ints | None]:  # noqa: ARG002
        yield None


@dataclass(frozen=True)
class Batches:
    """A new order each epoch, cut into batches; the last one may be smaller, and no record is left out."""

    size: int = 32

    def __post_init__(self) -> None:
        check.at_least("batch size", self.size, 1)

    def expected(self, records: int) -> int:
        """How many records a batch has."""
        return min(self.size, records)

    def __call__(self, streams: list[np.random.Generator], records: int) -> Iterator[Ints | None]:
        """Positions among a model's own records, [model, batch]; each model draws from its own stream."""
        order = np.stack([stream.permutation(records) for stream in streams])
        for start in range(0, records, self.size):
            yield order[:, start : start + self.size]


@dataclass(frozen=True)
class Poisson:
    """Each record is in each batch with probability `rate`, for 1 / rate batches an epoch: what private training assumes.

    Batches differ in size; where a model has fewer records than another, or none, its positions are -1.
    """

    rate: float = 0.1

    def __post_init__(self) -> None:
        check.fraction("rate", self.rate, one=True)

    @property
    def batches(self) -> int:
        """In an epoch."""
        return max(1, round(1 / self.rate))

    def expected(self, records: int) -> int:
        return max(1, round(self.rate * records))

    def __call__(self, streams: list[np.random.Generator], records: int) -> Iterator[Ints | None]:
        for _ in range(self.batches):
            chosen = [np.flatnonzero(stream.random(records) < self.rate) for stream in streams]
            positions = np.full((len(streams), max([1, *map(len, chosen)])), -1)
            for own, places in zip(positions, chosen, strict=True):
                own[: len(places)] = places
            yield positions
