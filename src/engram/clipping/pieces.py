"""What one use of a parameter leaves behind: enough for each record's squared gradient norm, and for their weighted sum.

Goodfellow: Efficient Per-Example Gradient Computations, 2015 (norms from activations and output gradients).
Li, Tramer, Liang, Hashimoto: Large Language Models Can Be Strong Differentially Private Learners, 2022, section 4
(sequences: the norm is sum_{s,t} <l_s, l_t> <r_s, r_t>, with no gradient per record).
Bu, Wang, Zha, Karypis: Differentially Private Optimization on Large Model at Small Cost, 2023 (one backward pass).
Differs from the papers: a parameter that is used several times, by layers of the same or of different kinds, is exact.

Records are always the first dimension. A gradient per record is the sum over positions t of left_t right_t^T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engram.clipping import products
from engram.clipping.routes import Route

BLOCK = 2**26  # numbers held at once by whatever is made for a few records at a time


class Norms(NamedTuple):
    """Squared norms, and by how much rounding may have made them too small."""

    squares: Tensor  # [record]
    slack: Tensor | None = None  # [record]


class Piece(Protocol):
    @property
    def records(self) -> int: ...

    def norms(self) -> Norms: ...

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """Adds the sum over records of weights[record] times the record's gradient; `total` is shaped as the parameter."""
        ...

    def dense(self, rows: slice) -> Tensor:
        """The gradients of these records, [record, *parameter]."""
        ...


