"""The confidence that is left under an adversarial perturbation: members lie where the model was made sure, and stay so.

Song, Shokri, Mittal: Privacy Risks of Securing Machine Learning Models against Adversarial Examples, 2019: member iff the
true label keeps at least tau at x', with one threshold for all or one for each class. Projected gradient descent finds x' in
a ball about x, in the largest number of the difference (Madry, Makelov, Schmidt, Tsipras, Vladu 2018).
Finding x' takes gradients, hence the weights: a white-box attack. Strongest on models that were trained against such x'.
Differs from the paper: the ball is in units of the range of the records, so that one radius serves tables and images; the
descent starts at the record itself, and thresholds are set on several shadows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from engram import check
from engram.access import Weights
from engram.hopskipjump import box
from engram.measure.thresholds import best, best_by_group
from engram.seed import Seed
from engram.types import Floats, Scores, Track, quiet

STRIDE = 2.5  # all steps together, in radii: enough to cross the ball and turn
AT_ONCE = {"cpu": 512, "cuda": 2**15}


@dataclass(frozen=True)
class AdversarialConfidence:
    """The confidence in the true label where it is least, close to the record. Holds the weights."""

    asks: ClassVar = Weights
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Song et al. 2019"
    radius: float = 8 / 255  # of the range of a pixel or column
    steps: int = 10
    shadows: int = 16

    def __post_init__(self) -> None:
        check.positive("radius", self.radius)
        check.whole("steps", self.steps, 1)
        check.whole("shadows", self.shadows, 2)

    def __call__(self, target: Weights, *, seed: Seed, track: Track = quiet) -> list[Scores]:  # noqa: ARG002
        y, k = target.records.y, len(target.records.classes)
        phi = self.least(target)  # [record]
        told, member = target.played(self.shadows, self.least, "adversarial-confidence", self, track=track)
        everywhere, by_class = best(told, member), best_by_group(told, member, y, k)[y]
        about = f"within {self.radius:.3g} of the range"
        return [
            Scores(phi, target.ids, phi > everywhere, f"{about}, one threshold"),
            Scores(phi - by_class, target.ids, phi > by_class, f"{about}, per class"),
        ]

    def least(self, handle: Weights) -> Floats:
        """log odds of the true label at x', [record]; larger = more sure"""
        x, module = handle.numbers(), handle.module()
        y = torch.as_tensor(handle.records.y, device=handle.device)
        low, high = box(x)
        parts = zip(torch.split(x, AT_ONCE[x.device.type]), torch.split(y, AT_ONCE[x.device.type]), strict=True)
        found = [surety(module(worst(module, a, b, self.radius, self.steps, low, high)), b) for a, b in parts]
        return np.asarray(torch.cat(found).detach().cpu().numpy(), float)


def worst(module: nn.Module, x: Tensor, y: Tensor, radius: float, steps: int, low: Tensor, high: Tensor) -> Tensor:
    """x' = clip(x' + stride sign grad loss) within `radius` of the range about x, the last of so many; [record, ...]"""
    far = radius * (high - low)
    bottom, top = torch.maximum(x - far, low), torch.minimum(x + far, high)
    at = x.clone()
    for _ in range(steps):
        here = at.detach().requires_grad_()
        cost = functional.cross_entropy(module(here), y, reduction="sum")
        (slope,) = torch.autograd.grad(cost, here)
        at = torch.minimum(torch.maximum(at + STRIDE / steps * far * slope.sign(), bottom), top)
    return at


def surety(logits: Tensor, y: Tensor) -> Tensor:
    """log p_y - log of all other probabilities together: ranks like p_y, without its rounding to 1."""
    logits = logits.double()
    own = logits.gather(1, y[:, None])[:, 0]
    odds: Tensor = own - logits.scatter(1, y[:, None], -torch.inf).logsumexp(1)
    return odds
