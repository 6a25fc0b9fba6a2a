"""Several processes, one private step: each clips its own records, the sums are added up, the noise is drawn once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Ranks:
    """The processes that share a step; `group` is None for one alone."""

    group: Any = None

    @staticmethod
    def of(model: nn.Module) -> tuple[nn.Module, Ranks]:
        """The bare model, and who else trains it. Takes the averaging of gradients away from DistributedDataParallel."""
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model.require_backward_grad_sync = False  # it would average gradients that are not clipped
            return _compiled(model.module), Ranks(model.process_group)
        if isinstance(model, nn.DataParallel):
            raise TypeError("expected one model on one device, got DataParallel; use DistributedDataParallel")
        return _compiled(model), Ranks()

    @property
    def first(self) -> bool:
        return self.group is None or dist.get_rank(self.group) == 0

    def add_up(self, flat: Tensor) -> None:
        if self.group is not None:
            dist.all_reduce(flat, group=self.group)

    def align(self, model: nn.Module) -> None:
        """All begin with the weights of the first."""
        if self.group is not None:
            with torch.no_grad():
                for parameter in model.parameters():
                    dist.broadcast(parameter.data, src=dist.get_global_rank(self.group, 0), group=self.group)


def _compiled(model: nn.Module) -> nn.Module:
    """The module that `torch.compile` wraps."""
    inner = getattr(model, "_orig_mod", model)
    assert isinstance(inner, nn.Module)
    return inner
