"""The handle on a model that the adversary holds."""

from __future__ import annotations

import copy

from torch import nn

from engram.access.answers import Labels, Probabilities
from engram.access.handle import Knowledge, Lab
from engram.data.dataset import Dataset
from engram.population import Answering


class Weights(Labels, Probabilities):
    """The adversary holds the model: besides its answers, it has a copy to look into."""

    def __init__(
        self, records: Dataset, answer: Answering, *, knowledge: Knowledge, lab: Lab, budget: int | None = None
    ) -> None:
        super().__init__(records, answer, knowledge=knowledge, lab=lab, budget=budget)
        self._model = answer.model

    def module(self) -> nn.Module:
        """A copy of the model, in evaluation mode. It returns logits; what is done to answers is not part of it."""
        return copy.deepcopy(self._model).eval()
