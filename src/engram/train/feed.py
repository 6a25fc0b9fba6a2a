"""The records of each model, on the device: those that all models share, and each model's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from engram.types import Ints


@dataclass(frozen=True, eq=False)
class Rows:
    """Which records each model is given: some of its own, after those that all models share."""

    own: Ints  # [model, record]
    common: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # [record]

    @property
    def records(self) -> int:
        """That each model is given."""
        return len(self.common) + int(self.own.shape[1])

    def whole(self) -> Rows:
        """The same records, none of them told apart as common; [model, record]"""
        if not len(self.common):
            return self
        return Rows(np.concatenate([np.broadcast_to(self.common, (len(self.own), len(self.common))), self.own], 1))


class Feed:
    """The records of each model, on the device."""

    def __init__(self, x: Tensor, y: Tensor, rows: Rows) -> None:
        self.x, self.y, self.rows = x, y, rows
        self.records = rows.records
        self.own = x[torch.tensor(rows.own, device=x.device)] if len(rows.common) else None  # [model, record, ...]
        self._all: tuple[Tensor, Tensor, bool] | None = None

    def __call__(self, positions: Ints | None) -> tuple[Tensor, Tensor, bool, Tensor | None]:
        """Records, labels, whether all models share them, and which places hold one (None: all).

        No positions: all records, gathered once and kept. Where some are common, the records are those, and `own` has
        the others; the labels are of both.
        """
        if positions is None:
            return *self.all(), None
        present = positions >= 0
        rows = np.take_along_axis(self.rows.own, np.where(present, positions, 0), 1)
        told = None if present.all() else torch.as_tensor(present, device=self.x.device)
        return *self._gather(rows, len(self.rows.own) == 1), told

    def all(self) -> tuple[Tensor, Tensor, bool]:
        if self._all is None:
            own = self.rows.own
            self._all = self._parted() if len(self.rows.common) else self._gather(own, bool((own == own[:1]).all()))
        return self._all

    def _parted(self) -> tuple[Tensor, Tensor, bool]:
        x, y, _ = self._gather(self.rows.common[None], True)
        own = self.y[torch.tensor(self.rows.own, device=self.x.device)]  # [model, record]
        return x, torch.cat([y.expand(len(own), -1), own], 1), True

    def _gather(self, rows: Ints, shared: bool) -> tuple[Tensor, Tensor, bool]:
        index = torch.tensor(rows[0] if shared else rows, device=self.x.device)
        return self.x[index], self.y[index], shared

    def cut(self, share: float, streams: Sequence[np.random.Generator]) -> tuple[Feed, Feed]:
        """Without a random `share` of each model's records, and those alone."""
        own = self.rows.own
        if not share:
            return self, Feed(self.x, self.y, Rows(own[:, :0]))
        kept = self.records - max(1, round(share * self.records))
        if not kept:
            raise ValueError(
                f"{self.records} training records are too few to hold some out; train without `stop` and opponent"
            )
        rows = np.stack([stream.permutation(line) for stream, line in zip(streams, own, strict=True)])
        return Feed(self.x, self.y, Rows(rows[:, :kept])), Feed(self.x, self.y, Rows(rows[:, kept:]))
