"""Train against an opponent that tells members by the answers of the model as it is.

Nasr, Shokri, Houmansadr: Machine Learning with Membership Privacy using Adversarial Regularization, 2018. Algorithm 1 and
section 4: the opponent maximises log h(members) + log(1 - h(others)), the model minimises loss + weight * log h(members).
Differs from the paper: the opponent moves with every batch, `steps` times before the model does. Choquette-Choo et al.
2021 let the model train alone for three epochs first; so do we.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engram import check
from engram.models.opponents import Inference
from engram.seed import Seed
from engram.train.loop import seeded
from engram.train.optimisers import Adam
from engram.train.recipe import Recipe
from engram.train.stack import Stack
from engram.train.steps import Batch, Records, Take, Training, mean, only_plain

ALONE = 3  # epochs


class Opponents:
    """One opponent for each model, and the records that its model is never trained on."""

    def __init__(self, training: Training, classes: int, width: int, rate: float) -> None:
        assert training.beside is not None
        seeds, device = training.seeds, training.beside[0].device
        self.nets = Stack([_drawn(Inference(classes, width), seed) for seed in seeds], len(seeds), device)
        self.optimiser = Adam(rate)(self.nets.flat.values)
        self.others = Others(training.beside, [seed.child("others").numpy() for seed in seeds])

    def odds(self, p: Tensor, y: Tensor) -> Tensor:
        """Log-odds of a member, [model, record]."""
        label = functional.one_hot(y, p.shape[-1]).to(p.dtype)
        return self.nets(torch.cat([p, label], -1))[..., 0]

    def learn(
        self, members: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], present: Tensor | None = None
    ) -> Tensor:
        """One step towards telling answers to members from answers to others; their loss before it, [model]."""
        inside, outside = self.odds(*members), self.odds(*others)
        loss = -(mean(functional.logsigmoid(inside), present) + functional.logsigmoid(-outside).mean(1)) / 2
        self.nets.backward(loss.sum())
        self.optimiser.step()
        return loss.detach()


class Others:
    """Held-out records, as many as a batch has, drawn anew for each model."""

    def __init__(self, held: Records, streams: list[np.random.Generator]) -> None:
        self.x, self.y, self.shared = held
        self.streams, self.records = streams, self.y.shape[-1]

    def __call__(self, size: int) -> tuple[Tensor, Tensor]:
        """[model, record, ...]"""
        drawn = np.stack(
            [stream.choice(self.records, min(size, self.records), replace=False) for stream in self.streams]
        )
        place = torch.as_tensor(drawn, device=self.x.device)
        if self.shared:
            return self.x[place], self.y[place]
        model = torch.arange(len(place), device=self.x.device)[:, None]
        return self.x[model, place], self.y[model, place]


@dataclass(frozen=True)
class Opposed:
    """A step of the opponents, then one of the models, with every batch."""

    weight: float
    beside: float
    steps: int
    width: int
    rate: float

    def __call__(self, training: Training) -> Take:
        opponents: list[Opponents] = []  # the number of classes is seen with the first batch

        def take(batch: Batch) -> None:
            outputs = training.outputs(batch)  # [model, record, class]
            objective = mean(training.loss(outputs, batch.y), batch.present)
            if batch.epoch >= ALONE:
                opponents[:] = opponents or [Opponents(training, outputs.shape[-1], self.width, self.rate)]
                objective = objective + self.weight * self._told(training, opponents[0], outputs.softmax(-1), batch)
            training.descend(objective)

        return take

    def _told(self, training: Training, opponents: Opponents, p: Tensor, batch: Batch) -> Tensor:
        """What the opponents gain from these members once they have learned, [model]."""
        for _ in range(self.steps):
            x, other = opponents.others(p.shape[1])
            with torch.no_grad():
                outside = training.models(x).softmax(-1)
            opponents.learn((p.detach(), batch.y), (outside, other), batch.present)
        return mean(functional.logsigmoid(opponents.odds(p, batch.y)), batch.present)


def _drawn(build: Inference, seed: Seed) -> torch.nn.Module:
    with seeded(seed.child("opponent"), "cpu"):
        return build()


def adversarial_regularisation(
    recipe: Recipe,
    *,
    weight: float = 1.0,
    beside: float = 0.2,
    steps: int = 1,
    width: int = 1024,
    rate: float = 1e-3,
) -> Recipe:
    """The same training against an opponent that infers membership. Costs the `beside` share of the records."""
    check.positive("weight", weight)
    check.fraction("beside", beside)
    check.whole("steps", steps, 1)
    check.whole("width", width, 4)
    check.positive("rate", rate)
    only_plain(recipe.step, "adversarial-regularisation")
    return replace(recipe, step=Opposed(weight, beside, steps, width, rate))
