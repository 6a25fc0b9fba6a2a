"""Train with units left out at random.

Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov: Dropout, 2014. As a defence: Choquette-Choo, Tramer, Carlini,
Papernot: Label-Only Membership Inference, 2021, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn import functional

from engram import check
from engram.train.recipe import Build, Recipe


class Dropped(nn.Linear):
    """A linear layer that sees a part of its inputs while it is trained. Its weights are those it is made from."""

    def __init__(self, linear: nn.Linear, share: float) -> None:
        super().__init__(1, 1, bias=False, device="meta")
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias, self.share = linear.weight, linear.bias, share

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.dropout(x, self.share, self.training))


@dataclass(frozen=True)
class WithDropout:
    """The network, with dropout before every linear layer but one that sees the records themselves."""

    build: Build
    share: float

    def __call__(self) -> nn.Module:
        net = self.build()
        places = list(_later_linears(net))
        if not places:
            raise ValueError(f"{self.build!r} has no linear layer behind another, so there is nothing to drop out")
        for parent, name, linear in places:
            setattr(parent, name, Dropped(linear, self.share))
        return net


def _later_linears(net: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    first = next((m for m in net.modules() if list(m.parameters(recurse=False))), None)
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child is not first:
                yield parent, name, child


def dropout(recipe: Recipe, *, share: float = 0.5) -> Recipe:
    """The same training with this share of the hidden units left out of each step. Answers come from all units."""
    check.fraction("share", share)
    return replace(recipe, build=WithDropout(recipe.build, share))
