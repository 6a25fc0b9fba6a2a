"""Attacks that learn from shadows what an answer to a member looks like.

Shokri, Stronati, Song, Shmatikov: Membership Inference Attacks against Machine Learning Models, 2017 (the idea).
Salem, Zhang, Humbert, Berrang, Fritz, Backes: ML-Leaks, 2019, section III (the three largest probabilities).
Shang et al.: WeMem, NDSS 2025, and its released code (networks and training of `Learned` and `SAMIA`).
Yuan, Zhang: Membership Inference Attacks and Defenses in Neural Network Pruning, 2022 (SAMIA).
Differs from the papers: shadows come in pairs, so six instead of five, and every record is a member of half of them; they
are trained on the candidates and what else the adversary holds. The directions of SAMIA's noise are drawn once and are the
same for all records and models, so no score depends on the order or the blocks in which records are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from engram import check
from engram.access import Probabilities, Unknown
from engram.data import dataset
from engram.data.files import installed
from engram.models.opponents import AnswerNet, TokenNet
from engram.population import Population
from engram.seed import Seed
from engram.signals import View, as_is, log_posterior
from engram.train import SGD, Batches, Drops, Recipe, fit
from engram.train.stack import Device
from engram.types import Array, Bools, Floats, Ints, Scores, Track, quiet

BATCH = 128
FINE = np.finfo(np.float32)


@dataclass(frozen=True)
class Learned:
    """A network on the answer: on all of it, on its three largest numbers, or on all of it and the label.

    One variant for each way of seeing; known elsewhere as NN, Top3-NN and Cl-NN.
    """

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Shokri et al. 2017"
    shadows: int = 6
    sees: Sequence[str] = ("posterior", "top 3", "posterior and label")
    epochs: int = 100
    rate: float = 1e-3

    def __post_init__(self) -> None:
        for name in self.sees:
            check.known("way of seeing an answer", name, SEEN)
        _trainable(self.shadows, self.epochs, self.rate)

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> list[Scores]:
        shadow = target.population(self.shadows, signals=(log_posterior,), track=track)
        mine, told = target.signal(log_posterior)[0], shadow.of(log_posterior)[:, 0]  # [record, class], [model, ...]
        return [self._seen(name, mine, told, shadow.member, target, seed.child(name)) for name in self.sees]

    def _seen(self, name: str, mine: Floats, told: Floats, member: Bools, target: Probabilities, seed: Seed) -> Scores:
        look, y = SEEN[name], target.records.y
        rows = look(told, y)  # [model, record, feature]
        recipe = _recipe(AnswerNet(rows.shape[-1]), self.epochs, self.rate)
        odds = learned(recipe, rows, member, seed, target.device)(look(mine, y))
        return Scores(odds, target.ids, claims=odds > 0, variant=name)


@dataclass(frozen=True)
class SAMIA:
    """A transformer on the answer, on how much it moves when the record is nudged, and on the label."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Yuan, Zhang 2022"
    shadows: int = 6
    nudges: int = 10
    size: float = 1e-3
    epochs: int = 100
    rate: float = 1e-3

    def __post_init__(self) -> None:
        check.whole("nudges", self.nudges, 1)
        check.positive("size", self.size)
        _trainable(self.shadows, self.epochs, self.rate)

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> Scores:
        if target.records.x.dtype.kind != "f":
            raise Unknown(
                f"samia nudges records, and these are not real numbers but {target.records.x.dtype}; use learned"
            )
        seen: list[View] = [as_is, *(Nudged(seed.child("nudge", k), self.size) for k in range(self.nudges))]
        shadow = target.population(self.shadows, views=seen, signals=(log_posterior,), track=track)
        rows = self.features(shadow.of(log_posterior).swapaxes(0, 1), target.records.y)  # [model, record, 3, class]
        mine = self.features(target.signal(log_posterior, seen), target.records.y)  # [record, 3, class]
        recipe = _recipe(TokenNet(rows.shape[-1]), self.epochs, self.rate)
        odds = learned(recipe, rows, shadow.member, seed.child("net"), target.device)(mine)
        return Scores(odds, target.ids, claims=odds > 0, variant=f"{self.nudges} nudges of {self.size:g}")

    def features(self, told: Floats, y: Ints) -> Floats:
        """Answer, sensitivity and label: [view, ..., record, class] -> [..., record, 3, class]"""
        p = np.exp(told.astype(np.float64))
        return np.stack([p[0], sensitivity(p, self.size), _one_hot(p[0], y)], -2)


