"""Loss against a threshold of each record's own: what models say of it that never saw it.

Sablayrolles, Douze, Ollivier, Schmid, Jegou: White-box vs Black-box: Bayes Optimal Strategies for Membership Inference,
2019. Section 4: the optimal score is (tau(x) - loss) / T with tau(x) = -T log E[exp(-loss / T)], the mean over models
trained without x. It depends on the model through its loss alone, so probabilities are all that it needs.
Watson, Guo, Cormode, Sablayrolles: On the Importance of Difficulty Calibration, 2022 (the mean loss, T infinite).
Differs from the paper: the mean is taken over shadows without the record, also that of the expansion; the temperature is a
knob, and the constant factor 1 / T is left out, as it changes no rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from engram import check
from engram.access import Probabilities, Unknown, Weights
from engram.measure.thresholds import best
from engram.population import Population, stood_in
from engram.seed import Seed
from engram.signals import loss
from engram.train import Given, Recipe
from engram.types import Bools, Floats, Scores, Track, quiet


@dataclass(frozen=True)
class CalibratedLoss:
    """How far the loss lies below what models without the record would say. `temperature` inf compares with their mean."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Sablayrolles et al. 2019"
    shadows: int = 64
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check.whole("shadows", self.shadows, 4)  # a stand-in leaves at least one without each record
        if self.temperature != math.inf:
            check.positive("temperature", self.temperature)

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        shadow = target.population(self.shadows, track=track)
        scores = self.scored(target.signal(loss), shadow)  # [record]
        claims = scores > stood_in(shadow, self.scored, loss)
        return Scores(scores, target.ids, claims, f"temperature {self.temperature:g}")

    def scored(self, phi: Floats, shadow: Population) -> Floats:
        """[view, record] -> [record]"""
        return np.asarray(threshold(shadow.of(loss)[:, 0], ~shadow.member, self.temperature) - phi[0])


@dataclass(frozen=True)
class CalibratedTaylor:
    """The same, of holders of the weights: how far training moved down the slope of the record's loss.

    For models that stay close together: fine-tuned from weights that the adversary knows, or of one layer.
    """

    asks: ClassVar = Weights
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Sablayrolles et al. 2019"
    shadows: int = 16
    stand_ins: int = 4  # shadows that play the target, to set the threshold

    def __post_init__(self) -> None:
        check.whole("shadows", self.shadows, 4)  # a stand-in leaves at least one without each record
        check.whole("stand_ins", self.stand_ins, 1)

    def __call__(self, target: Weights, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        module = target.module()
        _close_together(target.knowledge.recipe, module)
        played = target.rehearsals(self.shadows, track=track)
        member, shadows = np.stack([s.member for s in played]), [s.module for s in played]
        x, y = target.numbers(), torch.as_tensor(target.records.y, device=target.device)
        told = [
            np.stack([fall(shadow, w, x, y) for shadow in shadows])  # [shadow, record]
            for w in track([module, *shadows[: self.stand_ins]], "expanding about shadows", 1 + self.stand_ins)
        ]
        scores = mean_without(told[0], member)
        stood = [mean_without(np.delete(t, m, 0), np.delete(member, m, 0)) for m, t in enumerate(told[1:])]
        claims = scores > best(np.stack(stood), member[: self.stand_ins])
        return Scores(scores, target.ids, claims, f"expanded about {self.shadows} shadows")


def fall(about: nn.Module, to: nn.Module, x: Tensor, y: Tensor) -> Floats:
    """-(w - v) . grad loss(v, x): by how much the loss falls from `about` to `to`, to first order; [record]"""
    at = {name: v.detach().requires_grad_() for name, v in about.named_parameters()}
    step = [w.detach() - at[name].detach() for name, w in to.named_parameters()]
    weight = torch.ones(
        len(x), device=x.device, dtype=x.dtype, requires_grad=True
    )  # of each record in the sum of the losses
    losses = functional.cross_entropy(functional_call(about, at, (x,)), y, reduction="none")
    slopes = torch.autograd.grad(losses @ weight, list(at.values()), create_graph=True)
    along = torch.stack([(g * s).sum() for g, s in zip(slopes, step, strict=True)]).sum()
    (each,) = torch.autograd.grad(along, weight)
    return np.asarray(-each.cpu().numpy(), float)


def mean_without(told: Floats, member: Bools) -> Floats:
    """Of each record, the mean over the shadows that never saw it; told and member are [shadow, record]."""
    return np.asarray(np.where(member, 0, told).sum(0) / (~member).sum(0))


def _close_together(recipe: Recipe | None, module: nn.Module) -> None:
    layers = [m for m in module.modules() if any(True for _ in m.parameters(recurse=False))]
    if recipe is not None and not isinstance(recipe.start, Given) and len(layers) > 1:
        raise Unknown(
            "the expansion compares models that stay close together, and this recipe draws the start of each anew; "
            "give it start=Given(weights), as in fine-tuning, or use calibrated-loss"
        )


def threshold(told: Floats, without: Bools, temperature: float) -> Floats:
    """tau(x), from losses told[model, record] of the models without the record; [record]"""
    count = without.sum(0)
    if temperature == math.inf:
        return np.asarray(np.where(without, told, 0).sum(0) / count)
    soft = logsumexp(np.where(without, -told / temperature, -np.inf), axis=0)
    return np.asarray(-temperature * (soft - np.log(count)))
