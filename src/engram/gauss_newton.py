"""Sums of squares in long narrow valleys: L-BFGS in a metric that makes the valleys round.

Nocedal, Wright: Numerical Optimization, 2006. Section 10.3: J'J stands for the Hessian of |left|^2 / 2. With its factor,
L L' = J'J + damping, the problem is solved over u, where z = base + L^-T u.
Differs from the book: no step is solved for; L-BFGS walks in the metric, which is made anew after so many steps. It is made
by differences in single precision, since it only guides the steps: the cost decides, in the precision of z.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor

from engram.minimise import Minimum, lbfgs

Left = Callable[[Tensor], Tensor]  # [problem, number] -> [problem, residual]
LIMIT = 8192  # numbers of one problem; the metric of more takes minutes
STRETCH = 250  # steps in one metric
DAMPING = 1e-4  # of the mean of the diagonal
AT_ONCE = 64  # columns of J
NEAR = 1e-6  # the step of a difference
BANDS = 8


def minimised(left: Left, z: Tensor, *, steps: Iterator[int], enough: float = 0.0) -> Minimum:
    """One problem [1, number], until `enough`, or until a whole stretch no longer halves the cost."""
    found = Minimum(z, left(z).square().sum(-1).detach(), 0, 0)
    while float(found.costs) > enough:
        better = _stretch(left, found, steps, enough)
        stalled = float(better.costs) > float(found.costs) / 2
        found = better
        if stalled:
            break
    return found


def _stretch(left: Left, so_far: Minimum, steps: Iterator[int], enough: float) -> Minimum:
    base, factor = so_far.z, metric(left, so_far.z[0])

    def moved(u: Tensor) -> Tensor:
        z: Tensor = base + torch.linalg.solve_triangular(factor.T, u.T, upper=True).T
        return z

    part = lbfgs(
        lambda u: left(moved(u)).square().sum(-1), torch.zeros_like(base), steps=islice(steps, STRETCH), enough=enough
    )
    return Minimum(moved(part.z), part.costs, so_far.steps + part.steps, so_far.evaluations + part.evaluations)


def metric(left: Left, z: Tensor) -> Tensor:
    """The lower factor of J'J + damping at z[number]."""
    pressed = gram(columns(left, z))
    damping = DAMPING * pressed.diagonal().mean()
    while True:
        factor, failed = torch.linalg.cholesky_ex(pressed + damping * torch.eye(len(z), device=z.device))
        if not failed:
            found: Tensor = factor.to(z.dtype)
            return found
        damping = 10 * damping


def columns(left: Left, z: Tensor) -> Tensor:
    """J', [number, residual], by differences and in single precision."""
    here = left(z[None]).detach()
    each = torch.split(torch.eye(len(z), dtype=z.dtype, device=z.device), AT_ONCE)
    with torch.no_grad():
        return torch.cat([((left(z + NEAR * some) - here) / NEAR).float() for some in each])


def gram(rows: Tensor) -> Tensor:
    """rows @ rows.T; what symmetry gives is not computed."""
    found = rows.new_zeros(len(rows), len(rows))
    edge = 0
    for band in torch.split(rows, -(-len(rows) // BANDS)):
        found[edge:, edge : edge + len(band)] = rows[edge:] @ band.T
        edge += len(band)
    return found.tril() + found.tril(-1).T
