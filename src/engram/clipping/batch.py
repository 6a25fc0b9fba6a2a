"""One logical batch while it is gathered: from losses to the noisy weighted sum of all parameters."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from engram.clipping import coefficients, products
from engram.clipping.pieces import Kept, Norms, Piece, together
from engram.clipping.replay import spread
from engram.clipping.roster import Roster
from engram.clipping.settings import Settings
from engram.clipping.tape import ALL, Add, NotPrivate, Tape
from engram.clipping.totals import Noise, Totals


class Batch:
    """Begun by the first `backward` after a step, ended by the step."""

    def __init__(self, roster: Roster, tape: Tape, settings: Settings, noise: Noise) -> None:
        self.roster, self.tape, self.settings, self.noise = roster, tape, settings, noise
        self.trainable = roster.trainable()
        self.totals = Totals(self.trainable)
        self.groups = dict.fromkeys(self.trainable, 0)
        if settings.clipping == "per-layer":
            self.groups = roster.groups(self.trainable)
        self.count = 1 + max(self.groups.values())
        self.device = self.trainable[0].device
        self.norms: Tensor | None = None  # [record, group] of the last losses; private, for whoever debugs
        self.odd: Tensor | None = None  # whether some record's gradient was not finite
        self._flat: Tensor | None = None
        tape.shared = roster.shared()

    def total(self) -> Tensor:
        """The flat buffer of all parameters; it begins as the noise."""
        if self._flat is None:
            settings = self.settings
            noisy = bool(self.noise) and settings.noise_multiplier > 0
            deviation = settings.noise_multiplier * settings.clip_norm / settings.expected_batch if noisy else 0.0
            self._flat = self.totals.fresh(deviation, self.noise)
        return self._flat

    def add(self, loss: Tensor) -> None:
        """Adds the clipped gradient of each record over the expected batch."""
        for parameter in self.trainable:
            parameter.grad = None
        self.tape.length = len(loss)
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            if self.settings.mode == "micro-batch":
                self._one_by_one(loss)
                return
            self._probe(loss)
            if self.settings.mode == "book-keeping":
                self._one_pass(loss)
            else:
                self._two_passes(loss)

    def _one_pass(self, loss: Tensor) -> None:
        self._pass(loss, "norms", retain=False)
        lines = self._lines()
        weights = self._weights(lines)
        flat = self.total()
        add = self._adding(weights)
        if lines is not None:
            self.totals.add_lines(flat, lines, weights[:, 0])
            del lines
        spread(self.tape.pieces, add)
        for parameter in list(self.tape.pieces):
            for piece in self.tape.pieces.pop(parameter):  # what it holds is freed before the next
                add(parameter, piece)

    def _two_passes(self, loss: Tensor) -> None:
        self._pass(loss, "norms", retain=True)
        weights = self._weights(None)
        self.tape.clear()
        self.tape.add = self._adding(weights)
        self._pass(loss, "sum", retain=False)

    def _adding(self, weights: Tensor) -> Add:
        views = self.totals.views(self.total())

        def add(parameter: Parameter, piece: Piece, rows: slice = ALL) -> None:
            piece.add_to(views[parameter], weights[rows, self.groups[parameter]])

        return add

    def _one_by_one(self, loss: Tensor) -> None:
        """The plain way: a backward pass for each record."""
        views = self.totals.views(self.total())
        for i in range(len(loss)):
            last = i + 1 == len(loss)
            made = torch.autograd.grad(loss, self.trainable, _only(loss, i), retain_graph=not last, allow_unused=True)
            pieces = {p: Kept(g[None]) for p, g in zip(self.trainable, made, strict=True) if g is not None}
            self.tape.dtypes = {g.dtype for g in made if g is not None}
            weights = self._clipped([p.norms() for p in pieces.values()], [self.groups[p] for p in pieces], 1)
            for parameter, piece in pieces.items():
                piece.add_to(views[parameter], weights[:, self.groups[parameter]])

    def _pass(self, loss: Tensor, phase: Literal["norms", "sum"], *, retain: bool) -> None:
        self.tape.phase = phase
        torch.autograd.backward(loss, torch.ones_like(loss), retain_graph=retain)
        self._refuse_strays()

    def _lines(self) -> Tensor | None:
        """With one group, all vectors' gradients are one matrix [record, number]: one norm, one product."""
        pieces, found = self.tape.pieces, {}
        if self.count > 1:
            return None
        for parameter in self.totals.vectors:
            used = [piece.values for piece in pieces.get(parameter, []) if isinstance(piece, Kept)]
            if used and len(used) == len(pieces[parameter]):
                found[parameter] = sum(used[1:], used[0])
                del pieces[parameter]
        return self.totals.lines(found, self.tape.length) if found else None

    def _weights(self, lines: Tensor | None) -> Tensor:
        """[record, group]"""
        tape = self.tape
        norms = [] if lines is None else [Norms(products.squares(lines))]
        groups = [0] * len(norms)
        for parameter, pieces in tape.pieces.items():
            norms.append(together(pieces, parameter.shape))
            groups.append(self.groups[parameter])
        for parameter, known in tape.norms.items():
            norms += known
            groups += [self.groups[parameter]] * len(known)
        return self._clipped(norms, groups, tape.length)

    def _clipped(self, norms: list[Norms], groups: list[int], records: int) -> Tensor:
        """What each record counts, over the expected batch."""
        if not norms:
            return torch.zeros(records, self.count, dtype=torch.float64, device=self.device)
        exact, largest = coefficients.gathered(norms, groups, self.count)
        self.norms = exact.sqrt()
        odd = ~largest.isfinite().all()
        self.odd = odd if self.odd is None else self.odd | odd
        if self.device.type == "cpu":
            refuse_odd(self.odd)
        kinds = {p.dtype for p in self.trainable} | self.tape.dtypes
        margin = max(products.margin(kind, self.device) for kind in kinds)
        told = coefficients.weights(largest, self.settings.clip_norm, self.settings.clipping, margin)
        return (told / self.settings.expected_batch).to(self.totals.dtype)

    def _probe(self, loss: Tensor) -> None:
        """Once for each new way the layers are called: the loss of one record must reach no other record's entries."""
        tape = self.tape
        if not tape.seen - tape.checked or len(loss) == 1:
            return
        tape.phase, tape.probed = "probe", int(loss.detach().abs().argmax())
        torch.autograd.backward(loss, _only(loss, tape.probed), retain_graph=True)
        self._refuse_strays()
        for name, leaked in tape.leaks:
            if leaked.item():
                raise NotPrivate(
                    f"{name} must keep records apart, but the loss of one record depends on what the layer sees of others; "
                    "put the records first, and let no layer mix them"
                )
        tape.leaks = []
        tape.checked |= tape.seen

    def _refuse_strays(self) -> None:
        strays = [p for p in self.trainable if p.grad is not None]
        if strays:
            for parameter in self.trainable:
                parameter.grad = None
            raise NotPrivate(
                f"{self.roster.name(strays[0])} is used outside of its own layer's forward pass, so its gradients cannot "
                f"be told apart ({len(strays)} such parameters); freeze it, or call the layer that holds it"
            )


def refuse_odd(odd: Tensor | None) -> None:
    if odd is not None and bool(odd):
        raise NotPrivate(
            "some record's gradient was not finite, so nothing bounds what that record did; "
            "lower the learning rate or the loss scale, and start from the last good weights"
        )


def _only(loss: Tensor, record: int) -> Tensor:
    """A gradient of 1 for one record."""
    one = torch.zeros_like(loss)
    one[record] = 1
    return one