def blocks(records: int, each: int) -> Iterator[slice]:
    """Slices of as many records as fit in `BLOCK` numbers when one of them takes `each`."""
    size = max(1, BLOCK // max(1, each))
    for start in range(0, records, size):
        yield slice(start, min(records, start + size))


@dataclass(frozen=True, eq=False)
class Kept:
    """The gradients themselves: for vectors, and wherever they are smaller than what they are made of."""

    values: Tensor  # [record, *parameter]

    @property
    def records(self) -> int:
        return len(self.values)

    def norms(self) -> Norms:
        return Norms(products.squares(self.values.flatten(1)))

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        products.add_weighted(total, self.values, weights)

    def dense(self, rows: slice) -> Tensor:
        return self.values[rows]


@dataclass(frozen=True, eq=False)
class Outer:
    """A matrix that multiplies: a linear layer's weight, [m, n] in the parameter's own orientation."""

    left: Tensor  # [record, position, m]
    right: Tensor  # [record, position, n]
    route: Route = "gram"

    @property
    def records(self) -> int:
        return len(self.left)

    def norms(self) -> Norms:
        if self.left.shape[1] == 1:
            return Norms(products.squares(self.left.flatten(1)) * products.squares(self.right.flatten(1)))
        if self.route == "fused":
            from engram.clipping import kernels

            return Norms(kernels.gram_squares(self.left, self.right))
        if self.route == "gram":
            return self._gram()
        size = self.left.shape[2] * self.right.shape[2]
        made = [products.squares(self.dense(rows).flatten(1)) for rows in blocks(len(self.left), size)]
        return Norms(torch.cat(made))

    def _gram(self) -> Norms:
        positions = self.left.shape[1]
        made = [
            products.gram(self.left[rows], self.right[rows])
            for rows in blocks(len(self.left), 2 * positions * positions)
        ]
        return Norms(torch.cat(made), products.gram_slack(self.left, self.right))

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        left, right = products.weighted(self.left, self.right, weights)
        products.add_product(total, left.flatten(0, 1), right.flatten(0, 1))

    def dense(self, rows: slice) -> Tensor:
        return torch.bmm(self.left[rows].transpose(1, 2), self.right[rows])


@dataclass(frozen=True, eq=False)
class Rows:
    """A matrix whose rows are looked up: an embedding. Never a one-hot vector, never a gradient per record."""

    ids: Tensor  # [record, position]
    right: Tensor  # [record, position, n]
    height: int

    @property
    def records(self) -> int:
        return len(self.ids)

    def norms(self) -> Norms:
        positions = self.ids.shape[1]
        made = [self._squares(rows) for rows in blocks(len(self.ids), 2 * positions * positions)]
        return Norms(torch.cat(made), products.gram_slack(self.right))

    def _squares(self, rows: slice) -> Tensor:
        ids, right = self.ids[rows], self.right[rows]
        return products.total(products.gram_matrix(right, right).masked_fill_(ids[:, :, None] != ids[:, None], 0))

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        scaled = self.right.to(total.dtype) * weights.to(total.dtype)[:, None, None]
        total.index_add_(0, self.ids.flatten(), scaled.flatten(0, 1))

    def dense(self, rows: slice) -> Tensor:
        ids, right = self.ids[rows], self.right[rows]
        made = right.new_zeros(len(ids), self.height, right.shape[2])
        return made.scatter_add_(1, ids[:, :, None].expand_as(right), right)


@dataclass(frozen=True, eq=False)
class Made:
    """Anything whose gradients can be made again for a few records at a time: convolutions."""

    make: Callable[[slice], Tensor]  # the gradients of these records
    add: Callable[[Tensor, Tensor], None]
    records: int
    size: int  # numbers in the parameter

    def norms(self) -> Norms:
        made = [products.squares(self.make(rows).flatten(1)) for rows in blocks(self.records, self.size)]
        return Norms(torch.cat(made))

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        self.add(total, weights)

    def dense(self, rows: slice) -> Tensor:
        return self.make(rows)


def together(pieces: Sequence[Piece], shape: torch.Size) -> Norms:
    """Squared norms of the sum of all uses of one parameter, cross terms included."""
    if len(pieces) == 1:
        return pieces[0].norms()
    outer, rows = [p for p in pieces if isinstance(p, Outer)], [p for p in pieces if isinstance(p, Rows)]
    if len(outer) + len(rows) < len(pieces) or len({p.right.dtype for p in outer + rows}) > 1:
        return _summed(pieces, shape)
    parts = [_joined_outer(outer).norms()] if outer else []
    parts += [_joined_rows(rows).norms()] if rows else []
    squares = torch.stack([part.squares.double() for part in parts]).sum(0)
    slack = torch.stack([part.slack.double() for part in parts if part.slack is not None] or [0 * squares]).sum(0)
    if outer and rows:
        crossed = torch.stack([_crossed(a, b).double() for a in outer for b in rows]).sum(0)
        squares, slack = squares + 2 * crossed, 2 * slack  # 2 |<x, y>| <= |x|^2 + |y|^2, and so does its rounding
    return Norms(squares.clamp_min(0), slack)


def _joined_outer(pieces: Sequence[Outer]) -> Outer:
    if len(pieces) == 1:
        return pieces[0]
    return Outer(torch.cat([p.left for p in pieces], 1), torch.cat([p.right for p in pieces], 1), pieces[0].route)


def _joined_rows(pieces: Sequence[Rows]) -> Rows:
    if len(pieces) == 1:
        return pieces[0]
    return Rows(torch.cat([p.ids for p in pieces], 1), torch.cat([p.right for p in pieces], 1), pieces[0].height)


def _crossed(outer: Outer, rows: Rows) -> Tensor:
    """<sum_s left_s right_s^T, sum_t e_{id_t} g_t^T> = sum_{s,t} left_s[id_t] <right_s, g_t>, by gathering from `left`."""
    made = []
    for part in blocks(len(rows.ids), 2 * outer.left.shape[1] * rows.ids.shape[1]):
        ids = rows.ids[part]
        picked = outer.left[part].gather(2, ids[:, None].expand(-1, outer.left.shape[1], -1))  # [record, s, t]
        made.append(products.total(products.gram_matrix(outer.right[part], rows.right[part]).mul_(picked)))
    return torch.cat(made)


def _summed(pieces: Sequence[Piece], shape: torch.Size) -> Norms:
    """Any mixture of uses: the gradients themselves, a few records at a time."""
    made = []
    for rows in blocks(pieces[0].records, shape.numel()):
        whole = sum(
            (piece.dense(rows).flatten(1).float() for piece in pieces[1:]), pieces[0].dense(rows).flatten(1).float()
        )
        made.append(products.squares(whole))
    return Norms(torch.cat(made))


def padded_to_zero(ids: Tensor, right: Tensor, padding: int | None) -> Tensor:
    return right if padding is None else right.masked_fill((ids == padding)[..., None], 0)
