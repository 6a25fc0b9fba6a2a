"""Any other module that holds parameters: run forward again and differentiated record by record. Always right, never fast.

The module must take the records first, answer each record from that record alone, and use no randomness of its own.
What it answers record by record is compared with what it answered on the batch; where they differ it is refused by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import Parameter
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from engram.clipping.layers import Layer
from engram.clipping.pieces import BLOCK, Kept, Norms, Piece, blocks
from engram.clipping.products import add_weighted, squares
from engram.clipping.tape import Add, NotPrivate


def replayed(layer: Layer, *args: Any, **kwargs: Any) -> Any:
    """The module's own answer, with its parameters' gradients taken record by record."""
    flat, spec = tree_flatten((args, kwargs))
    records = layer.tape.expected
    tensors = [leaf for leaf in flat if isinstance(leaf, Tensor)]
    if not tensors:
        raise NotPrivate(f"{layer.name} must be given a tensor with the records first, got none; freeze its parameters")
    if records is None:
        records = tensors[0].shape[0] if tensors[0].ndim else 1
    layer.batched(tensors[0])
    named = {name: p for name, p in layer.module.named_parameters() if p.requires_grad}
    call = Call(layer, flat, spec, records, named)
    inputs = [leaf for leaf in flat if isinstance(leaf, Tensor)]
    outputs = _replayed(call, len(inputs), *inputs, *named.values())
    return tree_unflatten(_filled(call.answer, list(outputs)), call.answer_spec)


@dataclass(eq=False)
class Call:
    """One forward call of a replayed module."""

    layer: Layer
    flat: list[Any]  # arguments; tensors are put back in their places
    spec: TreeSpec
    records: int
    named: dict[str, Parameter]
    answer: list[Any] = field(default_factory=list)
    answer_spec: Any = None

    def run(self, tensors: Sequence[Tensor], parameters: dict[str, Any] | None = None) -> list[Tensor]:
        """Tensors of the answer."""
        args, kwargs = tree_unflatten(_filled(self.flat, list(tensors)), self.spec)
        tape = self.layer.tape
        before, tape.inside = tape.inside, True
        try:
            told = torch.func.functional_call(self.layer.module, parameters or {}, args, kwargs)
        finally:
            tape.inside = before
        self.answer, self.answer_spec = tree_flatten(told)
        return [leaf for leaf in self.answer if isinstance(leaf, Tensor)]

    def gradients(self, tensors: Sequence[Tensor], gs: Sequence[Tensor | None], rows: slice) -> list[Tensor]:
        """The gradient of each trainable parameter for these records: [record, *parameter] each."""
        batched = [t.ndim > 0 and t.shape[0] == self.records for t in tensors]
        given = [t[rows] if there else t for t, there in zip(tensors, batched, strict=True)]
        kept = [i for i, g in enumerate(gs) if g is not None]
        of_outputs = [g[rows] for g in gs if g is not None]
        values = {name: p.detach() for name, p in self.named.items()}

        def answers(parameters: dict[str, Tensor], *one: Tensor) -> list[Tensor]:
            whole = [t[None] if there else t for t, there in zip(one, batched, strict=True)]
            told = self.run(whole, parameters)
            return [told[i] for i in kept]

        def single(*one_and_gs: Tensor) -> dict[str, Tensor]:
            one, own = one_and_gs[: len(given)], one_and_gs[len(given) :]
            back = torch.func.vjp(lambda parameters: answers(parameters, *one), values)[1]
            made: dict[str, Tensor] = back([g[None] for g in own])[0]
            return made

        places = tuple(0 if there else None for there in batched) + (0,) * len(of_outputs)
        made = self._by_record(single, places, [*given, *of_outputs])
        return [made[name] for name in self.named]

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Refuses a module that answers a record by others."""
        batched = [t.ndim > 0 and t.shape[0] == self.records for t in tensors]
        places = tuple(0 if there else None for there in batched)

        def one(*given: Tensor) -> list[Tensor]:
            return self.run([t[None] if there else t for t, there in zip(given, batched, strict=True)])

        with torch.no_grad():
            whole = self.run(tensors)
            apart = self._by_record(one, places, list(tensors))
        for a, b in zip(whole, apart, strict=True):
            if not torch.allclose(a, b.flatten(0, 1), rtol=1e-3, atol=1e-5):
                raise NotPrivate(
                    f"{self.layer.name} ({type(self.layer.module).__name__}) must answer each record from that record alone, "
                    "got other answers on the batch than one by one; freeze it or replace it"
                )

    def _by_record(self, work: Any, places: tuple[int | None, ...], given: list[Tensor]) -> Any:
        try:
            with (
                sdpa_kernel(SDPBackend.MATH),
                warnings.catch_warnings(),
            ):  # the other kernels cannot be mapped over records
                warnings.filterwarnings("ignore", "There is a performance drop")
                return torch.func.vmap(work, in_dims=places, randomness="error")(*given)
        except NotPrivate:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise NotPrivate(
                f"{self.layer.name} ({type(self.layer.module).__name__}) must run record by record under torch.func.vmap, "
                f"got: {str(error).splitlines()[0]}; switch off its dropout, freeze it or replace it"
            ) from error