@dataclass(frozen=True)
class Trees:
    """Gradient-boosted trees on the sorted answer and what it says of the label. Learns in seconds, without tuning."""

    asks: ClassVar = Probabilities
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Shokri et al. 2017"
    shadows: int = 16
    rounds: int = 100
    rate: float = 0.1

    def __post_init__(self) -> None:
        _trainable(self.shadows, self.rounds, self.rate, "rounds")

    def __call__(self, target: Probabilities, *, seed: Seed, track: Track = quiet) -> Scores:
        shadow = target.population(self.shadows, signals=(log_posterior,), track=track)
        odds = self.scored(target.signal(log_posterior), shadow, target.records.y, seed)
        return Scores(odds, target.ids, claims=odds > 0, variant=f"{self.rounds} trees")

    def scored(self, mine: Floats, shadow: Population, y: Ints, seed: Seed) -> Floats:
        """[view, record, class] -> [record]"""
        ensemble = installed("sklearn.ensemble", "gradient-boosted trees")
        trees = ensemble.HistGradientBoostingClassifier(
            max_iter=self.rounds, learning_rate=self.rate, early_stopping=False, random_state=seed.number % 2**32
        )
        rows, member = in_order(described(shadow.of(log_posterior)[:, 0], y), shadow.member)
        return np.asarray(trees.fit(rows, member).decision_function(described(mine[0], y)), float)


def posterior(told: Floats, y: Ints) -> Floats:  # noqa: ARG001  every way of seeing is called alike
    return np.exp(told)


def top_three(told: Floats, y: Ints) -> Floats:  # noqa: ARG001
    """The largest probabilities, largest first."""
    return np.exp(-np.sort(-told, -1)[..., :3])


def posterior_and_label(told: Floats, y: Ints) -> Floats:
    return np.concatenate([np.exp(told), _one_hot(told, y)], -1)


SEEN: dict[str, Callable[[Floats, Ints], Floats]] = {
    "posterior": posterior,
    "top 3": top_three,
    "posterior and label": posterior_and_label,
}


def described(told: Floats, y: Ints) -> Floats:
    """[..., record, class] -> [..., record, feature]: sorted logarithms, that of the label, and its margin."""
    told = told.astype(np.float64)
    chosen = _one_hot(told, y).astype(bool)
    own = told[chosen].reshape(*told.shape[:-1], 1)
    others = logsumexp(np.where(chosen, FINE.min, told), axis=-1, keepdims=True)
    return np.concatenate([-np.sort(-told, -1), own, own - others], -1)


def sensitivity(p: Floats, size: float) -> Floats:
    """How far the answer moves for each unit of noise: p[view, ...], the record as it is first."""
    return np.asarray(np.abs(p[1:] - p[0]).mean(0) / size)


@dataclass(frozen=True)
class Nudged:
    """The record with noise of this size in one random direction, the same for all records."""

    seed: Seed
    size: float

    def __call__(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            raise TypeError(
                f"samia adds noise to records, which must be real numbers, got {x.dtype}; use learned instead"
            )
        direction = self.seed.numpy().standard_normal(tuple(x.shape[1:])).astype(np.float32)
        return x + self.size * torch.as_tensor(direction, device=x.device)


def learned(
    recipe: Recipe, rows: Floats, member: Bools, seed: Seed, device: Device = "cpu"
) -> Callable[[Floats], Floats]:
    """Log-odds of a member as a function of features: rows[model, record, ...] and member[model, record] are what it saw."""
    known, truth = in_order(rows.reshape(*member.shape, -1), member)
    known = known.reshape(-1, *rows.shape[2:])
    whole = len(known) - (len(known) % BATCH == 1)  # batch normalisation cannot learn from a batch of one
    net = fit(recipe, dataset(known[:whole], truth[:whole], classes=("out", "in")), seed=seed, device=device).double()

    def odds(features: Floats) -> Floats:
        with torch.no_grad():
            parts = torch.split(torch.as_tensor(features, dtype=torch.float64, device=device), 4096)
            told = torch.cat([net(part) for part in parts]).cpu().numpy()
        return np.asarray(told[:, 1] - told[:, 0])

    return odds


def in_order(rows: Floats, member: Bools) -> tuple[Floats, Ints]:
    """All rows of all models in an order of their own, so that what is learned does not depend on that of the records."""
    flat, truth = rows.reshape(-1, rows.shape[-1]), member.ravel().astype(np.int64)
    order = np.lexsort([truth, *flat.T])
    return flat[order], truth[order]


def _recipe(build: Any, epochs: int, rate: float) -> Recipe:
    """As in WeMem: momentum 0.9, weight decay 5e-4, a tenth of the rate after half and after three quarters."""
    optimiser = SGD(rate, momentum=0.9, weight_decay=5e-4, schedule=Drops())
    return Recipe(build, epochs, optimiser, Batches(BATCH))


def _one_hot(like: Array, y: Ints) -> Floats:
    """[..., record, class], 1 at the label"""
    return np.broadcast_to(np.eye(like.shape[-1])[y], like.shape)


def _trainable(shadows: int, epochs: int, rate: float, named: str = "epochs") -> None:
    check.whole("shadows", shadows, 2)
    check.whole(named, epochs, 1)
    check.positive("rate", rate)
