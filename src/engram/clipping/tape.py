"""What a backward pass leaves behind, layer by layer, and the order in which it is turned into norms and sums."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from engram.clipping.pieces import Norms, Piece
from engram.clipping.routes import Routes

Phase = Literal["idle", "probe", "norms", "sum"]
ALL = slice(None)
Layout = tuple[int, int, bool]  # layer, dimensions of its input, whether its first dimension was the records'


class Add(Protocol):
    """Adds a piece's weighted sum, of these records only."""

    def __call__(self, parameter: Parameter, piece: Piece, rows: slice = ALL) -> None: ...


class NotPrivate(RuntimeError):
    """The model does something under which clipping record by record would not bound what one record can do."""


@dataclass(eq=False)
class Tape:
    """Filled by the layers during `loss.backward()`. One for each private model."""

    routes: Routes
    hold: bool = True  # keep what the weighted sum needs; else only norms are taken
    phase: Phase = "idle"
    inside: bool = False  # a layer is being replayed: layers within it are ordinary
    watching: bool = True  # off in the micro-batch mode, where autograd does all
    records: int | None = None  # of the forward pass under way
    shared: frozenset[int] = frozenset()  # parameters held by several layers
    calls: Counter[int] = field(default_factory=Counter)  # layer -> forward calls since the last backward
    seen: set[Layout] = field(default_factory=set)
    checked: set[Layout] = field(default_factory=set)
    pieces: dict[Parameter, list[Piece]] = field(default_factory=dict)
    norms: dict[Parameter, list[Norms]] = field(default_factory=dict)
    add: Add | None = None  # what the phase "sum" does with a piece
    probed: int = 0  # the record whose loss alone is propagated by the probe
    leaks: list[tuple[str, Tensor]] = field(default_factory=list)
    length: int = 0  # records in the loss
    dtypes: set[torch.dtype] = field(default_factory=set)  # of the products in this backward pass

    @property
    def expected(self) -> int | None:
        """How many records a layer must see; None where it is called on its own."""
        return (
            self.records if self.phase == "idle" else self.length
        )  # a checkpointed forward pass runs again in backward

    def note(self, layer: int, dimensions: int, natural: bool) -> None:
        """A forward call."""
        if self.phase != "idle":  # activation checkpointing runs a forward pass again
            return
        self.calls[layer] += 1
        if self.records is None or self.records > 1:
            self.seen.add((layer, dimensions, natural))

    def many(self, layer: int, parameter: Parameter) -> bool:
        """Whether this parameter's gradient is a sum over several uses."""
        return id(parameter) in self.shared or self.calls[layer] > 1

    def admit(self, name: str, gradient: Tensor) -> bool:
        """Checks what arrives at a layer, and says whether its pieces are wanted."""
        if self.phase == "idle":
            raise NotPrivate(
                "expected private.backward(loss), got a backward pass of another kind; "
                "call private.backward, and leave loss.backward() alone"
            )
        if gradient.shape[0] != self.length:
            raise NotPrivate(
                f"{name} must see one entry a record in its first dimension, got {tuple(gradient.shape)} "
                f"for {self.length} records; put the records first"
            )
        if self.phase == "probe":
            others = torch.arange(self.length, device=gradient.device) != self.probed
            self.leaks.append((name, gradient.detach()[others].ne(0).any()))
        self.dtypes.add(gradient.dtype)
        return self.phase != "probe"

    def take(self, parameter: Parameter, piece: Piece, alone: bool) -> None:
        """`alone`: no other use of the parameter can follow."""
        if self.phase == "sum":
            assert self.add is not None
            self.add(parameter, piece)
        elif alone and not self.hold:
            self.norms.setdefault(parameter, []).append(piece.norms())
        else:
            self.pieces.setdefault(parameter, []).append(piece)

    def clear(self) -> None:
        self.pieces, self.norms, self.leaks, self.add = {}, {}, [], None
        self.phase, self.dtypes = "idle", set()

    def forget(self) -> None:
        """Forward calls that no backward pass followed."""
        self.calls, self.seen = Counter(), set()