@dataclass(eq=False)
class Again:
    """All parameters of one call, made again for the weighted sum: where keeping them would take too much room."""

    call: Call
    tensors: Sequence[Tensor]
    gs: Sequence[Tensor | None]
    at: int  # which parameter
    squared: Tensor  # [record]

    def norms(self) -> Norms:
        return Norms(self.squared)

    def dense(self, rows: slice) -> Tensor:
        return self.call.gradients(self.tensors, self.gs, rows)[self.at]

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        for rows in blocks(self.records, _size(self.call)):
            add_weighted(total, self.dense(rows), weights[rows])

    @property
    def records(self) -> int:
        return self.call.records


def _received(call: Call, tensors: Sequence[Tensor], gs: Sequence[Tensor | None]) -> None:
    layer, tape = call.layer, call.layer.tape
    for g in gs:
        if g is not None and not tape.admit(layer.name, g):
            call.check(tensors)
            return
    size = _size(call)
    small = call.records * size <= BLOCK
    parts = [call.gradients(tensors, gs, rows) for rows in blocks(call.records, size)] if small else []
    if small:
        for at, parameter in enumerate(call.named.values()):
            layer.take(parameter, Kept(torch.cat([part[at] for part in parts])))
        return
    if tape.phase == "sum":
        assert tape.add is not None
        _spread(call, tensors, gs, tape.add)
        return
    squared: list[list[Tensor]] = [[] for _ in call.named]
    for rows in blocks(call.records, size):
        for at, made in enumerate(call.gradients(tensors, gs, rows)):
            squared[at].append(squares(made.flatten(1)))
    for at, parameter in enumerate(call.named.values()):
        layer.take(parameter, Again(call, tensors, gs, at, torch.cat(squared[at])))


def _spread(call: Call, tensors: Sequence[Tensor], gs: Sequence[Tensor | None], add: Add) -> None:
    """Adds all parameters of one call, with one replay for each few records."""
    for rows in blocks(call.records, _size(call)):
        for parameter, made in zip(call.named.values(), call.gradients(tensors, gs, rows), strict=True):
            add(parameter, Kept(made), rows)


def spread(pieces: dict[Parameter, list[Piece]], add: Add) -> None:
    """Takes what must be made again out of `pieces`, and adds it, call by call."""
    found: dict[int, Again] = {}
    for parameter, used in pieces.items():
        found.update({id(piece.call): piece for piece in used if isinstance(piece, Again)})
        pieces[parameter] = [piece for piece in used if not isinstance(piece, Again)]
    for piece in found.values():
        _spread(piece.call, piece.tensors, piece.gs, add)


def _size(call: Call) -> int:
    return sum(p.numel() for p in call.named.values())


def _filled(flat: list[Any], tensors: list[Tensor]) -> list[Any]:
    """`flat` with its tensors replaced, in order."""
    left = iter(tensors)
    return [next(left) if isinstance(leaf, Tensor) else leaf for leaf in flat]


class _Replayed(Function):
    @staticmethod
    def forward(ctx: Any, call: Call, count: int, *tensors: Tensor) -> Any:
        inputs = tensors[:count]
        with torch.no_grad():
            outputs = call.run(inputs)
        ctx.call, ctx.count = call, count
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        inexact = [o for o in outputs if not o.is_floating_point()]
        ctx.mark_non_differentiable(*inexact)
        return tuple(o.clone() if any(o is i for i in inputs) else o for o in outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gs: Tensor | None) -> Any:
        call, inputs = ctx.call, ctx.saved_tensors
        nothing = (None,) * (2 + ctx.count + len(call.named))
        if all(g is None for g in gs):
            return nothing
        _received(call, inputs, gs)
        wanted = [i for i in range(ctx.count) if ctx.needs_input_grad[2 + i]]
        if not wanted:
            return nothing
        with torch.enable_grad():
            given = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(inputs)]
            outputs = call.run(given)
            pairs = [(o, g) for o, g in zip(outputs, gs, strict=True) if g is not None]
            made = torch.autograd.grad(
                [o for o, _ in pairs], [given[i] for i in wanted], [g for _, g in pairs], allow_unused=True
            )
        back = dict(zip(wanted, made, strict=True))
        return (None, None, *(back.get(i) for i in range(ctx.count)), *[None] * len(call.named))


_replayed: Any = _Replayed.apply
