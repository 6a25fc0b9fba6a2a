"""The handle on an update that a participant shared: no record, no label, nothing to ask."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from engram.access.handle import Handle, Knowledge, Lab, Unknown
from engram.train.recipe import Loss
from engram.train.sharing import Update, functional, left_by, trainable
from engram.types import Evidence, Recovered


class Gradients(Handle):
    """A copy of the model, its loss, and one update of its weights. The batch behind it is what the adversary wants."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        update: Update,
        *,
        shape: tuple[int, ...],  # of one record
        classes: int,
        knowledge: Knowledge,
        lab: Lab,
    ) -> None:
        super().__init__(knowledge=knowledge, lab=lab)
        update.fits(model)
        self.model = copy.deepcopy(model)
        self.loss = loss
        self.update = update
        self.shape = shape
        self.classes = classes
        self.queries = 1  # one update was seen; what the adversary does with its copy costs nothing

    @property
    def device(self) -> torch.device:
        return self.update.tensors[0].device

    def behind(self, told: int | None) -> int:
        """The size of the batch: as the attack was told, or as the update says."""
        records = told or self.update.batch
        if records is None:
            raise Unknown("the update does not say how many records are behind it; set the knob batch")
        return records

    def exact(self) -> tuple[nn.Module, dict[str, Tensor], list[Tensor]]:
        """The model to be called with weights, these weights, and the shared tensors; all in float64."""
        model = functional(self.model).to(self.device, torch.float64)
        return model, trainable(model), [t.double() for t in self.update.tensors]

    def residual(self, x: Tensor, y: Tensor) -> list[float]:
        """How far the update of this batch is from the one that was shared, for each tensor, relative to its length.

        Zero, but for rounding, for the true batch in any order; hence a certificate that needs no truth.
        """
        return [float(relative([a], [b])) for a, b in zip(*self._made(x, y), strict=True)]

    def by_tensor(self, said: Evidence) -> list[tuple[str, float]]:
        """The residual of guessed records that come with their labels, tensor by tensor; of anything else, nothing."""
        if not isinstance(said, Recovered) or said.kind != "record" or said.labels is None:
            return []
        left = self.residual(torch.as_tensor(said.guesses), torch.as_tensor(said.labels))
        return list(zip(trainable(self.model), left, strict=True))

    def unexplained(self, x: Tensor, y: Tensor) -> float:
        """The residual over all tensors together."""
        return float(relative(*self._made(x, y)))

    def _made(self, x: Tensor, y: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """What this batch leaves, and what was shared."""
        model, weights, told = self.exact()
        made = left_by(
            model, self.loss, weights, exactly(x, self.device), exactly(y, self.device),
            rate=self.update.rate, steps=self.update.steps,
        )  # fmt: skip
        return made, told


def exactly(values: Tensor, device: torch.device) -> Tensor:
    values = values.to(device)
    return values.double() if values.is_floating_point() else values


def relative(made: Sequence[Tensor], told: Sequence[Tensor]) -> Tensor:
    """||made - told|| / ||told||, over all tensors."""
    off = sum((a - b).square().sum() for a, b in zip(made, told, strict=True))
    size = sum(b.square().sum() for b in told)
    found: Tensor = torch.as_tensor(off / size).sqrt() if size else torch.as_tensor(off).sqrt()
    return found
