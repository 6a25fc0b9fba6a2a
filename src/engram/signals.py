"""What a released model says about a record: pure functions of its answered probabilities.

Every signal takes `p` [..., record, class] (float64, what the model answers) and `labels` [record], and returns one number
a record, [..., record]; `log_posterior` alone returns one a class. Each name says which way it points. Answers are
float64 because float32 rounds a confident loss to an exact zero, and ranks among zeros say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engram import check
from engram.types import Array

Signal = Callable[[Tensor, Tensor], Tensor]
View = Callable[[Tensor], Tensor]  # records -> records, such as a flip

FLOOR = torch.finfo(torch.float64).tiny  # softmax answers an exact zero only below this
TAYLOR_ORDER, TAYLOR_MARGIN, TAYLOR_TEMPERATURE = 4, 0.6, 2.0  # Zarifzadeh, Liu, Shokri 2024, for CIFAR-10


def as_is(x: Tensor) -> Tensor:
    return x


def flipped(x: Tensor) -> Tensor:
    """Left and right exchanged."""
    return x.flip(-1)


def shifted_up(x: Tensor) -> Tensor:
    return x.roll(-1, -2)


def shifted_down(x: Tensor) -> Tensor:
    return x.roll(1, -2)


def shifted_left(x: Tensor) -> Tensor:
    return x.roll(-1, -1)


def shifted_right(x: Tensor) -> Tensor:
    return x.roll(1, -1)


VIEWS: dict[str, View] = {
    "as is": as_is,
    "flip": flipped,
    "up": shifted_up,
    "down": shifted_down,
    "left": shifted_left,
    "right": shifted_right,
}


def views(names: Sequence[str], records: Array) -> tuple[View, ...]:
    """The named ways to look at a record; all but "as is" need images, [record, channel, row, column]."""
    for name in names:
        check.known("view", name, VIEWS)
    if records.ndim != 4 and set(names) != {"as is"}:
        raise ValueError(f"flips and shifts need images, but a record has shape {records.shape[1:]}; ask only 'as is'")
    return tuple(VIEWS[name] for name in names)


def released(logits: Tensor, after: Sequence[Callable[[Tensor], Tensor]] = ()) -> Tensor:
    """The probabilities that a model of a recipe with this `after` answers, in float64."""
    p = torch.softmax(logits.double(), -1)
    for change in after:
        p = change(p)
    return p


def confidence(p: Tensor, labels: Tensor) -> Tensor:
    """Probability of the true label; larger = more sure."""
    return p.gather(-1, labels.expand(p.shape[:-1])[..., None])[..., 0]


def loss(p: Tensor, labels: Tensor) -> Tensor:
    """-log p of the true label; smaller = more sure."""
    return -_log(confidence(p, labels))


def doubt(p: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG001  every signal is called alike
    """One less the largest probability, summed from the others so that it keeps its digits; smaller = more sure."""
    return p.scatter(-1, p.argmax(-1, keepdim=True), 0.0).sum(-1)


def margin(p: Tensor, labels: Tensor) -> Tensor:
    """log p_y - log of all other probabilities together; larger = more sure. Nearly Gaussian over trainings."""
    others = p.scatter(-1, labels.expand(p.shape[:-1])[..., None], 0.0).sum(-1)
    return _log(confidence(p, labels)) - _log(others)


def entropy(p: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG001  every signal is called alike
    """-sum p log p; smaller = more sure. Does not look at the label."""
    return -(p * _log(p)).sum(-1)


def modified_entropy(p: Tensor, labels: Tensor) -> Tensor:
    """-(1 - p_y) log p_y - sum over others of p log(1 - p); smaller = surer of the truth (Song, Mittal 2021, eq. 9)."""
    y = labels.expand(p.shape[:-1])[..., None]
    top = p.argmax(-1, keepdim=True)
    beside = p.scatter(-1, top, 0.0).sum(-1, keepdim=True)
    rest = (p.sum(-1, keepdim=True) - p).scatter(-1, top, beside)  # 1 - p_j; of the largest, without cancellation
    return -(rest.gather(-1, y)[..., 0] * _log(confidence(p, labels))) - (p * _log(rest)).scatter(-1, y, 0.0).sum(-1)


def taylor_confidence(p: Tensor, labels: Tensor) -> Tensor:
    """Probability of the true label under a soft-margin Taylor softmax; larger = more sure (Zarifzadeh et al. 2024).

    The softmax keeps logits up to a constant; they are taken with mean zero.
    """
    logs = _log(p)
    logits = (logs - logs.mean(-1, keepdim=True)) / TAYLOR_TEMPERATURE
    y = labels.expand(p.shape[:-1])[..., None]
    own = _taylor(logits.gather(-1, y) - TAYLOR_MARGIN)
    others = _taylor(logits).scatter(-1, y, 0.0).sum(-1, keepdim=True)
    return (own / (own + others))[..., 0]


def correct(p: Tensor, labels: Tensor) -> Tensor:
    """1 where the most probable class is the true one."""
    return (p.argmax(-1) == labels).double()


def log_posterior(p: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG001  every signal is called alike
    """The whole answer as logarithms, [..., record, class]; larger = more probable.

    In float32, which halves what is stored: unlike probabilities, logarithms of a sure answer keep their digits there.
    """
    return _log(p).float()


def shown(p: Tensor) -> Tensor:
    """The label a model answers with, [..., record]; of equal probabilities, the first."""
    return p.argmax(-1)


def _taylor(a: Tensor) -> Tensor:
    """1 + a + a^2/2! + ..., by Horner; positive at even order."""
    total = torch.ones_like(a)
    for k in range(TAYLOR_ORDER, 0, -1):
        total = 1 + total * a / k
    return total


def _log(p: Tensor) -> Tensor:
    return p.clamp_min(FLOOR).log()


STANDARD: dict[str, Signal] = {
    "confidence": confidence,
    "correct": correct,
    "doubt": doubt,
    "entropy": entropy,
    "loss": loss,
    "margin": margin,
    "modified_entropy": modified_entropy,
    "taylor_confidence": taylor_confidence,
}
