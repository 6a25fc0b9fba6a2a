"""A known training run as a function of the one record that is not known, with its derivatives.

Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022, section II (the threat model: the
algorithm, the start and all records but one are known). Maclaurin, Duvenaud, Adams: Gradient-based Hyperparameter
Optimization through Reversible Learning, 2015 (the reverse pass through training, algorithm 2).
Differs from the latter: momentum is linear, so the weights of each step are all that is kept, and a step is computed again
on the way back: [step, weight] numbers a guess, however many records there are.

A guess is a candidate for the missing record. All guesses train at once: the first layer of the fixed records is one product
over all of them, and each guess adds a term of rank one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from engram.data.dataset import Dataset
from engram.seed import Seed
from engram.train.loop import started
from engram.train.optimisers import SGD
from engram.train.recipe import Given, Loss, Recipe
from engram.train.sampling import FullBatch
from engram.train.stack import Device, Stack
from engram.train.steps import Plain

COUPLED = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RNNBase)


class Unrolled:
    """`run(x, y)`: the weights after training on the fixed records and one more, [guess, weight].

    Differentiable in the guesses x[guess, ...] and, where y[guess, class] are shares of the classes, in these too.
    """

    def __init__(
        self, recipe: Recipe, fixed: Dataset, *, dtype: torch.dtype = torch.float64, device: Device = "cpu"
    ) -> None:
        self.sgd = _known(recipe)
        if fixed.x.dtype.kind != "f":
            raise ValueError(f"a record is solved for as real numbers, and these are {fixed.x.dtype}; unroll no tokens")
        self.loss, self.dtype, self.device = recipe.loss, dtype, torch.device(device)
        progress = [epoch / recipe.epochs for epoch in range(recipe.epochs)]
        schedule = self.sgd.schedule
        self.rates = [self.sgd.rate * (schedule(p) if schedule else 1.0) for p in progress]  # [step]
        self.module = _uncoupled(started(recipe, Seed(0))).to(self.device, dtype).train()
        self.shapes = {name: p.shape for name, p in self.module.named_parameters() if p.requires_grad}
        self.start = self.flat(dict(self.module.named_parameters()))  # [weight]
        self.x = torch.as_tensor(fixed.x, device=self.device).to(dtype)  # [record, ...]
        self.y = torch.as_tensor(fixed.y, device=self.device)
        self._stacks: dict[int, Stack] = {}

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        end: Tensor = _Run.apply(self, x.to(self.device, self.dtype), y.to(self.device))  # type: ignore[no-untyped-call]
        return end

    def flat(self, weights: Any) -> Tensor:
        """Weights by name as one row, [weight]."""
        parts = [torch.as_tensor(weights[name]).detach().flatten() for name in self.shapes]
        return torch.cat(parts).to(self.device, self.dtype)

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """The other way: one row, or [guess, weight], as weights by name."""
        parts = torch.split(row, [shape.numel() for shape in self.shapes.values()], -1)
        return {
            name: part.reshape(*row.shape[:-1], *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    @property
    def classes(self) -> int:
        """How many the network tells apart."""
        with torch.no_grad():
            return int(self.wearing(self.start[None])(self.x[:1], shared=True).shape[-1])

    def path(self, x: Tensor, y: Tensor) -> Iterator[Tensor]:
        """The weights before each step, and those at the end, [guess, weight]."""
        w = self.start.expand(len(x), -1)
        momentum = torch.zeros_like(w)
        yield w
        for rate in self.rates:
            w, momentum = self.stepped(w, momentum, self.gradient(w, x, y), rate)
            yield w

    def stepped(self, w: Tensor, momentum: Tensor, gradient: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """One step of SGD. Linear, so it moves tangents as it moves weights."""
        gradient = gradient + self.sgd.weight_decay * w
        momentum = self.sgd.momentum * momentum + gradient
        down = gradient + self.sgd.momentum * momentum if self.sgd.nesterov else momentum
        return w - rate * down, momentum

    def back(self, dw: Tensor, dm: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """How an end depends on this step's gradient, and on the momentum before; told how on weights and momentum after."""
        ahead = self.sgd.nesterov
        dm = dm - rate * (self.sgd.momentum if ahead else 1.0) * dw
        return dm - rate * dw if ahead else dm, self.sgd.momentum * dm

    def objective(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss over the fixed records and the guess, of each model, [guess]."""
        models = self.wearing(w)
        fixed = self.loss(models(self.x, shared=True), self.y.expand(len(w), -1)).sum(1)
        return (fixed + shares(self.loss, models(x[:, None]), y[:, None])[:, 0]) / (len(self.x) + 1)

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            w = w.detach().requires_grad_()
            (g,) = torch.autograd.grad(self.objective(w, x.detach(), y.detach()).sum(), w)
        return g

    def pulled(self, w: Tensor, x: Tensor, y: Tensor, along: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """along . gradient, differentiated by weights, guesses, and shares of the classes."""
        with torch.enable_grad():
            soft = y.is_floating_point()
            inputs = [t.detach().requires_grad_() for t in ((w, x, y) if soft else (w, x))]
            (g,) = torch.autograd.grad(
                self.objective(inputs[0], inputs[1], inputs[2] if soft else y).sum(), inputs[0], create_graph=True
            )
            found = torch.autograd.grad(g, inputs, along, materialize_grads=True)
        return found[0], found[1], found[2] if soft else None

    def pushed(self, x: Tensor, y: Tensor, dx: Tensor) -> tuple[Tensor, Tensor]:
        """The weights at the end, and how they move when each guess moves along its dx; [guess, weight] both."""
        x, dx = x.to(self.device, self.dtype), dx.to(self.device, self.dtype)
        w = self.start.expand(len(x), -1)
        dw, momentum = torch.zeros_like(w), torch.zeros_like(w)
        d_momentum = momentum
        for rate in self.rates:
            g, dg = self._turned(w, x, y, dw, dx)
            w, momentum = self.stepped(w, momentum, g, rate)
            dw, d_momentum = self.stepped(dw, d_momentum, dg, rate)
        return w, dw

    def _turned(self, w: Tensor, x: Tensor, y: Tensor, dw: Tensor, dx: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient, and its derivative along (dw, dx): the gradient by w of the loss's own derivative along them."""
        with torch.enable_grad():
            w, x = w.detach().requires_grad_(), x.detach().requires_grad_()
            g, gx = torch.autograd.grad(self.objective(w, x, y).sum(), (w, x), create_graph=True)
            (dg,) = torch.autograd.grad((g * dw).sum() + (gx * dx).sum(), w)
        return g.detach(), dg

    def curved(self, w: Tensor, x: Tensor, y: Tensor, along: Tensor) -> Tensor:
        """The Hessian of one model's objective, times each row of `along`, [row, weight]."""
        with torch.enable_grad():
            w = w.detach().requires_grad_()
            (g,) = torch.autograd.grad(self.objective(w, x, y).sum(), w, create_graph=True)
            (found,) = torch.autograd.grad(g, w, along[:, None], is_grads_batched=True)
        turned: Tensor = found[:, 0]
        return turned

    def replaced(self, module: nn.Module) -> Unrolled:
        """The same run of a network with the same weights."""
        other = copy.copy(self)
        other.module, other._stacks = module, {}
        return other

    def wearing(self, w: Tensor) -> Stack:
        """One model for each row of weights, [model, weight]."""
        if len(w) not in self._stacks:
            self._stacks = {len(w): Stack([self.module] * len(w), len(w), self.device)}
        return self._stacks[len(w)].wearing(self.named(w))


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Unrolled, x: Tensor, y: Tensor) -> Tensor:
        *path, end = run.path(x, y)
        ctx.run, ctx.path = run, path
        ctx.save_for_backward(x, y)
        return end

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outward: Tensor) -> tuple[None, Tensor, Tensor | None]:
        (dw,), (x, y), run = outward, ctx.saved_tensors, ctx.run
        dm, dx = torch.zeros_like(dw), torch.zeros_like(x)
        dy = torch.zeros_like(y) if y.is_floating_point() else None
        for w, rate in zip(reversed(ctx.path), reversed(run.rates), strict=True):
            dg, dm = run.back(dw, dm, rate)
            hw, hx, hy = run.pulled(w, x, y, dg)
            dw, dx = dw + run.sgd.weight_decay * dg + hw, dx + hx
            dy = None if dy is None else dy + hy
        return None, dx, dy


