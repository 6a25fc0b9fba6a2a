"""Minimisers of many problems at once: each row is a problem of its own, all are evaluated together.

Liu, Nocedal: On the limited memory BFGS method for large scale optimization, 1989. Algorithm 2.1 (two loops).
Lewis, Overton: Nonsmooth optimization via quasi-Newton methods, 2013. Algorithm 2.6 (line search, weak Wolfe conditions).
Marquardt: An Algorithm for Least-Squares Estimation of Nonlinear Parameters, 1963. Broyden: A Class of Methods for Solving
Nonlinear Simultaneous Equations, 1965 (the secant correction of a Jacobian that is too dear to compute at each step).
Kingma, Ba: Adam, 2015; on the sign of the gradient, as Geiping, Bauermeister, Droege, Moeller 2020 use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

Cost = Callable[[Tensor], Tensor]  # [problem, number] -> [problem], each of its own row
Ascent = tuple[Tensor, Tensor]  # the costs, and their gradients [problem, number]

ARMIJO, CURVATURE = 1e-4, 0.9
HALVINGS = 30


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best that was found of each problem."""

    z: Tensor  # [problem, number]
    costs: Tensor  # [problem]
    steps: int
    evaluations: int


def lbfgs(cost: Cost, z: Tensor, *, steps: Iterable[int], memory: int = 100, enough: float = 0.0) -> Minimum:
    """Each problem by its own steps and its own line search. A problem stops when no step lowers it, or at `enough`."""
    counted = _Counted(cost)
    f, g = counted(z)
    pairs: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=memory)
    going, done = torch.isfinite(f), 0
    for _ in steps:
        d = _direction(g, pairs)
        slope = (d * g).sum(-1)
        lost = slope >= 0  # rounding has spoilt the memory of this problem: go downhill
        d, slope = torch.where(lost[:, None], -g, d), torch.where(lost, -g.square().sum(-1), slope)
        first = torch.where(torch.tensor(not pairs), 1 / g.abs().sum(-1).clamp_min(1e-300), 1.0).clamp(max=1.0)
        step, f_new, g_new = _line(counted, z, f, d, slope, first, going)
        moved = going & (f_new < f)
        s = torch.where(moved[:, None], step[:, None] * d, 0.0)
        y = torch.where(moved[:, None], g_new - g, 0.0)
        pairs.append(_pair(s, y))
        z, f, g = z + s, torch.where(moved, f_new, f), torch.where(moved[:, None], g_new, g)
        going, done = moved & (f > enough), done + 1
        if not going.any():
            break
    return Minimum(z, f, done, counted.evaluations)


class _Counted:
    """A cost with its gradient, counted. Rows that are not finite count as infinite."""

    def __init__(self, cost: Cost) -> None:
        self.cost, self.evaluations = cost, 0

    def __call__(self, z: Tensor) -> Ascent:
        self.evaluations += 1
        z = z.detach().requires_grad_()
        f = self.cost(z)
        (g,) = torch.autograd.grad(f.sum(), z)
        fine = torch.isfinite(f) & torch.isfinite(g).all(-1)
        return torch.where(fine, f.detach(), torch.inf), torch.where(fine[:, None], g, 0.0)


