"""What one batch does to the model. A step is begun once a training and may carry state from batch to batch.

Like the loop, a step does not know whether it moves one model or a stack: outputs and losses have a leading [model] axis,
and the gradient of the sum of the models' losses is the gradient of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from engram.seed import Seed
from engram.train.stack import Models

Loss = Callable[[Tensor, Tensor], Tensor]
Records = tuple[Tensor, Tensor, bool]  # x, y, and whether all models share them


@dataclass(frozen=True, eq=False)
class Batch:
    x: Tensor  # [model, record, ...], or [record, ...] where all models share it
    y: Tensor  # [model, record]
    shared: bool
    epoch: int
    present: Tensor | None = None  # [model, record] which places hold a record; None: all
    own: Tensor | None = (
        None  # [model, record, ...] each model's own, after the x that all share; their labels are in y
    )


@dataclass(frozen=True, eq=False)
class Training:
    """What a step works on."""

    loss: Loss  # per record
    models: Models
    optimiser: torch.optim.Optimizer
    seeds: Sequence[Seed]  # [model]
    records: int  # that each model trains on
    release: bool  # whether somebody outside will see these models: then noise comes from the operating system
    beside: Records | None  # the records that the step asked to have held out

    def outputs(self, batch: Batch) -> Tensor:
        """[model, record, class]"""
        outputs = self.models(batch.x, shared=batch.shared)
        return outputs if batch.own is None else torch.cat([outputs, self.models(batch.own)], 1)

    def descend(self, objective: Tensor) -> None:
        """One step of every model down its own objective, [model]."""
        self.models.backward(objective.sum())
        self.optimiser.step()


Take = Callable[[Batch], None]


class Step(Protocol):
    """A frozen dataclass of knobs. `beside` is the share of each model's records that it wants held out of the batches."""

    @property
    def beside(self) -> float: ...

    def __call__(self, training: Training) -> Take: ...


@dataclass(frozen=True)
class Plain:
    """Down the mean loss of the batch."""

    beside: ClassVar[float] = 0.0

    def __call__(self, training: Training) -> Take:
        def take(batch: Batch) -> None:
            losses = training.loss(training.outputs(batch), batch.y)  # [model, record]
            training.descend(mean(losses, batch.present))

        return take


def mean(losses: Tensor, present: Tensor | None) -> Tensor:
    """Over the records that are there; [model]"""
    return losses.mean(1) if present is None else (losses * present).sum(1) / present.sum(1).clamp_min(1)


def only_plain(step: Step, wanted: str) -> None:
    """An error if a defence would silently replace another one's step."""
    if not isinstance(step, Plain):
        raise TypeError(
            f"{wanted} replaces the plain step, and this recipe already trains with {step!r}; use one of them"
        )
