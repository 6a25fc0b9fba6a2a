"""Keep the training loss near a level, so that members do not stand out.

Chen, Yu, Fritz: RelaxLoss: Defending Membership Inference Attacks without Losing Utility, 2022. Algorithm 1.
As in the released code, the softened label is itself differentiated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from engram import check
from engram.train.recipe import Recipe
from engram.train.steps import Batch, Take, Training, mean, only_plain


@dataclass(frozen=True)
class Relaxed:
    """Towards a mean loss of `alpha`; below it, every other epoch, answers are flattened instead."""

    beside: ClassVar[float] = 0.0
    alpha: float
    upper: float

    def __call__(self, training: Training) -> Take:
        def take(batch: Batch) -> None:
            outputs = training.outputs(batch)  # [model, record, class]
            losses = training.loss(outputs, batch.y)  # [model, record]
            training.descend(self.objective(outputs, batch.y, losses, batch.epoch, batch.present))

        return take

    def objective(
        self, outputs: Tensor, y: Tensor, losses: Tensor, epoch: int, present: Tensor | None = None
    ) -> Tensor:
        """[model]"""
        level = mean(losses, present)
        if epoch % 2 == 0:
            return (level - self.alpha).abs()
        right = (outputs.argmax(-1) == y).to(losses.dtype)
        flatter = mean((1 - right) * soft_loss(outputs, y, self.upper) - losses, present)
        return torch.where(level > self.alpha, level, flatter)


def soft_loss(outputs: Tensor, y: Tensor, upper: float) -> Tensor:
    """Cross-entropy towards the model's own confidence in the label, at most `upper`, and the rest spread evenly."""
    logs = outputs.log_softmax(-1)
    own = logs.gather(-1, y[..., None]).exp().clamp(max=upper)  # [model, record, 1]
    rest = ((1 - own) / (outputs.shape[-1] - 1)).expand_as(logs)
    return -(rest.scatter(-1, y[..., None], own) * logs).sum(-1)


def relaxloss(recipe: Recipe, *, alpha: float = 1.0, upper: float = 1.0) -> Recipe:
    """The same training, but towards a mean loss of `alpha` instead of zero. Costs confidence, little accuracy."""
    check.positive("alpha", alpha)
    check.fraction("upper", upper, one=True)
    only_plain(recipe.step, "relaxloss")
    return replace(recipe, step=Relaxed(alpha, upper))