def _pair(s: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A step, how the gradient changed along it, and 1 / (s . y); 0 where the curvature says nothing."""
    curved = (s * y).sum(-1)
    told = curved > 1e-16 * s.norm(dim=-1) * y.norm(dim=-1)
    return s, y, torch.where(told, 1 / torch.where(told, curved, 1.0), 0.0)


def _direction(g: Tensor, pairs: deque[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    q, alphas = -g, []
    for s, y, rho in reversed(pairs):
        alpha = rho * (s * q).sum(-1)
        q = q - alpha[:, None] * y
        alphas.append(alpha)
    if pairs:
        s, y, rho = pairs[-1]
        scale = torch.where(rho > 0, 1 / (rho * y.square().sum(-1)).clamp_min(1e-300), 1.0)
        q = scale[:, None] * q
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        q = q + (alpha - rho * (y * q).sum(-1))[:, None] * s
    return q


def _line(
    counted: _Counted, z: Tensor, f: Tensor, d: Tensor, slope: Tensor, first: Tensor, going: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Bisection until each problem has fallen enough and its slope has flattened; the best step seen where it runs out."""
    low, high, t = torch.zeros_like(f), torch.full_like(f, torch.inf), first.clone()
    best_t, best_f, best_g = torch.zeros_like(f), f.clone(), torch.zeros_like(d)
    open_ = going.clone()
    for _ in range(HALVINGS):
        f_t, g_t = counted(z + t[:, None] * d)
        better = open_ & (f_t < best_f)
        best_t, best_f = torch.where(better, t, best_t), torch.where(better, f_t, best_f)
        best_g = torch.where(better[:, None], g_t, best_g)
        far = f_t > f + ARMIJO * t * slope
        short = ~far & ((d * g_t).sum(-1) < CURVATURE * slope)
        open_ = open_ & (far | short)
        if not open_.any():
            break
        high, low = torch.where(open_ & far, t, high), torch.where(open_ & short, t, low)
        t = torch.where(open_, torch.where(torch.isinf(high), 2 * low, (low + high) / 2), t)
    return best_t, best_f, best_g


def signed_adam(
    cost: Cost,
    z: Tensor,
    *,
    steps: Iterable[int],
    total: int,
    rate: float = 0.1,
    box: tuple[float, float] | None = None,
) -> Minimum:
    """Adam on the sign of the gradient; the rate falls tenfold at 3/8, 5/8 and 7/8. Keeps the best of each problem."""
    z = z.detach().clone()
    m, v, best, lowest, done = torch.zeros_like(z), torch.zeros_like(z), z.clone(), None, 0
    counted = _Counted(cost)
    for k in steps:
        f, g = counted(z)
        lowest = torch.full_like(f, torch.inf) if lowest is None else lowest
        best = torch.where((f < lowest)[:, None], z, best)
        lowest = torch.minimum(f, lowest)
        g, done = g.sign(), done + 1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g.square()
        pace = rate * 0.1 ** sum(k >= total * eighths // 8 for eighths in (3, 5, 7))
        z = z - pace * (m / (1 - 0.9 ** (k + 1))) / ((v / (1 - 0.999 ** (k + 1))).sqrt() + 1e-8)
        z = z if box is None else z.clamp(*box)
    return Minimum(best, torch.zeros(len(z)) if lowest is None else lowest, done, counted.evaluations)


Residual = Callable[[Tensor, Tensor], Tensor]  # numbers [some, number] of which problems [some] -> [some, row]


def least_squares(
    residual: Residual,
    slopes: Residual,  # the same arguments -> [some, row, number]; may be rough
    z: Tensor,
    *,
    steps: Iterable[int],
    renew: int = 1,
    damping: float = 1e-2,
    enough: Tensor | float = 0.0,
) -> Minimum:
    """Damped Gauss-Newton on |residual|^2. Between two looks at the slopes, every `renew` steps, secants correct them.

    A step that does not lower a problem's cost still teaches its slopes. Problems below `enough` are left alone.
    """
    everyone = torch.arange(len(z), device=z.device)
    r, best, done, asked = residual(z, everyone), z.clone(), 0, 1
    f = _finite(r.square().sum(1))
    limit = torch.as_tensor(enough, dtype=f.dtype, device=f.device).expand_as(f)
    strength = torch.full_like(f, damping)
    jacobian: Tensor | None = None
    for k in steps:
        rows = (f > limit).nonzero()[:, 0]
        if not len(rows):
            break
        if jacobian is None:
            jacobian = slopes(best, everyone)
        elif k % renew == 0:
            jacobian[rows] = slopes(best[rows], rows)
        move = _damped(jacobian[rows], r[rows], strength[rows])
        met = residual(best[rows] + move, rows)
        f_met = _finite(met.square().sum(1))
        jacobian[rows] = _secant(jacobian[rows], move, met - r[rows], torch.isfinite(f_met))
        better = f_met < f[rows]
        strength[rows] = torch.where(better, strength[rows] / 5, strength[rows] * 4).clamp(1e-12, 1e9)
        kept = rows[better]
        best[kept], r[kept], f[kept] = best[kept] + move[better], met[better], f_met[better]
        done, asked = done + 1, asked + 1
    return Minimum(best, f, done, asked)


def _damped(jacobian: Tensor, r: Tensor, strength: Tensor) -> Tensor:
    """-(J'J + strength mean(diag J'J))^-1 J'r                                    Marquardt 1963, with one scale for all"""
    normal = jacobian.mT @ jacobian
    diagonal = normal.diagonal(dim1=1, dim2=2)  # a view
    scale = diagonal.mean(1, keepdim=True).clamp_min(torch.finfo(r.dtype).tiny)
    diagonal += strength[:, None] * scale
    move: Tensor = torch.linalg.solve(normal, jacobian.mT @ r[..., None])[..., 0]
    return -move


def _secant(jacobian: Tensor, move: Tensor, change: Tensor, told: Tensor) -> Tensor:
    """The nearest Jacobian that explains what the move changed.                          Broyden 1965, equation 4.5"""
    missed = torch.where(told[:, None], change - (jacobian @ move[..., None])[..., 0], 0.0)
    turned: Tensor = (
        jacobian + missed[..., None] * (move / move.square().sum(1, keepdim=True).clamp_min(1e-300))[:, None]
    )
    return turned


def _finite(f: Tensor) -> Tensor:
    return torch.where(torch.isfinite(f), f, torch.inf)
