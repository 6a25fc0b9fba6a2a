"""GPU kernels. Triton is imported when the first one runs, and only there."""

from __future__ import annotations

import functools
import subprocess
from typing import Any

import torch
from torch import Tensor


def gram_squares(left: Tensor, right: Tensor) -> Tensor:
    """sum_{s,t} <l_s, l_t> <r_s, r_t> of each record, by tiles of positions on and below the diagonal."""
    left, right = left.contiguous(), right.contiguous()
    records, positions = left.shape[:2]
    block = 32 if positions <= 64 else 64 if positions <= 512 else 128
    tiles = -(-positions // block)
    pairs = tiles * (tiles + 1) // 2
    out = torch.empty(records, pairs, dtype=torch.float32, device=left.device)
    exact = left.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    _kernels().gram[(pairs, records)](
        left, right, out, positions, left.shape[2], right.shape[2], pairs,
        BLOCK=block, DEPTH=32 if left.dtype == torch.float32 else 64, PRECISION="ieee" if exact else "tf32",
        num_warps=8 if block == 128 else 4, num_stages=3,
    )  # fmt: skip
    return out.sum(1)


def layer_norm_sums(x: Tensor, g: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Per record: the gradient of a layer norm's weight and of its bias, in one pass over `x` and `g`."""
    records, width = len(x), x.shape[-1]
    x, g = x.reshape(records, -1, width), g.reshape(records, -1, width)
    positions = x.shape[1]
    of_weight, of_bias = (torch.empty(records, width, dtype=torch.float32, device=x.device) for _ in range(2))
    columns = 64
    _kernels().sums[(-(-width // columns), records)](
        x.contiguous(), g.contiguous(), mean.contiguous(), scale.contiguous(), of_weight, of_bias, positions, width,
        LINES=32, COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return of_weight, of_bias


@functools.cache
def work(device: torch.device) -> bool:
    """Whether Triton is there, compiles, and tells the truth on this device."""
    try:
        from triton.errors import TritonError
    except ImportError:
        return False
    one = torch.linspace(-1, 1, 70, device=device).view(1, 10, 7)
    try:
        told = gram_squares(one, one)
    except (TritonError, ImportError, RuntimeError, ValueError, OSError, subprocess.SubprocessError):
        return False
    true = torch.bmm(one, one.transpose(1, 2)).square().sum((1, 2))
    return bool(torch.allclose(told, true, rtol=1e-2))


@functools.cache
def _kernels() -> Any:
    from engram.clipping import triton_kernels

    return triton_kernels
