"""The noisy sum of one logical batch: all parameters in one flat buffer that begins as the noise."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter

from engram.seed import Seed

LANES = 8  # streams of noise on a processor, so that all cores draw, and draw the same however many they are
WORTH_THREADS = 2**18  # numbers
ALIGNED = 64  # numbers; so that vectorised kernels work on every view

Noise: TypeAlias = tuple[torch.Generator, ...]


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

    def fresh(self, deviation: float, lanes: Noise) -> Tensor:
        """A buffer of noise; of zeros where the deviation is 0."""
        flat = torch.empty(self.size, dtype=self.dtype, device=self.parameters[0].device)
        if not deviation:
            return flat.zero_()
        parts, workers = flat.chunk(len(lanes)), min(len(lanes), torch.get_num_threads())
        if workers > 1 and self.size >= WORTH_THREADS:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(lambda part, lane: part.normal_(0.0, deviation, generator=lane), parts, lanes))
        else:
            for part, lane in zip(parts, lanes, strict=False):  # a small buffer has fewer parts
                part.normal_(0.0, deviation, generator=lane)
        return flat

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


def source(device: torch.device, simulated: Seed | None) -> Noise:
    """The noise: seeded with 63 bits from the operating system, and nothing anybody could know; or, simulated, from a seed.

    The generators behind it are torch's own (statistical, not cryptographic) and draw floating-point numbers; an adversary
    who sees the lowest bits of exact noisy sums is outside what is promised.
    """
    lanes = LANES if device.type == "cpu" else 1
    seeds = [secrets.randbits(63) if simulated is None else simulated.child("noise", i).number for i in range(lanes)]
    return tuple(torch.Generator(device).manual_seed(seed) for seed in seeds)
