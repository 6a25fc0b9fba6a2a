"""The missing record of a convex model, in closed form: what the known records' gradients leave over.

Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022, section III (generalised linear models,
theorem 1: the released optimum is stationary, so the unknown record's gradient is minus the sum of all others).
With answers softmax(W x + b), or W x + b of a squared loss, a record's gradient is of rank one,

    dl/dW = r x',    dl/db = r,    r = answer - label,                                                               (1)

so x is read off as the quotient, and the label as answer - r.
Differs from the paper: any number of classes at once, and a certificate: how far the gap is from rank one, and how far
answer - r is from a label. A model that is not stationary is refused, for its gap is not a record's gradient: there is a
penalty that was not told, or training stopped early. A squared loss with one output has no certificate: any weights are
stationary for some record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import expit, softmax
from torch import nn

from engram import check
from engram.access import Informed, Unsuited
from engram.seed import Seed
from engram.train.loop import started
from engram.train.losses import CrossEntropy
from engram.types import Array, Floats, Recovered, Track, quiet

STATIONARY = 1e-3  # of a record's gradient, that may be left beside its rank-one part
Link = Literal["softmax", "sigmoid", "identity"]


@dataclass(frozen=True)
class Stationarity:
    """Every training record but one is known, and the model is convex: that one is read off the optimum. No search."""

    asks: ClassVar = Informed
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Balle, Cherubin, Hayes 2022"

    def __call__(self, target: Informed, *, seed: Seed, track: Track = quiet) -> Recovered:  # noqa: ARG002  draws nothing
        shape, optima = target.fixed.x.shape[1:], released(target)
        found = [missing(optimum) for optimum in track(optima, "reading optima")]
        left = np.array([each.certificate for each in found])
        x = np.stack([each.x for each in found]).reshape(len(found), *shape)
        return Recovered("record", x, -left, left, "closed form", np.array([int(each.y) for each in found]))


def released(target: Informed) -> list[Optimum]:
    """Each released model as the optimum that it would be of one linear layer under cross-entropy and L2."""
    recipe, fixed = target.recipe, target.fixed
    layers = [
        (name, m)
        for name, m in started(recipe, Seed(0)).named_modules()
        if next(m.parameters(recurse=False), None) is not None
    ]
    if len(layers) != 1 or not isinstance(layers[0][1], nn.Linear) or layers[0][1].bias is None:
        raise Unsuited(f"it reads one linear layer with a bias, and the network has {', '.join(n for n, _ in layers)}")
    if recipe.loss != CrossEntropy() or getattr(recipe.optimiser, "decoupled", False):
        raise Unsuited("it reads optima of cross-entropy with a penalty in the loss, and this recipe has another loss")
    where, weights = layers[0][0], target.release.weights
    penalty = getattr(recipe.optimiser, "weight_decay", 0.0) * (len(fixed) + 1)  # of the sum over records, not the mean
    x = fixed.x.reshape(len(fixed), -1).astype(float)
    return [
        Optimum(np.asarray(w, float), np.asarray(b, float), x, fixed.y.astype(float), penalty, penalty)
        for w, b in zip(weights[f"{where}.weight"], weights[f"{where}.bias"], strict=True)
    ]


ANSWERS: dict[str, Callable[[Floats], Floats]] = {
    "softmax": lambda scores: softmax(scores, axis=-1),
    "sigmoid": expit,
    "identity": lambda scores: scores,
}


@dataclass(frozen=True, eq=False)
class Optimum:
    """The released minimum of  sum of losses + penalty / 2 |W|^2, with the records of it that are known.

    `softmax` and `sigmoid` (one row of weights, two classes) are logistic regression, whose labels are whole numbers;
    `identity` is the squared loss / 2 (linear, ridge), whose labels are numbers, [record] or [record, output].
    """

    weights: Floats  # [class, number]
    intercept: Floats  # [class]
    x: Floats  # [record, number] the known records
    y: Array  # [record] labels, or [record, output]
    penalty: float = 0.0
    intercept_penalty: float = 0.0
    link: Link = "softmax"

    def __post_init__(self) -> None:
        check.known("link", self.link, ANSWERS)
        for name in ("penalty", "intercept_penalty"):
            check.at_least(name, getattr(self, name), 0.0)
        check.same_length(records=self.x, labels=self.y)
        if self.weights.shape != (len(self.intercept), self.x.shape[1]):
            raise ValueError(
                f"weights must be [class, number] = {(len(self.intercept), self.x.shape[1])}, got {self.weights.shape}"
            )

    def answer(self, x: Floats) -> Floats:
        """[record, class]"""
        told: Floats = ANSWERS[self.link](x @ self.weights.T + self.intercept)
        return told

    def wanted(self, y: Array) -> Floats:
        """Labels as the answers that would have no loss, [record, class]."""
        if self.link == "softmax":
            sure: Floats = np.eye(len(self.intercept))[y.astype(int)]
            return sure
        return y.reshape(len(y), -1).astype(float)


@dataclass(frozen=True, eq=False)
class Missing:
    """The record, its label (a class, or the outputs of a squared loss), and what contradicts them, relative to the gap."""

    x: Floats  # [number]
    y: Floats  # a class, [], or [output]
    certificate: float


def missing(optimum: Optimum) -> Missing:
    """The record that is not among the known ones. Exact to rounding at an exact optimum."""
    gap_weights, r = gap(optimum)
    x = gap_weights.T @ r / (r @ r)  # (1), by least squares over classes
    beside = float(np.linalg.norm(gap_weights - np.outer(r, x)) / np.linalg.norm(gap_weights))
    _refuse(beside, "the gap that the known records leave is not the gradient of one record: beside it there is")
    label = optimum.answer(x[None])[0] - r
    if optimum.link == "identity":
        return Missing(x, label, beside if len(r) > 1 else np.nan)
    shares = label if optimum.link == "softmax" else np.array([1 - label[0], label[0]])
    named = int(np.argmax(shares))
    off = float(np.abs(shares - np.eye(len(shares))[named]).max())
    _refuse(off, "what would be the record's label is no class: it is off by")
    return Missing(x, np.asarray(named), max(beside, off))


def gap(optimum: Optimum) -> tuple[Floats, Floats]:
    """The gradient that is missing for the optimum to be stationary, by weights and by intercept."""
    r = optimum.answer(optimum.x) - optimum.wanted(optimum.y)  # [record, class]
    by_weights = r.T @ optimum.x + optimum.penalty * optimum.weights
    by_intercept = r.sum(0) + optimum.intercept_penalty * optimum.intercept
    size = np.abs(r).sum() * np.finfo(float).eps
    if np.linalg.norm(by_intercept) <= 10 * size:
        raise Unsuited(
            f"the known records leave no gap ({np.linalg.norm(by_intercept):.1e}): the missing record fits perfectly, or "
            "there is none"
        )
    return -by_weights, -by_intercept


def _refuse(off: float, what: str) -> None:
    if not off <= STATIONARY:
        raise Unsuited(
            f"{what} {off:.1e} of its size, where {STATIONARY:.0e} may be; train to the optimum, and say its penalty"
        )
