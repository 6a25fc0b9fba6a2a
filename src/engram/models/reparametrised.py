"""Low-rank reparametrised gradients: the matrix moves, but what is clipped and made noisy is two thin gradients.

Yu, Zhang, Chen, Yin, Liu: Large Scale Private Learning via Low-rank Reparametrization, 2021. Equation 3 (W = L R + what is
left), Theorem 3.1 (the gradient that L and R give), Algorithm 1 (RGP), Algorithm 2 (carriers by the power method).
Differs from the paper: only the matrices of the blocks are reparametrised, the rest is frozen; the first carriers, where
nothing has moved yet, are random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engram.models.adapters import Model, matrices, with_head


class Carried(nn.Module):
    """A matrix as L R + what is left of it; only L [output, rank] and R [rank, input] have gradients."""

    def __init__(self, matrix: Any, rank: int) -> None:
        super().__init__()
        self.turned = not isinstance(matrix, nn.Linear)
        self.rest = matrix
        outputs, inputs = self.stored(matrix.weight).shape
        self.left, self.right = nn.Linear(rank, outputs, bias=False), nn.Linear(inputs, rank, bias=False)
        with torch.no_grad():
            self.left.weight.zero_()
            self.right.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rest(x) + self.left(self.right(x))
        return out

    def stored(self, weight: Tensor) -> Tensor:
        """Between [output, input] and how the layer stores it."""
        return weight.T if self.turned else weight

    @torch.no_grad()
    def whole(self) -> Tensor:
        """W [output, input]."""
        return self.stored(self.rest.weight) + self.left.weight @ self.right.weight

    @torch.no_grad()
    def carry(self, whole: Tensor, left: Tensor, right: Tensor) -> None:
        """Splits W anew; the function stays what it is."""
        self.left.weight.copy_(left)
        self.right.weight.copy_(right)
        self.rest.weight.copy_(self.stored(whole - left @ right))


def low_rank(model: Model, rank: int = 4) -> Model:
    """Every matrix of the blocks is carried; the rest is frozen. To be trained by `Carriers`."""
    model.requires_grad_(False)
    for parent, name, matrix in matrices(model):
        setattr(parent, name, Carried(matrix, rank))
    return with_head(model)


class Carriers(torch.optim.Optimizer):
    """Turns the gradients of L and R into one of W, lets an ordinary optimiser move W, and finds the next L and R.

    Everything here is done to gradients that are private already, so it costs no privacy.
    """

    def __init__(
        self,
        model: nn.Module,
        inner: Callable[[Sequence[Tensor]], torch.optim.Optimizer],
        stream: torch.Generator,
    ) -> None:
        self.carried = [module for module in model.modules() if isinstance(module, Carried)]
        super().__init__([p for p in model.parameters() if p.requires_grad], {})
        thin = {id(p) for module in self.carried for p in (module.left.weight, module.right.weight)}
        others = [p for p in model.parameters() if p.requires_grad and id(p) not in thin]
        self.whole = [nn.Parameter(module.whole().clone()) for module in self.carried]
        self.start = [w.detach().clone() for w in self.whole]
        self.inner, self.stream = inner([*self.whole, *others]), stream
        self._carry()

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # noqa: ARG002  every optimiser is called alike
        for module, whole in zip(self.carried, self.whole, strict=True):
            left, right = module.left.weight, module.right.weight
            assert left.grad is not None
            assert right.grad is not None
            whole.grad = gradient(left, right, left.grad, right.grad)
        self.inner.step()
        self._carry()

    @torch.no_grad()
    def _carry(self) -> None:
        for module, whole, start in zip(self.carried, self.whole, self.start, strict=True):
            rank = module.left.weight.shape[1]
            drawn = [torch.randn(n, rank, generator=self.stream).to(whole.device) for n in whole.shape]
            module.carry(whole, *carriers(whole - start, *drawn))


def gradient(left: Tensor, right: Tensor, of_left: Tensor, of_right: Tensor) -> Tensor:
    """(dL) R + L (dR) - L L^T (dL) R: the gradient of W, projected on what L and R span.            Theorem 3.1"""
    return of_left @ right + left @ of_right - left @ (left.T @ of_left) @ right


def carriers(moved: Tensor, output: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal L [output, rank] and R [rank, input] of where W has moved, by one step of the power method.  Algorithm 2

    Begins with the random `inputs` [input, rank]; where nothing has moved, random directions are all there is.
    """
    still = not bool(moved.any())
    left, _ = torch.linalg.qr(output if still else moved @ inputs)
    right, _ = torch.linalg.qr(inputs if still else moved.T @ left)
    return left, right.T
