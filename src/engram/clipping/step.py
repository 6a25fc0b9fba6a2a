"""The private step: clip every record's gradient, add noise to the sum, divide by a fixed public number, move.

Abadi et al.: Deep Learning with Differential Privacy, 2016, Algorithm 1.
Li, Tramer, Liang, Hashimoto: Large Language Models Can Be Strong Differentially Private Learners, 2022.
Bu, Wang, Zha, Karypis: Differentially Private Optimization on Large Model at Small Cost, 2023 (book-keeping).
Differs from the papers: the sum begins as the noise, so no pass over the parameters is spent on adding it; and the
divisor is a number the caller states, never the size of the batch or of the data.
Neighbouring: add or remove one record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from engram.clipping import admission
from engram.clipping.batch import Batch, refuse_odd
from engram.clipping.budget import Budget, Ledger, price, step_event
from engram.clipping.ranks import Ranks
from engram.clipping.roster import Roster
from engram.clipping.routes import Choice, Routes
from engram.clipping.settings import Settings
from engram.clipping.tape import NotPrivate, Tape
from engram.clipping.totals import source
from engram.seed import Seed


class Private:
    """A model and its optimiser, trained privately. Made by `engram.private`."""

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        settings: Settings,
        *,
        budget: Budget | None = None,
        simulated: Seed | None = None,
    ) -> None:
        self.model, self.ranks = Ranks.of(model)
        self.optimiser, self.settings, self.budget, self.simulated = optimiser, settings, budget, simulated
        admission.check_layers(self.model)
        self.device = admission.check_device(self.model)
        admission.check_optimiser(self.model, optimiser)
        self.roster = Roster(self.model)
        self.roster.check_held(self.roster.trainable(), optimiser)
        routes: Choice = "instantiated" if settings.mode == "layer by layer" else settings.routes
        if simulated is not None and routes == "measured":
            routes = "counted"  # a simulated run is reproducible to the last bit
        self.tape = Tape(Routes(routes), hold=settings.mode == "book-keeping", watching=settings.mode != "micro-batch")
        self.layers = admission.layers_of(self.model, self.tape)
        self.ledger = Ledger()
        self.norms: Tensor | None = (
            None  # [record, group] of the last backward, before clipping; private, to debug with
        )
        self._hook = self.model.register_forward_pre_hook(self._entered, with_kwargs=True)
        self._noise = source(self.device, simulated)
        self._batch: Batch | None = None
        self._failed = False
        self._odd: list[tuple[Tensor, Any]] = []  # flags on their way from the GPU
        self.ranks.align(self.model)

    # the loop

    def backward(self, loss: Tensor) -> None:
        """Adds the clipped gradient of every record. `loss` has one number a record; call it as often as memory asks."""
        loss = admission.check_loss(loss, self.tape.records)
        batch = self._begun()
        self._failed = True  # until it ends well
        try:
            if len(loss):
                batch.add(loss)
        finally:
            self.tape.clear()
            self.tape.forget()
        self.norms, self._failed = batch.norms, False

    def step(self) -> None:
        """Spends the budget of one step, moves the model by the noisy sum, and begins the next batch.

        Without any `backward` before it (an empty Poisson batch) the step is the noise alone, and counts.
        """
        if self._failed:
            raise NotPrivate(
                "the last backward failed, so the batch is incomplete; call zero_grad() and gather it again"
            )
        self._refuse_odd(wait=False)
        batch = self._begun()
        flat = batch.total()
        self._spend()
        self.ranks.add_up(flat)
        for group in self.optimiser.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        for parameter, part in batch.totals.views(flat).items():
            parameter.grad = part if part.dtype == parameter.dtype else part.to(parameter.dtype)
        self.optimiser.step()
        for parameter in batch.trainable:
            parameter.grad = None
        self._send(batch.odd)
        self.zero_grad()

    def zero_grad(self) -> None:
        """Drops what was gathered since the last step. A step does so by itself; nothing is spent or given back."""
        self._batch, self._failed = None, False

    def release(self) -> nn.Module:
        """The model, with its own forward passes back."""
        for layer in self.layers:
            layer.release()
        self._hook.remove()
        return self.model

    # the budget

    def epsilon(self, delta: float) -> float:
        """What all steps so far have cost; infinite without noise.

        Without a budget, by Renyi accounting of the steps taken: right if their number was not decided by what the model
        showed. With one, by the budget's own rule.
        """
        self._refuse_odd(wait=True)
        if self.simulated is not None:
            raise NotPrivate(
                "simulated noise can be drawn again by whoever knows the seed, so it carries no epsilon; leave it out"
            )
        return price(self.ledger, delta) if self.budget is None else self.budget.epsilon(delta)

    def state_dict(self) -> dict[str, Any]:
        """The budget spent, and the settings it was spent under. The model and the optimiser have their own."""
        if self._batch is not None:
            raise NotPrivate("a batch is half gathered; call step() or zero_grad() before saving")
        self._refuse_odd(wait=True)
        return {
            "format": 1,
            "simulated": self.simulated is not None,
            "spent": self.ledger.told(),
            **asdict(self.settings),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what an earlier run has spent. Only before the first step: spending is never undone."""
        if self.ledger.steps:
            raise NotPrivate(
                f"expected a fresh private model, got one after {self.ledger.steps} steps; load before training"
            )
        if state.get("format") != 1 or "spent" not in state:
            raise ValueError(f"expected the state_dict of a private model, got the keys {sorted(state)}")
        if state["simulated"] != (self.simulated is not None):
            raise NotPrivate(
                "a simulated run cannot become a private one, nor the other way round; make it as it was saved"
            )
        for noise, rate, times in state["spent"]:
            self._spend(noise, rate, times)

    # within

    def _entered(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        """Before each forward pass: how many records there are."""
        if torch.is_grad_enabled() and self.tape.phase == "idle" and not self.tape.inside:
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim]
            self.tape.records = tensors[0].shape[0] if tensors else None

    def _begun(self) -> Batch:
        """The logical batch under way."""
        if self._batch is None:
            self._batch = Batch(self.roster, self.tape, self.settings, self._noise if self.ranks.first else ())
            self.roster.check_held(self._batch.trainable, self.optimiser)
        elif [id(p) for p in self.roster.trainable()] != [id(p) for p in self._batch.trainable]:
            raise NotPrivate(
                "parameters were frozen or unfrozen in the middle of a logical batch; do so after step(), "
                "or call zero_grad() and gather the batch again"
            )
        return self._batch

    def _spend(self, noise: float | None = None, rate: float | None = None, times: int = 1) -> None:
        if noise is None:
            noise, rate = self.settings.noise_multiplier, self.settings.rate
        if self.simulated is None and self.budget is not None:
            self.budget.spend(step_event(noise, rate), times)
        self.ledger.add(noise, rate, times)

    def _send(self, odd: Tensor | None) -> None:
        """Starts the flag on its way to the host; nobody waits for it."""
        if odd is None or odd.device.type != "cuda":
            return
        there = torch.empty((), dtype=torch.bool, pin_memory=True)
        there.copy_(odd, non_blocking=True)
        arrived: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        self._odd.append((there, arrived))

    def _refuse_odd(self, *, wait: bool) -> None:
        while self._odd and (wait or self._odd[0][1].query()):
            flag, arrived = self._odd[0]
            arrived.synchronize()
            refuse_odd(flag)
            self._odd.pop(0)
