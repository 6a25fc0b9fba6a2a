"""The private step: clip every record's gradient, add noise to the sum, divide by a fixed public number, move.

Abadi et al.: Deep Learning with Differential Privacy, 2016, Algorithm 1.
Li, Tramer, Liang, Hashimoto: Large Language Models Can Be Strong Differentially Private Learners, 2022.
Bu, Wang, Zha, Karypis: Differentially Private Optimization on Large Model at Small Cost, 2023 (book-keeping).
Differs from the papers: the sum begins as the noise, so no pass over the parameters is spent on adding it; and the
divisor is a number the caller states, never the size of the batch or of the data.
Neighbouring: add or remove one record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves

from engram import check
from engram.clipping import admission, coefficients, products
from engram.clipping.budget import Budget, Ledger, step_event
from engram.clipping.coefficients import CLIPPINGS, Clipping
from engram.clipping.pieces import Kept, Norms, Piece, together
from engram.clipping.ranks import Ranks
from engram.clipping.routes import CHOICES, Choice, Routes
from engram.clipping.tape import NotPrivate, Tape
from engram.clipping.totals import Totals, source
from engram.seed import Seed

Mode = Literal["book-keeping", "ghost", "layer by layer", "micro-batch"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Settings:
    """What a private step is. All of it may be published."""

    noise_multiplier: float  # standard deviation of the noise over clip_norm
    clip_norm: float
    expected_batch: float  # the divisor: rate times the number of records one expects, and nothing that was counted
    rate: float | None = None  # of the Poisson sample; None claims no amplification by sampling
    mode: Mode = "book-keeping"
    clipping: Clipping = "flat"
    routes: Choice = "measured"

    def __post_init__(self) -> None:
        check.at_least("noise_multiplier", self.noise_multiplier, 0.0, "0 is no noise at all")
        if not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be positive, got {self.clip_norm}; use float('inf') for no clipping")
        if math.isinf(self.clip_norm) and (self.noise_multiplier or self.clipping != "flat"):
            raise ValueError("clip_norm=inf must come with noise_multiplier=0 and clipping='flat'; state a finite clip_norm")
        check.positive("expected_batch", self.expected_batch)
        if self.rate is not None:
            check.fraction("rate", self.rate, one=True)
        check.known("mode", self.mode, MODES)
        check.known("clipping", self.clipping, CLIPPINGS)
        check.known("choice of routes", self.routes, CHOICES)


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
        self.device = admission.check_device(self.model)
        admission.check_optimiser(self.model, optimiser)
        routes: Choice = "instantiated" if settings.mode == "layer by layer" else settings.routes
        if simulated is not None and routes == "measured":
            routes = "counted"  # a simulated run is reproducible to the last bit
        self.tape = Tape(Routes(routes), hold=settings.mode == "book-keeping", watching=settings.mode != "micro-batch")
        self.layers = admission.layers_of(self.model, self.tape)
        self.ledger = Ledger()
        self._hook = self.model.register_forward_pre_hook(self._begin, with_kwargs=True)
        self._noise = source(self.device, simulated)
        self._flat: Tensor | None = None
        self._open: list[Parameter] = []  # trainable when the logical batch began
        self._failed = False
        self._odd: Tensor | None = None  # whether some record's gradient was not finite
        self.ranks.align(self.model)

    # the loop

    def backward(self, loss: Tensor) -> None:
        """Adds the clipped gradient of every record. `loss` has one number a record; call it as often as memory asks."""
        tape = self.tape
        loss = admission.check_loss(loss, tape.records)
        self._begin_batch()
        tape.length = len(loss)
        self._failed = True  # until it ends well
        try:
            if len(loss):
                with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
                    self._gather(loss)
        finally:
            tape.clear()
            tape.forget()
        self._failed = False

    def step(self) -> None:
        """Spends the budget of one step, moves the model by the noisy sum, and begins the next batch.

        Without any `backward` before it (an empty Poisson batch) the step is the noise alone, and counts.
        """
        if self._failed:
            raise NotPrivate("the last backward failed, so the batch is incomplete; call zero_grad() and gather it again")
        self._begin_batch()
        self._refuse_odd(wait=self.device.type == "cpu")
        self._spend()
        totals, flat = self._totals, self._sum()
        self.ranks.add_up(flat)
        for parameter in self._all_parameters():
            parameter.grad = None
        for parameter, part in totals.views(flat).items():
            parameter.grad = part if part.dtype == parameter.dtype else part.to(parameter.dtype)
        self.optimiser.step()
        for parameter in totals.parameters:
            parameter.grad = None
        self.zero_grad()

    def zero_grad(self) -> None:
        """Drops what was gathered since the last step. A step does so by itself; nothing is spent or given back."""
        self._flat, self._open, self._failed = None, [], False

    def release(self) -> nn.Module:
        """The model, with its own forward passes back."""
        for layer in self.layers:
            layer.release()
        self._hook.remove()
        return self.model

    # the budget

    def epsilon(self, delta: float) -> float:
        """What all steps so far have cost."""
        self._refuse_odd(wait=True)
        if self.simulated is not None:
            raise NotPrivate(
                "simulated noise can be drawn again by whoever knows the seed, so it carries no epsilon; leave `simulated` out"
            )
        if self.budget is None:
            raise NotPrivate("expected a budget to price the steps with, got none; pass budget= to engram.private")
        return self.budget.epsilon(delta)

    def state_dict(self) -> dict[str, Any]:
        """The budget spent, and the settings it was spent under. The model and the optimiser have their own."""
        if self._flat is not None:
            raise NotPrivate("a batch is half gathered; call step() or zero_grad() before saving")
        self._refuse_odd(wait=True)
        return {"format": 1, "simulated": self.simulated is not None, "spent": self.ledger.told(), **asdict(self.settings)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what an earlier run has spent. Only before the first step: spending is never undone."""
        if self.ledger.steps:
            raise NotPrivate(f"expected a fresh private model, got one after {self.ledger.steps} steps; load before training")
        if state.get("format") != 1 or "spent" not in state:
            raise ValueError(f"expected the state_dict of a private model, got the keys {sorted(state)}")
        if state["simulated"] != (self.simulated is not None):
            raise NotPrivate("a simulated run cannot become a private one, nor the other way round; make it as it was saved")
        for noise, rate, times in state["spent"]:
            if self.budget is not None and self.simulated is None:
                for _ in range(times):
                    self.budget.spend(step_event(noise, rate))
            self.ledger.add(noise, rate, times)

    # within

    def _begin(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        """Before each forward pass: how many records there are."""
        if self.tape.phase == "idle" and not self.tape.inside:
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim]
            self.tape.records = tensors[0].shape[0] if tensors else None

    def _begin_batch(self) -> None:
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        if not trainable:
            raise ValueError("expected a model with a trainable parameter, got none; unfreeze one")
        if self._open and [id(p) for p in trainable] != [id(p) for p in self._open]:
            raise NotPrivate(
                "parameters were frozen or unfrozen in the middle of a logical batch; do so after step(), "
                "or call zero_grad() and gather the batch again"
            )
        if not self._open:
            admission.check_optimiser(self.model, self.optimiser)
            self._open, self._totals = trainable, Totals(trainable)
            self._groups = admission.groups_of(self.model, trainable)
            if self.settings.clipping != "per-layer":
                self._groups = dict.fromkeys(trainable, 0)
            self._count = max(self._groups.values()) + 1
            self.tape.shared = admission.shared(self.model)

    def _all_parameters(self) -> list[Parameter]:
        return [p for group in self.optimiser.param_groups for p in group["params"]]

    def _spend(self) -> None:
        settings = self.settings
        if self.simulated is None and self.budget is not None:
            self.budget.spend(step_event(settings.noise_multiplier, settings.rate))
        self.ledger.add(settings.noise_multiplier, settings.rate)

    def _sum(self) -> Tensor:
        """The flat buffer; it begins as the noise, on one rank only."""
        if self._flat is None:
            settings = self.settings
            noisy = settings.noise_multiplier > 0 and self.ranks.first
            deviation = settings.noise_multiplier * settings.clip_norm / settings.expected_batch if noisy else 0.0
            self._flat = self._totals.fresh(deviation, self._noise)
        return self._flat

    def _gather(self, loss: Tensor) -> None:
        for parameter in self._open:
            parameter.grad = None
        if self.settings.mode == "micro-batch":
            self._one_by_one(loss)
            return
        self._probe(loss)
        again = self.settings.mode != "book-keeping"
        self._pass(loss, "norms", retain=again)
        weights, lines = self._weights()
        flat = self._sum()
        views = self._totals.views(flat)

        def add(parameter: Parameter, piece: Piece) -> None:
            piece.add_to(views[parameter], weights[:, self._groups[parameter]])

        if again:
            self.tape.clear()
            self.tape.add = add
            self._pass(loss, "sum", retain=False)
            return
        if lines is not None:
            self._totals.add_lines(flat, lines, weights[:, 0])
        for parameter in list(self.tape.pieces):
            for piece in self.tape.pieces.pop(parameter):  # what it holds is freed before the next
                add(parameter, piece)

    def _pass(self, loss: Tensor, phase: Literal["norms", "sum"], *, retain: bool) -> None:
        self.tape.phase = phase
        torch.autograd.backward(loss, torch.ones_like(loss), retain_graph=retain)
        self._refuse_strays()

    def _weights(self) -> tuple[Tensor, Tensor | None]:
        """[record, group] what each record counts, over the expected batch; and all vectors side by side, if there are."""
        tape, settings = self.tape, self.settings
        norms: list[Norms] = []
        groups: list[int] = []
        lines = self._lines()
        if lines is not None:
            norms, groups = [Norms(products.squares(lines))], [0]
        for parameter, pieces in tape.pieces.items():
            norms.append(together(pieces, parameter.shape))
            groups.append(self._groups[parameter])
        for parameter, known in tape.norms.items():
            norms += known
            groups += [self._groups[parameter]] * len(known)
        return self._clipped(norms, groups, self._margin()) / settings.expected_batch, lines

    def _lines(self) -> Tensor | None:
        """With one group, all vectors' gradients are one matrix [record, number]: one norm, one product."""
        pieces, vectors = self.tape.pieces, self._totals.vectors
        if self._count > 1 or self.settings.mode != "book-keeping" or not any(p in pieces for p in vectors):
            return None
        values = {}
        for parameter in vectors:
            used = pieces.get(parameter, [])
            if used and all(isinstance(piece, Kept) for piece in used):
                values[parameter] = [piece.dense(slice(None)) for piece in pieces.pop(parameter)]
        return self._totals.lines({p: sum(v[1:], v[0]) for p, v in values.items()}, self.tape.length)

    def _clipped(self, norms: list[Norms], groups: list[int], margin: float) -> Tensor:
        if not norms:
            return torch.zeros(self.tape.length, self._count, dtype=torch.float64, device=self.device)
        exact, largest = coefficients.gathered(norms, groups, self._count)
        self.norms = exact.sqrt()  # [record, group] of the last backward; private, for whoever debugs
        odd = ~largest.isfinite().all()
        self._odd = odd if self._odd is None else self._odd | odd
        self._refuse_odd(wait=self.device.type == "cpu")
        return coefficients.weights(largest, self.settings.clip_norm, self.settings.clipping, margin)

    def _margin(self) -> float:
        kinds = {p.dtype for p in self._open} | self.tape.dtypes
        return max(products.margin(kind, self.device) for kind in kinds)

    def _probe(self, loss: Tensor) -> None:
        """Once for each new way the layers are called: the loss of one record must reach no other record's entries."""
        tape = self.tape
        if not tape.seen - tape.checked or len(loss) == 1:
            return
        tape.phase, tape.probed = "probe", int(loss.detach().abs().argmax())
        torch.autograd.backward(loss, _only(loss, tape.probed), retain_graph=True)
        self._refuse_strays()
        for name, leaked in tape.leaks:
            if leaked.item():
                raise NotPrivate(
                    f"{name} must keep records apart, but the loss of one record depends on what the layer sees of others; "
                    "put the records first, and let no layer mix them"
                )
        tape.leaks = []
        tape.checked |= tape.seen

    def _refuse_strays(self) -> None:
        strays = [name for name, p in self.model.named_parameters() if p.requires_grad and p.grad is not None]
        if strays:
            for parameter in self._open:
                parameter.grad = None
            raise NotPrivate(
                f"{strays[0]} is used outside of its own layer's forward pass, so its gradients cannot be told apart "
                f"({len(strays)} such parameters); freeze it, or call the layer that holds it"
            )

    def _refuse_odd(self, *, wait: bool) -> None:
        """On a GPU this is asked only where waiting costs nothing."""
        if wait and self._odd is not None and bool(self._odd):
            raise NotPrivate(
                "some record's gradient was not finite, so nothing bounds what that record did; "
                "lower the learning rate or the loss scale, and start from the last good weights"
            )

    def _one_by_one(self, loss: Tensor) -> None:
        """The plain way: a backward pass for each record."""
        views = self._totals.views(self._sum())
        for i in range(len(loss)):
            last = i + 1 == len(loss)
            made = torch.autograd.grad(loss, self._open, _only(loss, i), retain_graph=not last, allow_unused=True)
            pieces = {p: Kept(g[None]) for p, g in zip(self._open, made, strict=True) if g is not None}
            norms = [piece.norms() for piece in pieces.values()]
            groups = [self._groups[p] for p in pieces]
            weights = self._clipped(norms, groups, self._margin()) / self.settings.expected_batch
            for parameter, piece in pieces.items():
                piece.add_to(views[parameter], weights[:, self._groups[parameter]])




def _only(loss: Tensor, record: int) -> Tensor:
    """A gradient of 1 for one record."""
    one = torch.zeros_like(loss)
    one[record] = 1
    return one
