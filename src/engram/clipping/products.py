"""The few products that everything else is made of, each rounded so that a norm does not come out too small.

float32 sums of many squares drift low (2e-4 for two million numbers added one after another), so sums run over the last
dimension first, in trees, and over the rest in float64. Below float32 every product is accumulated in float32.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

HALVED = {"cpu": 128, "cuda": 512}  # from so many positions on, a Gram matrix is made of halves: it is symmetric
ROUNDING = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}


def squares(values: Tensor) -> Tensor:
    """Sum of squares of each line of [record, number]."""
    if values.is_cuda:
        norms: Tensor = torch.linalg.vector_norm(values, dim=1, dtype=_wide(values.dtype))  # a tree of sums already
        return norms.square()
    wide = values.to(_wide(values.dtype))
    lines = 1024
    whole = wide.shape[1] // lines * lines
    body: Tensor = wide[:, :whole].reshape(len(wide), -1, lines).square().sum(2).sum(1, dtype=torch.float64)
    return body + wide[:, whole:].square().sum(1, dtype=torch.float64)


def summed(values: Tensor) -> Tensor:
    """[record, number] of [record, position, number]; in float32 or wider."""
    return values.sum(1, dtype=_wide(values.dtype)) if values.shape[1] > 1 else values[:, 0]


def total(values: Tensor) -> Tensor:
    """Sum of [record, s, t] over s and t."""
    return values.sum((1, 2)) if values.is_cuda else values.sum(2).sum(1, dtype=torch.float64)


def gram_matrix(one: Tensor, other: Tensor) -> Tensor:
    """[record, s, t] inner products of positions, in float32 or wider."""
    wide = _wide(one.dtype)
    if one.dtype != wide and _mixed("bmm", one.device.type, one.dtype):
        return torch.bmm(one, other.transpose(1, 2), out_dtype=wide)
    return torch.bmm(one.to(wide), other.to(wide).transpose(1, 2))


def gram(left: Tensor, right: Tensor) -> Tensor:
    """sum_{s,t} <l_s, l_t> <r_s, r_t> of each record."""
    positions = left.shape[1]
    if positions < HALVED.get(left.device.type, HALVED["cuda"]):
        return total(gram_matrix(left, left).mul_(gram_matrix(right, right)))
    half = positions // 2
    (a, b), (x, y) = (left[:, :half], left[:, half:]), (right[:, :half], right[:, half:])
    return gram(a, x) + gram(b, y) + 2 * total(gram_matrix(a, b).mul_(gram_matrix(x, y)))


def gram_slack(*factors: Tensor) -> Tensor | None:
    """By how much `gram` may be too small where positions cancel: its terms are as large as (sum_t |l_t| |r_t|)^2.

    16 roundings of the largest possible sum; what was seen stays below one. None in TF32 and below, where the
    coefficient's margin covers the rounding of the factors instead.
    """
    if factors[0].dtype not in ROUNDING or _in_tf32(factors[0]):
        return None
    sizes = torch.ones(factors[0].shape[:2], dtype=factors[0].dtype, device=factors[0].device)
    for factor in factors:
        sizes = sizes * torch.linalg.vector_norm(factor, dim=2)
    return 16 * ROUNDING[factors[0].dtype] * sizes.sum(1, dtype=torch.float64).square()


def weighted(left: Tensor, right: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Both factors, the narrower one times the record's weight."""
    column = weights.to(left.dtype)[:, None, None]
    return (left * column, right) if left.shape[2] <= right.shape[2] else (left, right * column)


def add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """into += left^T right, with [position, m] and [position, n]."""
    if left.dtype == into.dtype:
        into.addmm_(left.T, right)
    elif _mixed("mm", left.device.type, left.dtype):
        into.add_(torch.mm(left.T, right, out_dtype=into.dtype))
    else:
        into.addmm_(left.T.to(into.dtype), right.to(into.dtype))


def add_weighted(into: Tensor, values: Tensor, weights: Tensor) -> None:
    """into += sum over records of weights[record] * values[record]."""
    lines = values.flatten(1)
    if lines.dtype != into.dtype and _mixed("mm", lines.device.type, lines.dtype):
        into.view(-1).add_(torch.mm(weights.to(lines.dtype)[None], lines, out_dtype=into.dtype)[0])
    else:
        into.view(-1).addmv_(lines.to(into.dtype).T, weights.to(into.dtype))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _in_tf32(values: Tensor) -> bool:
    return values.is_cuda and values.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32


def margin(dtype: torch.dtype, device: torch.device) -> float:
    """Relative head room under the clip norm for the rounding of products in this dtype."""
    if dtype == torch.float32 and device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32:
        return 2.0**-9
    return {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}[dtype]


@functools.cache
def _mixed(name: str, device: str, dtype: torch.dtype) -> bool:
    """Whether this device multiplies narrow numbers into a float32 result."""
    one = torch.ones((1, 8, 8) if name == "bmm" else (8, 8), dtype=dtype, device=device)
    try:
        getattr(torch, name)(one, one, out_dtype=torch.float32)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True
