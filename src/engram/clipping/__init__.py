"""Private training at nearly the price of ordinary training.

private = engram.private(model, optimiser, noise_multiplier=1.0, clip_norm=0.1, expected_batch=256, rate=0.01)
for batch in clipping.poisson(len(x), 0.01, steps=1000):
    for part in numpy.array_split(batch, 4):                 # as many pieces as memory asks for
        private.backward(per_record_loss(model(x[part]), y[part]))  # [record]
    private.step()
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from engram import check
from engram.clipping.budget import Budget, Ledger, limited, step_event
from engram.clipping.sampling import poisson
from engram.clipping.settings import Settings
from engram.clipping.step import Private
from engram.clipping.tape import NotPrivate
from engram.seed import Seed

__all__ = ["Budget", "Ledger", "NotPrivate", "Private", "Settings", "poisson", "private", "step_event"]


def private(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    *,
    noise_multiplier: float,
    clip_norm: float,
    expected_batch: float,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    simulated: Seed | None = None,
    **settings: Any,
) -> Private:
    """A private step for your own training loop, with any torch optimiser.

    Use `private.backward(loss)` with one loss a record, and `private.step()`; leave `loss.backward()` and
    `optimiser.step()` alone. `settings` are the other fields of `Settings`: rate, mode, clipping, routes.
    With `epsilon` and `delta` the step that would overrun them is refused; `budget` is any other rule of that kind.
    `simulated` draws the noise from a seed, for shadows and audits only: such a run never carries an epsilon.

    >>> model = nn.Linear(3, 2)
    >>> private = engram.private(model, torch.optim.SGD(model.parameters(), 0.1), noise_multiplier=1.0, clip_norm=1.0,
    ...                          expected_batch=4)
    >>> private.backward(nn.functional.cross_entropy(model(torch.ones(4, 3)), torch.zeros(4).long(), reduction="none"))
    >>> private.step()
    """
    told = Settings(noise_multiplier, clip_norm, expected_batch, **settings)
    if (epsilon is None) != (delta is None) or (epsilon is not None and budget is not None):
        raise ValueError(
            f"a budget is epsilon and delta together, or budget= alone, got epsilon={epsilon}, delta={delta}, budget={budget}"
        )
    if epsilon is not None and delta is not None:
        check.positive("noise_multiplier", noise_multiplier, "a run without noise has no budget")
        budget = limited(epsilon, delta, step_event(noise_multiplier, told.rate))
    return Private(model, optimiser, told, budget=budget, simulated=simulated)
