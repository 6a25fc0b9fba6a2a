"""Answers changed until they say nothing about membership, each with its label kept.

Jia, Salem, Backes, Zhang, Gong: MemGuard: Defending against Black-Box Membership Inference Attacks via Adversarial
Examples, 2019. Section 5: algorithm 1 finds the noise (phase I), equation 19 says how often it is added (phase II).
Choquette-Choo, Tramer, Carlini, Papernot: Label-Only Membership Inference, 2021, section 5 (the idealised defence).
Differs from the papers: the noise of every answer is searched for at once, and c3 ends at 100; whether it is added is drawn
from the answer itself, so that asking again says the same; distortion is bounded for each answer as in phase II.

The defence classifier is the defender's: `defence_classifier` trains it on models of the recipe, and its weights travel in
the recipe. So the adversary's shadows are masked by the same classifier, which is more than it would know in practice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from engram import check
from engram.data import Dataset, dataset
from engram.models import load_weights
from engram.models.opponents import AnswerNet
from engram.population import paired
from engram.seed import Seed
from engram.signals import FLOOR, released
from engram.train import Adam, Batches, Recipe, fit, fit_many

Odds = Callable[[Tensor], Tensor]  # logits [answer, class] -> log-odds of a member
WIDTHS = (256, 128, 64)
KEPT, CLOSE = 10.0, (0.1, 1.0, 10.0, 100.0)  # c2, and the values of c3 that are tried in turn
STEP = 0.1  # length of each move of the logits, beta in the paper


@dataclass(frozen=True)
class Level:
    """The label, and `margin` more for it than for a class picked at random; all other classes alike."""

    margin: float

    def __call__(self, p: Tensor) -> Tensor:
        classes = p.shape[-1]
        told = torch.full_like(p, 1 / classes - self.margin / (classes - 1))
        return told.scatter(-1, p.argmax(-1, keepdim=True), 1 / classes + self.margin)


def memguard(recipe: Recipe, *, margin: float = 0.001) -> Recipe:
    """The same training; an answer tells its label and nothing else. MemGuard at its best, whatever the distortion."""
    check.fraction("margin", margin)
    return replace(recipe, after=(*recipe.after, Level(margin)))


@dataclass(frozen=True, eq=False)
class Guarded:
    """The answer, moved to where the classifier cannot tell; never further than `distortion` in expectation, in L1."""

    weights: Mapping[str, Tensor]
    distortion: float
    steps: int

    def __call__(self, p: Tensor) -> Tensor:
        flat = p.reshape(-1, p.shape[-1])
        return torch.cat([self._masked(part) for part in torch.split(flat, 4096)]).view_as(p)

    def _masked(self, p: Tensor) -> Tensor:
        classifier = Classifier(self.weights, p)
        found = moved(p, classifier, self.steps)
        how_often = chance(p, found, classifier, self.distortion)  # [answer]
        return torch.where((drawn(p) < how_often)[:, None], found, p)


class Classifier:
    """Log-odds of a member, as a function of logits: the h of the paper."""

    def __init__(self, weights: Mapping[str, Tensor], like: Tensor) -> None:
        self.net = AnswerNet(like.shape[-1], WIDTHS, 0.0)().to(like)
        self.weights = {name: w.to(like) for name, w in weights.items()}

    def __call__(self, logits: Tensor) -> Tensor:
        out: Tensor = functional_call(self.net, self.weights, (logits.softmax(-1),))
        return out[:, 1] - out[:, 0]


def moved(p: Tensor, classifier: Odds, steps: int) -> Tensor:
    """Phase I: answers with the same label across the classifier's border, as near as c3 can press them; [answer, class]"""
    z = p.clamp_min(FLOOR).log()
    best, going = torch.zeros_like(z), torch.arange(len(z), device=z.device)
    for closeness in CLOSE:
        e, reached = _searched(z[going], classifier, closeness, steps)
        going, e = going[reached], e[reached]
        best[going] = e
        if not len(going):
            break
    return (z + best).softmax(-1).where(best.any(-1, keepdim=True), p)


