"""The noisy sum of one logical batch: all parameters in one flat buffer that begins as the noise."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import Parameter

from engram.seed import Seed

ALIGNED = 64  # numbers; so that vectorised kernels work on every view


class Totals:
    """Where each parameter lies in the flat buffer: vectors first and side by side, so that they are summed at once."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.vectors = [p for p in parameters if p.ndim < 2]
        self.matrices = [p for p in parameters if p.ndim >= 2]
        self.parameters = [*self.vectors, *self.matrices]
        wide = any(p.dtype == torch.float64 for p in parameters)
        self.dtype = torch.float64 if wide else torch.float32
        self.width = sum(p.numel() for p in self.vectors)
        sizes = [p.numel() for p in self.vectors] + [-(-p.numel() // ALIGNED) * ALIGNED for p in self.matrices]
        if self.vectors:
            sizes[len(self.vectors) - 1] += -self.width % ALIGNED
        *self.starts, self.size = accumulate(sizes, initial=0)

    def fresh(self, deviation: float, generator: torch.Generator | None) -> Tensor:
        """A buffer of noise; of zeros where the deviation is 0."""
        device = self.parameters[0].device
        flat = torch.empty(self.size, dtype=self.dtype, device=device)
        return flat.normal_(0.0, deviation, generator=generator) if deviation else flat.zero_()

    def views(self, flat: Tensor) -> dict[Parameter, Tensor]:
        """The part of each parameter, in its shape."""
        return {p: flat[at : at + p.numel()].view(p.shape) for p, at in zip(self.parameters, self.starts, strict=True)}

    def lines(self, values: dict[Parameter, Tensor], records: int) -> Tensor:
        """[record, number] the gradients of all vectors side by side; zeros where one was not used."""
        empty = torch.zeros(records, 1, dtype=self.dtype, device=self.parameters[0].device)
        return torch.cat(
            [
                values[p].reshape(records, -1).to(self.dtype) if p in values else empty.expand(-1, p.numel())
                for p in self.vectors
            ],
            1,
        )

    def add_lines(self, flat: Tensor, lines: Tensor, weights: Tensor) -> None:
        """Adds the weighted sum over records of all vectors at once."""
        flat[: self.width].addmv_(lines.T, weights.to(self.dtype))


def source(device: torch.device, simulated: Seed | None) -> torch.Generator:
    """The noise: seeded with 63 bits from the operating system, and nothing anybody could know; or, simulated, from a seed.

    The generator behind it is torch's own (statistical, not cryptographic) and draws floating-point numbers; an adversary
    who sees the lowest bits of exact noisy sums is outside what is promised.
    """
    number = secrets.randbits(63) if simulated is None else simulated.child("noise").number
    return torch.Generator(device).manual_seed(number)
