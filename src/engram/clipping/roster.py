"""Who holds which parameter. Asked at every step, so the model's tree is walked only once."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn
from torch.nn import Parameter


class Roster:
    """The modules of a model that hold parameters; which of these are trainable, or shared, is read anew each time."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.holders = [module for module in model.modules() if module._parameters]

    def trainable(self) -> list[Parameter]:
        """Each once, in the order of the model."""
        found = {
            id(p): p
            for module in self.holders
            for p in module._parameters.values()
            if p is not None and p.requires_grad
        }
        if not found:
            raise ValueError("expected a model with a trainable parameter, got none; unfreeze one")
        return list(found.values())

    def shared(self) -> frozenset[int]:
        """Parameters that several modules hold."""
        counts = Counter(id(p) for module in self.holders for p in module._parameters.values() if p is not None)
        return frozenset(p for p, count in counts.items() if count > 1)

    def groups(self, trainable: list[Parameter]) -> dict[Parameter, int]:
        """The first module that holds each trainable parameter, numbered."""
        wanted = {id(p) for p in trainable}
        found: dict[Parameter, int] = {}
        count = 0
        for module in self.holders:
            own = [p for p in module._parameters.values() if p is not None and id(p) in wanted and p not in found]
            found.update(dict.fromkeys(own, count))
            count += bool(own)
        return found

    def name(self, parameter: Parameter) -> str:
        return next((name for name, p in self.model.named_parameters() if p is parameter), "a parameter")

    def check_held(self, trainable: list[Parameter], optimiser: torch.optim.Optimizer) -> None:
        """Every trainable parameter must be the optimiser's."""
        held = {id(p) for group in optimiser.param_groups for p in group["params"]}
        left_out = [p for p in trainable if id(p) not in held]
        if left_out:
            raise ValueError(
                f"the optimiser must hold every trainable parameter, {self.name(left_out[0])} is missing "
                f"({len(left_out)} in all); freeze it or hand it to the optimiser"
            )
