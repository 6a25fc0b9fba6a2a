"""Handles on a model that answers: with a label, or with the probability of every class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engram.access.handle import Candidates
from engram.signals import Signal, View, as_is, shown
from engram.types import Array, Floats, Ints


class Labels(Candidates):
    """The model answers with the label it finds most probable."""

    def labels(self, x: Array | Tensor) -> Ints:
        """[record]"""
        found: Ints = shown(self._ask(x)).cpu().numpy()
        return found


class Probabilities(Candidates):
    """The model answers with the probability of every class, in float64."""

    def probabilities(self, x: Array) -> Floats:
        """[record, class]"""
        found: Floats = self._ask(x).cpu().numpy()
        return found

    def signal(self, signal: Signal, views: Sequence[View] = (as_is,)) -> Floats:
        """A signal of the target on the candidate records, [view, record, ...]; costs one query for each."""
        x = torch.as_tensor(self.records.x, device=self._lab.device)
        y = torch.as_tensor(self.records.y, device=self._lab.device)
        return torch.stack([signal(self._ask(view(x)), y) for view in views]).cpu().numpy()
