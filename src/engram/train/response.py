"""How a known training run answers to one record more: its linear response, computed once for a fixed set.

Koh, Liang: Understanding Black-box Predictions via Influence Functions, 2017, and Hara, Nitanda, Maehara: Data Cleansing for
Models Trained with SGD, 2019, equation 5 (the influence of a record is carried through the steps that follow it).
Differs from both: the run is not assumed to have converged; the record is the unknown, not the models' answers; and a
record's own gradient is taken exactly, so that only the run's answer to it is linear. With n fixed records that leaves out
what is of order 1/n.

With G_t(x, y) the gradient of the record's loss at the weights w_t of a run with some record in its place,

    end(x, y) = end + sum over steps t of P_t (G_t(x, y) - G_t(that record)) / (n + 1),

where P_t, how the end depends on the gradient of step t, is carried backwards through the run. It has [weight, weight]
numbers a step; only `looks` random combinations of the weights at the end are followed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from engram.seed import Seed
from engram.train.stack import Stack
from engram.train.unrolled import Unrolled, shares

AT_ONCE = 64  # looks


@dataclass(frozen=True, eq=False)
class Response:
    """The weights at the end as few numbers, [guess, look], of any record in the place of the missing one."""

    run: Unrolled
    looks: Tensor  # [look, weight] random combinations of the weights at the end
    path: Tensor  # [step, weight] the run around which it is linear
    carried: Tensor  # [look, step, weight] how each look depends on the record's gradient at each step
    rest: Tensor  # [look] what does not depend on the record
    stack: Stack

    @classmethod
    def around(
        cls, run: Unrolled, x: Tensor, y: Tensor, *, looks: int, seed: Seed, smooth: float | None = None
    ) -> Self:
        """Linear around the run with this one record. `smooth` rounds the kinks of ReLU over about so much of its input."""
        *path, end = run.path(x, y)
        stream = torch.Generator().manual_seed(seed.number)
        drawn = torch.randn(looks, end.shape[1], generator=stream, dtype=torch.float64) / looks**0.5
        drawn = drawn.to(end)
        carried = _carried(run if smooth is None else run.replaced(rounded(run.module, smooth)), path, x, y, drawn)
        carried /= len(run.x) + 1
        whole = torch.cat(path)
        bare = cls(run, drawn, whole, carried, torch.zeros_like(drawn[:, 0]), run.wearing(whole))
        return cls(run, drawn, whole, carried, drawn @ end[0] - bare(x, y)[0], bare.stack)

    def seen(self, weights: Tensor) -> Tensor:
        """[model, weight] as looks, [model, look]."""
        return weights @ self.looks.T

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """[guess, look]"""
        _, weight, told = self._told(x, y)
        return self._by(weight, told).T + self.rest

    def slopes(self, x: Tensor, y: Tensor) -> Tensor:
        """How the looks move with each number of a guess, [guess, look, number]."""
        x, _, told = self._told(x, y)
        return self._by(x, told).transpose(0, 1).flatten(2)

    def _told(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The guesses, a weight of one for each, and the sum of their gradients at each step, as a function of both."""
        with torch.enable_grad():
            x, weight = x.detach().requires_grad_(), torch.ones_like(x.flatten(1)[:, 0]).requires_grad_()
            w = self.path.detach().requires_grad_()
            outputs = self.stack.wearing(self.run.named(w))(x, shared=True)  # [step, guess, class]
            losses = shares(self.run.loss, outputs, y.expand(len(w), *y.shape))  # [step, guess]
            (told,) = torch.autograd.grad((losses * weight).sum(), w, create_graph=True)
        return x, weight, told

    def _by(self, what: Tensor, told: Tensor) -> Tensor:
        """The derivative of carried . told by what each guess has of its own, [look, guess, ...]."""
        parts = [
            torch.autograd.grad(told, what, part, retain_graph=True, is_grads_batched=True)[0]
            for part in torch.split(self.carried, AT_ONCE)
        ]
        return torch.cat(parts)


def _carried(run: Unrolled, path: list[Tensor], x: Tensor, y: Tensor, looks: Tensor) -> Tensor:
    dw, dm = looks, torch.zeros_like(looks)
    found = []
    for w, rate in zip(reversed(path), reversed(run.rates), strict=True):
        dg, dm = run.back(dw, dm, rate)
        found.append(dg)
        dw = dw + run.sgd.weight_decay * dg + run.curved(w, x, y, dg)
    return torch.stack(found[::-1], 1)


def rounded(module: nn.Module, width: float) -> nn.Module:
    """The same network with its kinks rounded over about this much of a unit's input.

    A kink has no second derivative where it is not at zero, and yet records cross it as the weights move: on average over
    many records the rounded curvature is what the run answers with.
    """
    module = copy.deepcopy(module)
    for name, child in module.named_children():
        if isinstance(child, nn.ReLU):
            setattr(module, name, nn.Softplus(beta=1 / width))
        else:
            setattr(module, name, rounded(child, width))
    return module
