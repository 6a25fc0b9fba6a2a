"""The handle on a model that the adversary holds."""

from __future__ import annotations

import copy

from torch import nn

from engram.access.handle import Candidates, Knowledge, Lab
from engram.data.dataset import Dataset
from engram.population import Answering


class Weights(Candidates):
    """The adversary holds the model: it asks a copy of it what it likes, gradients among it."""

    def __init__(
        self, records: Dataset, answer: Answering, *, knowledge: Knowledge, lab: Lab, budget: int | None = None
    ) -> None:
        super().__init__(records, answer, knowledge=knowledge, lab=lab, budget=budget)
        self._model = answer.model

    def module(self) -> nn.Module:
        """A copy of the model, in evaluation mode. It returns logits; what is done to answers is not part of it."""
        return copy.deepcopy(self._model).eval()