def shares(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    """The loss of each record; labels that are not whole numbers are shares of the classes, [..., record, class]."""
    if not y.is_floating_point():
        return loss(outputs, y)
    classes = torch.arange(outputs.shape[-1], device=outputs.device).expand(outputs.shape)
    each = loss(outputs[..., None, :].expand(*outputs.shape, -1), classes)  # [..., record, class]
    return (y * each).sum(-1)


def _known(recipe: Recipe) -> SGD:
    """Its optimiser, if the run can be repeated by whoever knows the recipe; an error that names what cannot."""
    if not isinstance(recipe.start, Given) or recipe.start.partly:
        raise ValueError(
            "a run is unrolled from weights that are known in full, and this recipe starts from random ones; "
            "give it start=Given(weights)"
        )
    wanted: list[tuple[str, Any, type]] = [
        ("optimiser", recipe.optimiser, SGD), ("sampler", recipe.sampler, FullBatch), ("step", recipe.step, Plain),
    ]  # fmt: skip
    for name, got, kind in wanted:
        if not isinstance(got, kind):
            raise ValueError(f"only runs with the {name} {kind.__name__} are unrolled, got {got!r}")
    if recipe.before or recipe.stop:
        raise ValueError("only runs without augmentation and early stopping are unrolled; this recipe has one of them")
    assert isinstance(recipe.optimiser, SGD)
    return recipe.optimiser


def _uncoupled(module: nn.Module) -> nn.Module:
    for name, m in module.named_modules():
        if isinstance(m, COUPLED) and not (isinstance(m, nn.modules.dropout._DropoutNd) and m.p == 0):
            raise ValueError(
                f"{name or 'the network'} is a {type(m).__name__}, which draws at random or mixes records, so the run is "
                "not a sum over records that an adversary can repeat; unroll a network without it"
            )
    return module
