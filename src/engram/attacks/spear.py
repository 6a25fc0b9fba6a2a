"""A whole batch, exactly, from the gradient of a linear layer that ReLU follows.

Dimitrov, Baader, Mueller, Vechev: SPEAR: Exact Gradient Inversion of Batches in Federated Learning, 2024.
With Z = X W' + b and D = dL/dZ: G_W = D' X (equation 1) has rank B, so G_W = L R and D' = L Q for some invertible Q
(theorem 3.2). ReLU makes D' sparse; B - 1 rows of L that one record left at zero give a column of Q as their kernel
(section 3.3). The scale of the columns follows from G_b = D' 1 (section 3.4).
Differs from the paper: beside kernels of random rows, which need about ln(B) 2^(B-1) draws, random directions are pulled
to sparse ones by least squares that are reweighted towards the sum of absolute values, and then made kernels of the rows
they nearly vanish on; what counts as zero follows from the gap of the spectrum; the sparsest independent directions are
tried, and more are drawn until the zeros of D agree with the signs of W x + b, which the gradient alone did not decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from engram import check
from engram.access import Gradients, Unknown
from engram.matching import Layer, met
from engram.seed import Seed
from engram.types import Recovered, Track, quiet

LIMIT = 64  # records; beyond, a pulled direction hardly ever ends at a sparse one
GAP = 1e3  # between the smallest singular value that counts and the largest that does not
INDEPENDENT = 1e-6
PULLS, WIDTH, NARROWER = 40, 0.1, 0.8  # steps towards a sparse direction, and what counts as small on the way


@dataclass(frozen=True)
class Spear:
    """Every record of a batch of tens, to rounding. Needs ReLU after the first linear layer; likes centred records.

    At most `draws` directions are tried, `block` at a time, until nothing contradicts the records.
    """

    asks: ClassVar = Gradients
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Dimitrov et al. 2024"
    draws: int = 2**16
    block: int = 2**10
    batch: int | None = None

    def __post_init__(self) -> None:
        check.at_least("draws", self.draws, 1)
        check.at_least("block", self.block, 1)

    def __call__(self, target: Gradients, *, seed: Seed, track: Track = quiet) -> Recovered:
        layer = before_relu(target)
        if layer.bias is None:
            raise Unknown(f"{layer.name} has no bias, so nothing sets the scale of the records; spear needs one")
        seen = Layered.of(target, layer.weight, layer.bias, self.batch or target.update.batch)
        x, wrong = self.searched(seen, seed, track)
        order = wrong.argsort(stable=True)
        certificates = wrong[order].cpu().numpy()
        return Recovered("record", x[order].view(-1, *target.shape).cpu().numpy(), -certificates, certificates)

    def searched(self, seen: Layered, seed: Seed, track: Track) -> tuple[Tensor, Tensor]:
        """Records, and how far the signs contradict each; the least contradicted of all that were tried."""
        kept, best = _Kept(seen.alive, seen.zero), None
        blocks = max(1, self.draws // self.block)
        for k in track(range(blocks), "drawing directions", total=blocks):
            q = self._drawn(seen.alive, kept.q, seed.child("directions", k))
            if not kept.add(q):
                continue
            x, wrong = seen.solved(kept.q)
            if best is None or wrong.sum() < best[1].sum():
                best = x, wrong
            if not wrong.any():
                break
        if best is None:
            raise Unknown(
                f"{kept.q.shape[1]} of {kept.rank} directions were found in {blocks * self.block} draws; raise draws, or "
                "the zeros that ReLU leaves were altered"
            )
        return best

    def _drawn(self, rows: Tensor, known: Tensor, seed: Seed) -> Tensor:
        """Directions [rank, draw]: half from random rows, half pulled from starts that some known ones are taken out of."""
        units, rank = rows.shape
        if rank == 1:
            return torch.ones_like(rows[:1])
        stream = torch.Generator(rows.device).manual_seed(seed.number)
        size = max(1, self.block // 2)
        start = torch.randn(2 * size, rank, generator=stream, device=rows.device, dtype=rows.dtype)
        chosen = torch.rand(size, units, generator=stream, device=rows.device).topk(rank - 1, dim=1).indices
        out = torch.randint(0, rank, (size, 1), generator=stream, device=rows.device)
        pulled = pull(rows, without(start[:size], known, out))
        vanish = (pulled @ rows.T).abs().argsort(1)[:, : rank - 1]
        return kernels(rows, torch.cat([chosen, vanish]), torch.cat([start[size:], pulled]))


def without(q: Tensor, known: Tensor, out: Tensor) -> Tensor:
    """q[draw, rank] less what lies along the first `out` known directions, as the last ones have few starts of their own."""
    basis = torch.linalg.qr(known).Q  # [rank, known]
    along = q @ basis
    left: Tensor = q - (along * (torch.arange(basis.shape[1], device=q.device) < out)) @ basis.T
    return left


def pull(rows: Tensor, q: Tensor) -> Tensor:
    """Directions [draw, rank] at or near a local minimum of sum |rows q| on the sphere, by reweighted least squares."""
    q, width = q / q.norm(dim=1, keepdim=True), WIDTH / len(rows) ** 0.5
    for _ in range(PULLS):
        weights = 1 / ((q @ rows.T).square() + width**2).sqrt()  # [draw, unit]
        pressed = (rows.T[None] * weights[:, None]) @ rows
        q = torch.linalg.solve_ex(pressed, q[..., None])[0][..., 0]
        q, width = q / q.norm(dim=1, keepdim=True), width * NARROWER
    return q


def kernels(rows: Tensor, chosen: Tensor, towards: Tensor) -> Tensor:
    """[rank, draw] unit vectors orthogonal to the chosen rows; those that are no numbers are left out."""
    system = torch.cat([rows[chosen], towards[:, None]], 1)
    wanted = torch.zeros(rows.shape[1], 1, dtype=rows.dtype, device=rows.device)
    wanted[-1] = 1
    q, info = torch.linalg.solve_ex(system, wanted.expand(len(system), -1, -1))
    fine = (info == 0) & torch.isfinite(q[..., 0]).all(1)
    found: Tensor = (q[fine, :, 0] / q[fine, :, 0].norm(dim=1, keepdim=True)).T
    return found


class _Kept:
    """The sparsest independent directions so far."""

    def __init__(self, left: Tensor, zero: float) -> None:
        self.left, self.zero, self.rank = left, zero, left.shape[1]
        self.q = left.new_zeros(self.rank, 0)

    def add(self, q: Tensor) -> bool:
        """Whether there are now as many as records."""
        q = torch.cat([self.q, q], 1)
        columns = (self.left @ q).abs()  # [unit, draw]
        zeros = (columns < self.zero * columns.max(0).values).sum(0)
        told = (zeros >= self.rank) | (self.rank == 1)  # one more than every kernel has
        q, zeros = q[:, told], zeros[told]
        self.q = q[:, self._independent(q, zeros.argsort(descending=True, stable=True))]
        return self.q.shape[1] == self.rank

    def _independent(self, q: Tensor, order: Tensor) -> list[int]:
        """Greedily, in this order, each that the ones before do not span."""
        chosen: list[int] = []
        rest = q[:, order]
        for _ in range(min(self.rank, len(order))):
            free = rest.norm(dim=0) > INDEPENDENT
            if not free.any():
                break
            k = int(free.float().argmax())
            chosen.append(int(order[k]))
            along = rest[:, k] / rest[:, k].norm()
            rest = rest - along[:, None] * (along @ rest)
        return chosen


@dataclass(frozen=True, eq=False)
class Layered:
    """The gradient of the layer, factored: G_W = left @ right. Rows of `alive` are those of live units, of unit length."""

    left: Tensor  # [unit, rank], orthonormal columns
    right: Tensor  # [rank, number]
    alive: Tensor  # [live unit, rank]
    live: Tensor  # [unit]
    zero: float  # what counts as zero, relative: the middle of the spectrum's gap
    g_bias: Tensor
    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, target: Gradients, weight: int, bias: int, batch: int | None) -> Layered:
        told, (_, weights, _) = target.update.gradient, target.exact()
        left, right, zero = factored(told[weight].double(), batch)
        sizes = left.norm(dim=1)
        live = sizes > zero * sizes.max()  # a dead unit is zero for every record and says nothing
        if int(live.sum()) < left.shape[1]:
            raise Unknown(
                f"{int(live.sum())} units are alive, fewer than the {left.shape[1]} records; all others are dead"
            )
        held = list(weights.values())
        unit = left[live] / sizes[live, None]
        return cls(left, right, unit, live, zero, told[bias].double(), held[weight], held[bias])

    def solved(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """X = (Q diag(s))^-1 R with L Q s = G_b, and what contradicts each record."""
        s = torch.linalg.lstsq(self.left @ q, self.g_bias[:, None]).solution[:, 0]
        x = torch.linalg.solve(q * s, self.right)
        d = self.left @ (q * s)
        passed = (d[self.live].abs() > self.zero * d.abs().max(0).values).T  # [record, live unit]
        wrong = passed != (x @ self.weight[self.live].T + self.bias[self.live] > 0)
        return x, wrong.double().mean(1)


def before_relu(target: Gradients) -> Layer:
    """The first layer with weights, if it is linear, sees the whole record, and ReLU follows it."""
    layer = met(target.model, target.shape)[0]
    size = int(np.prod(target.shape))
    modules = [m for m in target.model.modules() if not list(m.children())]
    at = modules.index(layer.module)
    after = modules[at + 1] if at + 1 < len(modules) else None
    if not isinstance(layer.module, nn.Linear) or layer.inputs != (size,) or not isinstance(after, nn.ReLU):
        raise Unknown(
            f"the first layer is {layer.name}, a {type(layer.module).__name__} of inputs {layer.inputs}, followed by "
            f"{type(after).__name__}; spear needs a linear layer that sees all {size} numbers of a record, then ReLU"
        )
    return layer


def factored(g_weight: Tensor, batch: int | None) -> tuple[Tensor, Tensor, float]:
    """G_W = left @ right with as many columns as records, and the middle of the gap that says how many.

    Refuses where the spectrum has no gap, or in the wrong place.
    """
    u, s, v = torch.linalg.svd(g_weight, full_matrices=False)
    steps = s[1:].clamp_min(s[0] * torch.finfo(s.dtype).eps) / s[:-1].clamp_min(s[0] * torch.finfo(s.dtype).eps)
    rank, gap = int(steps.argmin()) + 1, float(steps.min())
    if gap > 1 / GAP:
        raise Unknown(
            f"the gradient of the layer has no clear rank (its largest gap is a factor {1 / gap:.1f}, wanted {GAP:g}): "
            f"as many records as the layer has units or inputs ({min(g_weight.shape)}), or noise was added"
        )
    if batch is not None and rank < batch:
        raise Unknown(
            f"the gradient has rank {rank}, below the {batch} records: some are equal, or left every unit dead"
        )
    if rank > LIMIT:
        raise Unknown(f"the gradient has rank {rank}; spear answers batches up to {LIMIT}")
    return u[:, :rank], s[:rank, None] * v[:rank], gap**0.5