def _searched(z: Tensor, classifier: Odds, closeness: float, steps: int) -> tuple[Tensor, Tensor]:
    """One run of algorithm 1's inner loop; the noise, and where it does what it should."""
    label, e = z.argmax(-1, keepdim=True), torch.zeros_like(z)
    with torch.no_grad():
        side = classifier(z)
    reached = torch.zeros(len(z), dtype=torch.bool, device=z.device)
    for _ in range(steps):
        left = (~reached).nonzero()[:, 0]
        if not len(left):
            break
        move = _downhill(z[left], e[left], label[left], classifier, closeness)
        e[left] = e[left] - STEP * move
        with torch.no_grad():
            there = z[left] + e[left]
            kept = there.argmax(-1, keepdim=True) == label[left]
            reached[left] = kept[:, 0] & (classifier(there) * side[left] <= 0)
    return e, reached


def _downhill(z: Tensor, e: Tensor, label: Tensor, classifier: Odds, closeness: float) -> Tensor:
    with torch.enable_grad():
        e = e.detach().requires_grad_()
        there = z + e
        tells = classifier(there).abs()  # L1
        others = there.scatter(-1, label, -torch.inf).amax(-1)
        lost = functional.relu(others - there.gather(-1, label)[:, 0])  # L2
        far = (there.softmax(-1) - z.softmax(-1)).abs().sum(-1)  # L3
        (slope,) = torch.autograd.grad((tells + KEPT * lost + closeness * far).sum(), e)
    direction: Tensor = slope / slope.norm(dim=-1, keepdim=True).clamp_min(FLOOR)
    return direction


def chance(p: Tensor, found: Tensor, classifier: Odds, distortion: float) -> Tensor:
    """Phase II, equation 19: how often the noise is added, [answer]."""
    with torch.no_grad():
        before, after = ((classifier(a.clamp_min(FLOOR).log()).sigmoid() - 0.5).abs() for a in (p, found))
    far = (found - p).abs().sum(-1)
    often: Tensor = (distortion / far.clamp_min(FLOOR)).clamp(max=1.0).masked_fill(before <= after, 0.0)
    return often


def drawn(p: Tensor) -> Tensor:
    """A number in [0, 1) for each answer that looks random and is always the same."""
    angles = torch.arange(1, p.shape[-1] + 1, device=p.device, dtype=p.dtype).sqrt()
    number: Tensor = (p * angles).sum(-1).mul(1e6).sin().mul(1e4).remainder(1.0)
    return number


def defence_classifier(recipe: Recipe, data: Dataset, *, seed: Seed, epochs: int = 60) -> dict[str, Tensor]:
    """Weights of a network that tells members from others by the answers of two models of `recipe`.

    Each model is trained on one half of `data`. Keep them with torch.save, and give the file to `memguard-optimised`.
    """
    member = paired(2, len(data), seed)
    rows = [np.flatnonzero(line)[None] for line in member]
    models = [fit_many(recipe, data, own, [seed.child("model", m)], stacked=False) for m, own in enumerate(rows)]
    with torch.no_grad():
        p = torch.cat([released(m(torch.as_tensor(data.x), shared=True)[0], recipe.after) for m in models]).numpy()
    seen = dataset(p.astype(np.float32), member.ravel().astype(np.int64), classes=("out", "in"))
    learner = Recipe(AnswerNet(p.shape[-1], WIDTHS, 0.0), epochs, Adam(1e-3), Batches(64))
    return {name: w.detach() for name, w in fit(learner, seen, seed=seed.child("classifier")).state_dict().items()}


def memguard_optimised(recipe: Recipe, *, classifier: str = "", distortion: float = 1.0, steps: int = 300) -> Recipe:
    """The same training; each answer is moved, label kept, to where a defence classifier cannot tell members."""
    check.positive("distortion", distortion)
    check.whole("steps", steps, 1)
    if not classifier:
        raise ValueError(
            "memguard-optimised needs a file of a defence classifier's weights, got none; make one with torch.save("
            "engram.defences.memguard.defence_classifier(recipe, data, seed=seed), path)"
        )
    return replace(recipe, after=(*recipe.after, Guarded(load_weights(classifier), distortion, steps)))
