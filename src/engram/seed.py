"""One root seed, and streams that depend on names, not on the order of calls."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Seed:
    """A node in the tree of streams.

    >>> Seed(7).child("lira", "model", 17) == Seed(7).child("lira").child("model", 17)
    True
    """

    root: int
    path: tuple[str | int, ...] = ()

    def child(self, *names: str | int) -> Seed:
        return Seed(self.root, (*self.path, *names))

    @property
    def number(self) -> int:
        """63 bits that name this stream; what torch generators and solvers are seeded with."""
        told = "\x1f".join(f"str:{n}" if isinstance(n, str) else f"int:{n:d}" for n in (self.root, *self.path))
        return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big") >> 1

    def numpy(self) -> np.random.Generator:
        """A fresh generator at the start of this stream."""
        return np.random.default_rng(self.number)
