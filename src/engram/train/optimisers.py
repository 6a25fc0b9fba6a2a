"""Optimisers, as what they are set to. Each acts on every number alone, so one step on stacked models is a step on each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cosine:
    """The rate falls along half a cosine, from its full value to zero at the end of training."""

    def __call__(self, progress: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Drops:
    """The rate is multiplied by `factor` when each of these shares of the training is over."""

    at: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __call__(self, progress: float) -> float:
        return float(self.factor ** sum(progress >= share for share in self.at))


Schedule = Cosine | Drops


@dataclass(frozen=True)
class Adam:
    """`weight_decay` is added to the gradient (L2), as in the 2015 paper; `decoupled` makes it AdamW."""

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    decoupled: bool = False
    schedule: Schedule | None = None

    def __call__(self, parameter: Tensor) -> torch.optim.Optimizer:
        kind = torch.optim.AdamW if self.decoupled else torch.optim.Adam
        return kind([parameter], self.rate, self.betas, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True)
class SGD:
    rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    schedule: Schedule | None = None

    def __call__(self, parameter: Tensor) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            [parameter], self.rate, self.momentum, weight_decay=self.weight_decay, nesterov=self.nesterov, fused=True
        )


@dataclass(frozen=True)
class RMSProp:
    """Tieleman, Hinton 2012: steps in units of the recent size of each number's gradient."""

    rate: float = 1e-3
    decay: float = 0.9
    weight_decay: float = 0.0
    schedule: Schedule | None = None

    def __call__(self, parameter: Tensor) -> torch.optim.Optimizer:
        return torch.optim.RMSprop([parameter], self.rate, self.decay, weight_decay=self.weight_decay, foreach=True)
