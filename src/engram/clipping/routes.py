"""Which way to a matrix's norm is cheapest: measured once for each shape, on the numbers themselves, and remembered.

gram          inner products of positions; good while the sequence is short beside the matrix
instantiated  the gradients, a few records at a time, thrown away
kept          the gradients, which then also give the weighted sum; only where they take less room than their factors
fused         the Gram route in one kernel that writes no [position, position] block (CUDA)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from engram.clipping import kernels

Route = Literal["gram", "instantiated", "kept", "fused"]
Choice = Literal["measured", "counted", "gram", "instantiated", "kept", "fused"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
HOPELESS = 8  # a route with this many times the multiplications of another is not tried

Key = tuple[int, int, int, bool, torch.dtype, str]


@dataclass
class Routes:
    """Remembers the cheapest route of each shape. "counted" decides by multiplications alone, so it is reproducible."""

    choice: Choice = "measured"
    chosen: dict[Key, Route] = field(default_factory=dict)
    seconds: dict[Key, dict[Route, float]] = field(default_factory=dict)  # what was measured, for whoever asks why

    def of(self, left: Tensor, right: Tensor, may_keep: bool) -> Route:
        positions, m, n = left.shape[1], left.shape[2], right.shape[2]
        keeps = may_keep and m * n <= positions * (m + n)
        if self.choice not in ("measured", "counted"):
            return _allowed(self.choice, may_keep, left)  # type: ignore[arg-type]
        if positions == 1:
            return "gram"
        if self.choice == "counted":
            return "kept" if keeps else "gram" if positions * (m + n) <= 2 * m * n else "instantiated"
        key = (positions.bit_length(), m, n, keeps, left.dtype, left.device.type)
        if key not in self.chosen:
            candidates = _candidates(left, right, keeps)
            self.seconds[key] = {route: _seconds(_work(route, left, right), left.device) for route in candidates}
            self.chosen[key] = min(candidates, key=self.seconds[key].__getitem__)
        return self.chosen[key]


def _allowed(choice: Route, may_keep: bool, left: Tensor) -> Route:
    if choice == "kept" and not may_keep:
        return "instantiated"
    return "gram" if choice == "fused" and not (left.is_cuda and kernels.work(left.device)) else choice


def _candidates(left: Tensor, right: Tensor, keeps: bool) -> list[Route]:
    positions, m, n = left.shape[1], left.shape[2], right.shape[2]
    gram, made = positions * (m + n), 2 * m * n
    found: list[Route] = ["gram"] if gram <= HOPELESS * made else []
    if left.is_cuda and gram <= HOPELESS * made and kernels.work(left.device):
        found.append("fused")
    if made <= HOPELESS * gram:
        found.append("instantiated")
    return [*found, "kept"] if keeps else found


def _work(route: Route, left: Tensor, right: Tensor) -> Callable[[], object]:
    """All that a route costs, the weighted sum included."""
    from engram.clipping.pieces import Kept, Outer

    weights = torch.ones(len(left), device=left.device)
    wide = torch.float64 if left.dtype == torch.float64 else torch.float32

    def run() -> None:
        piece = Outer(left, right, route)
        whole = Kept(piece.dense(slice(None))) if route == "kept" else piece
        whole.norms()
        whole.add_to(torch.zeros(left.shape[2], right.shape[2], dtype=wide, device=left.device), weights)

    return run


def _seconds(work: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """Of one run, among several back to back: on a GPU the time of its kernels, not of launching them."""
    work()
    _wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    _wait(device)
    return (time.perf_counter() - start) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
