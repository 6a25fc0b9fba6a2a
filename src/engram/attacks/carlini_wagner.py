"""The distance to the decision boundary with the weights in hand: what no label-only attack can be expected to beat by much.

Carlini, Wagner: Towards Evaluating the Robustness of Neural Networks, 2017. Section VI-A (L2), sections V-B and V-D.
Choquette-Choo, Tramer, Carlini, Papernot 2021 take it as the white-box bound of the boundary attack.
Differs from the paper: untargeted; all records at once; no restarts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from engram import check
from engram.access import Weights
from engram.hopskipjump import box
from engram.measure.thresholds import best
from engram.seed import Seed
from engram.types import Floats, Scores, Track, quiet

SHY = 1 - 1e-5  # a record on the edge of its range has no finite change of variable
AT_ONCE = {"cpu": 512, "cuda": 2**15}


@dataclass(frozen=True)
class CarliniWagner:
    """The distance to the boundary by gradients, 0 for what is answered wrongly. The white-box bound of `boundary`."""

    asks: ClassVar = Weights
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Carlini, Wagner 2017"
    steps: int = 200
    searches: int = 6  # of the weight of the answer against the distance
    rate: float = 0.02
    shadows: int = 2

    def __post_init__(self) -> None:
        check.whole("steps", self.steps, 1)
        check.whole("searches", self.searches, 1)
        check.positive("rate", self.rate)
        check.whole("shadows", self.shadows, 2)

    def __call__(self, target: Weights, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        phi = self.distances(target)
        told, member = target.played(self.shadows, self.distances, "carlini-wagner", self, track=track)
        claims = phi > best(told, member)
        return Scores(phi, target.ids, claims, f"{self.searches} x {self.steps} steps")

    def distances(self, handle: Weights) -> Floats:
        x = handle.numbers()
        y = torch.as_tensor(handle.records.y, device=handle.device)
        low, high = box(x)
        wrong = torch.as_tensor(handle.labels(x), device=x.device) != y
        module = handle.module()
        parts = zip(torch.split(x, AT_ONCE[x.device.type]), torch.split(y, AT_ONCE[x.device.type]), strict=True)
        found = torch.cat([self._searched(module, a, b, low, high) for a, b in parts])
        return np.asarray(torch.where(wrong, 0.0, found).cpu().numpy(), float)

    def _searched(self, module: nn.Module, x: Tensor, y: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The least distance over a bisection of c, its logarithm between 1e-3 and 1e5; the range's width if none."""
        near: Tensor = (high - low).expand(x.shape[1:]).norm().expand(len(x)).clone()
        bottom, top = torch.full_like(near, 1e-3), torch.full_like(near, 1e5)
        for _ in range(self.searches):
            c = (bottom * top).sqrt()
            found, fooled = self._descended(module, x, y, c, low, high)
            near = torch.minimum(near, found)
            top, bottom = torch.where(fooled, c, top), torch.where(fooled, bottom, c)
        return near

    def _descended(
        self, module: nn.Module, x: Tensor, y: Tensor, c: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Down |x' - x|^2 + c f(x') in w, x' = low + (high - low) (tanh w + 1) / 2: the nearest fooling x', if any."""
        wide = torch.where(high > low, high - low, 1.0)
        w = torch.atanh((2 * (x - low) / wide - 1).clamp(-1, 1) * SHY).requires_grad_()
        start = low + (high - low) * (torch.tanh(w.detach()) + 1) / 2
        optimiser = torch.optim.Adam([w], self.rate)
        near, fooled = torch.full_like(c, torch.inf), torch.zeros_like(c, dtype=torch.bool)
        for _ in range(self.steps):
            there = low + (high - low) * (torch.tanh(w) + 1) / 2
            far = (there - start).flatten(1).square().sum(1)
            lead = _lead(module(there), y)
            with torch.no_grad():
                over = lead < 0
                near = torch.where(over, torch.minimum(near, (there - x).flatten(1).norm(dim=1)), near)
                fooled |= over
            (w.grad,) = torch.autograd.grad((far + c * lead.clamp_min(0)).sum(), w)
            optimiser.step()
        return near, fooled


def _lead(logits: Tensor, y: Tensor) -> Tensor:
    """Z_y - max over the others of Z, the f of the paper (with kappa 0); negative where the answer is another."""
    own = logits.gather(1, y[:, None])[:, 0]
    lead: Tensor = own - logits.scatter(1, y[:, None], -torch.inf).amax(1)
    return lead
