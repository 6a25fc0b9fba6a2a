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

    def __call__(self, streams: list[np.random.Generator], records: int) -> Iterator[Ints | None]:  # noqa: ARG002
        yield None


@dataclass(frozen=True)
class Batches:
    """A new order each epoch, cut into batches; the last one may be smaller, and no record is left out."""

    size: int = 32

    def __post_init__(self) -> None:
        check.at_least("batch size", self.size, 1)

    def __call__(self, streams: list[np.random.Generator], records: int) -> Iterator[Ints | None]:
        """Positions among a model's own records, [model, batch]; each model draws from its own stream."""
        order = np.stack([stream.permutation(records) for stream in streams])
        for start in range(0, records, self.size):
            yield order[:, start : start + self.size]
