"""How many models train at once: from what one of them needs, and what the machine has.

On a processor the cores are busy as soon as a block fills the cache, and slower beyond it; on a GPU the limit is memory.
The rule does not time anything, so the same machine makes the same plan.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engram.data.dataset import Dataset
from engram.seed import Seed
from engram.train.loop import started
from engram.train.recipe import Recipe
from engram.train.stack import Device

CACHE = 32 * 2**20  # bytes of one block in training on a processor; measured best from 16 to 64 MiB
ANSWERED = 32 * 2**20  # bytes of all layers' outputs of one forward pass on a processor
ANSWERED_GPU = 8 * 2**30  # the same on a GPU
LEAST, MOST = 16, 2**16  # records of one forward pass
SHARE = 0.5  # of the GPU's free memory
LARGE = 100  # pixels; a convolution over more fills the cores of a processor with one model, and stacked it is slower


@dataclass(frozen=True)
class Plan:
    """Fixed at the first start and stored: another block size or thread count rounds differently."""

    block: int  # models trained at once
    answered: int  # records asked at once
    stacked: bool
    reason: str  # why not stacked
    threads: int
    device: str

    def told(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """The planned number of threads, for as long as it is needed."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def planned(recipe: Recipe, data: Dataset, records: int, device: Device = "cpu", *, shared: bool = False) -> Plan:
    """The plan for models of `recipe`, each trained on `records` records of `data`; `shared` if on nearly the same."""
    device = torch.device(device)
    batch = recipe.sampler.expected(records)
    module = started(recipe, Seed(0))
    weights, activations, pixels = _needs(module, data, min(batch, 8))
    reason = unstackable(module)
    if device.type == "cpu" and pixels > LARGE and not reason:
        reason = f"its convolutions over {pixels} pixels fill the cores with one model"
    held = activations - (data.x[0].nbytes if shared else 0)  # for each record and model
    one = 4 * weights + 2 * batch * held  # values, gradients, two moments; activations and their gradients
    room = _room(device)
    block = max(1, room // max(1, one))
    if block < 2 and not reason:
        reason = "one model already fills the cache" if device.type == "cpu" else "one model already fills the memory"
    block = 1 if reason else block
    answered = max(16, min(4096, room // max(1, block * activations)))
    return Plan(block, answered, not reason, reason, torch.get_num_threads(), str(device))


def answered_at_once(module: nn.Module, x: Tensor) -> int:
    """How many records like `x` one forward pass takes: what fills the cache of a processor, or a share of a GPU's memory.

    A constant of the module and of the kind of device, so that the same questions are always rounded alike.
    """
    room = ANSWERED_GPU if x.is_cuda else ANSWERED
    return max(LEAST, min(MOST, room // max(1, _outputs(module, x[:1])[0])))


def unstackable(module: nn.Module) -> str:
    """Why this network cannot be stacked; empty if it can."""
    for name, m in module.named_modules():
        if isinstance(m, nn.RNNBase):
            return f"{name or 'the network'} is a {type(m).__name__}, whose fused kernel takes one model at a time"
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats and m.momentum is None:
            return f"{name} averages over all batches, which takes a count of its own for each model"
    if any(p.dtype != torch.float32 for p in module.parameters()):
        return "its parameters are not all float32"
    return ""


def _room(device: torch.device) -> int:
    if device.type == "cuda":
        return int(SHARE * torch.cuda.mem_get_info(device)[0])
    return CACHE


def _needs(module: nn.Module, data: Dataset, batch: int) -> tuple[int, int, int]:
    """Bytes of the weights, bytes of all layers' outputs for one record, and pixels of the largest convolution."""
    seen, pixels = _outputs(module.eval(), torch.as_tensor(data.x[:batch]))
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    return weights, data.x[0].nbytes + seen // batch, pixels


def _outputs(module: nn.Module, x: Tensor) -> tuple[int, int]:
    """Bytes of all layers' outputs for these records, and pixels of the largest convolution."""
    seen, pixels = 0, 0

    def count(layer: nn.Module, _: Any, output: Any) -> None:
        nonlocal seen, pixels
        if isinstance(output, Tensor):
            seen += output.numel() * output.element_size()
        if isinstance(layer, nn.Conv2d):
            pixels = max(pixels, output.shape[-1] * output.shape[-2])

    hooks = [m.register_forward_hook(count) for m in module.modules() if not list(m.children())]
    with torch.no_grad():
        module(x)
    for hook in hooks:
        hook.remove()
    return seen, pixels
