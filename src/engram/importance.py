"""How much each released parameter tells of the record that is sought, by six scores behind one interface.

Shahin Shamsabadi, Hayes, Balle, Weller: Mnemonist: Locating Model Parameters that Memorize Training Examples, 2023.
Algorithm 1, lines 4 to 6. Its formula of importance is in no text that is public, and none of these six is called it.
Saliency: Simonyan, Vedaldi, Zisserman 2013. Gradient times input: Shrikumar et al. 2016. Integrated gradients:
Sundararajan, Taly, Yan 2017, equation 1. Active steps: the poster's binary scale, summed over the training.

Every score is at least zero, and is of inputs in units of their deviation over the shadows, so that scores of different
parameters can be compared. Larger = tells more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from engram import check
from engram.data.dataset import Dataset
from engram.reconstruction import Reconstructing
from engram.seed import Seed
from engram.train import FullBatch, Recipe
from engram.train.feed import Rows
from engram.train.loop import fit_many, started
from engram.train.sharing import trainable
from engram.train.stack import Device, Stack
from engram.train.steps import Batch, Take, Training, mean, only_plain
from engram.types import Array, Bools, Floats, Ints

Importance = Callable[[Floats, Dataset, Reconstructing | None], Floats]  # of shadows -> [parameter]

STEPS = 32  # on the way from the mean shadow
DIRECTIONS = 32  # of the answer; where it has no more numbers than this, each of them
RIDGE = 10.0  # shadows
ASKED = 256  # shadows that derivatives are averaged over
WATCHED = 64  # shadows whose training is watched
SHARES = (0.5, 0.7, 0.9)


def saliency(weights: Floats, records: Dataset, reconstructor: Reconstructing | None) -> Floats:  # noqa: ARG001
    """How far the answer moves with the parameter: the length of the derivative, averaged over shadows."""
    learned = _needed(reconstructor)
    return _spread(learned, _lengths(learned.module, _rows(learned, weights)).mean(0))


def gradient_times_input(weights: Floats, records: Dataset, reconstructor: Reconstructing | None) -> Floats:  # noqa: ARG001
    """The same, times how far the parameter is from its mean."""
    learned = _needed(reconstructor)
    rows = _rows(learned, weights)
    return _spread(learned, (_lengths(learned.module, rows) * rows.abs()).mean(0))


def integrated_gradients(weights: Floats, records: Dataset, reconstructor: Reconstructing | None) -> Floats:  # noqa: ARG001
    """What the parameter contributes to how the answer differs from that to the mean shadow; averaged over shadows."""
    learned = _needed(reconstructor)
    rows = _rows(learned, weights)
    return _spread(learned, _contributed(learned.module, rows).mean(0))


def columns(weights: Floats, records: Dataset, reconstructor: Reconstructing | None) -> Floats:  # noqa: ARG001
    """The length of what the reconstructor's first layer multiplies the parameter with."""
    learned = _needed(reconstructor)
    first = next(m for m in learned.module.modules() if isinstance(m, nn.Linear))
    return _spread(learned, first.weight.detach().norm(dim=0))


def explained(weights: Floats, records: Dataset, reconstructor: Reconstructing | None = None) -> Floats:  # noqa: ARG001
    """The share of the parameter's variance that a linear function of the record foretells, on shadows it was not fitted to.

    Needs no reconstructor.
    """
    half = len(weights) * 3 // 4
    x = np.c_[_standard(records.x.reshape(len(records), -1)), np.ones(len(records))]
    z = _standard(weights)  # [shadow, parameter]
    fitted = np.linalg.solve(x[:half].T @ x[:half] + RIDGE * np.eye(x.shape[1]), x[:half].T @ z[:half])
    left, there = np.mean((z[half:] - x[half:] @ fitted) ** 2, 0), z[half:].var(0)
    share: Floats = np.clip(1 - left / np.where(there > 0, there, 1.0), 0.0, 1.0) * (there > 0)
    return share


@dataclass(frozen=True, eq=False)
class Gates:
    """At how many steps of its training the parameter's unit was active on the record, averaged over shadows.

    Counted exactly, by training again; needs no reconstructor. Units of the last layer have no gate: every step counts.
    """

    recipe: Recipe
    fixed: Dataset
    device: Device = "cpu"

    def __call__(self, weights: Floats, records: Dataset, reconstructor: Reconstructing | None = None) -> Floats:  # noqa: ARG002
        few = records.take(np.arange(min(WATCHED, len(records))))
        active = active_steps(self.recipe, self.fixed, few, self.device).mean(0)  # [unit]
        spread: Floats = active[units(self.recipe)]
        return spread


SCORES: dict[str, Importance | type[Gates]] = {
    "saliency": saliency,
    "gradient-times-input": gradient_times_input,
    "integrated-gradients": integrated_gradients,
    "columns": columns,
    "explained": explained,
    "gates": Gates,
}
ALONE = ("explained", "gates")  # need no reconstructor


def named(name: str, recipe: Recipe, fixed: Dataset, device: Device = "cpu") -> Importance:
    """The score of this name; what is known of the training is told to the one that trains again."""
    score = SCORES[check.known("importance", name, SCORES)]
    return Gates(recipe, fixed, device) if isinstance(score, type) else score


def by_row(importance: Floats, unit: Ints) -> Floats:
    """The mean over all that leads into the same unit."""
    rows: Floats = (np.bincount(unit, importance) / np.maximum(np.bincount(unit), 1))[unit]
    return rows


def selected(importance: Floats, share: float) -> Bools:
    """The fewest parameters that together hold at least this share of all importance, and their equals; [parameter]"""
    check.fraction("share", share)
    if not importance.sum() > 0:
        raise ValueError("no parameter is of any importance, so there is nothing to select; the weights hold no trace")
    order = np.argsort(-importance, kind="stable")
    held = np.cumsum(importance[order]) / importance.sum()
    last = order[int(np.searchsorted(held, share - 1e-12))]
    chosen: Bools = importance >= importance[last]
    return chosen


def at_random(selection: Bools, among: Bools, seed: Seed) -> Bools:
    """As many parameters, drawn evenly: the control of a selection."""
    drawn = seed.numpy().permutation(np.flatnonzero(among))[: int((selection & among).sum())]
    chosen = np.zeros(len(selection), bool)
    chosen[drawn] = True
    return chosen


def units(recipe: Recipe) -> Ints:
    """The unit that each parameter leads into, numbered over all layers, [parameter]."""
    place: dict[str, int] = {}
    found, count = [], 0
    for name, w in trainable(started(recipe, Seed(0))).items():
        layer = name.rpartition(".")[0]
        if layer not in place:
            place[layer], count = count, count + w.shape[0]
        found.append(place[layer] + np.repeat(np.arange(w.shape[0]), w[0].numel()))
    return np.concatenate(found)


def active_steps(recipe: Recipe, fixed: Dataset, records: Dataset, device: Device = "cpu") -> Floats:
    """At how many steps each unit was active on the record that the model was trained on besides the fixed ones.

    [record, unit]; exact where training can be repeated.
    """
    _watchable(recipe)
    watched = Watched()
    pool = replace(fixed, x=np.concatenate([fixed.x, records.x]), y=np.concatenate([fixed.y, records.y]))
    n, seeds = len(fixed), [Seed(0)] * len(records)
    own = np.arange(n, n + len(records))[:, None]
    rows = Rows(np.concatenate([np.broadcast_to(np.arange(n), (len(own), n)), own], 1))
    fit_many(replace(recipe, step=watched), pool, rows, seeds, device=device)
    counts: Floats = watched.counts[0].double().cpu().numpy()
    return counts


@dataclass(frozen=True, eq=False)
class Watched:
    """A plain step that notes which units were active on the last record of each model."""

    beside: ClassVar[float] = 0.0
    counts: list[Tensor] = field(default_factory=list)  # one of [model, unit] when training is over

    def __call__(self, training: Training) -> Take:
        def take(batch: Batch) -> None:
            assert isinstance(training.models, Stack)
            training.models.taken = []
            losses = training.loss(training.outputs(batch), batch.y)
            *hidden, last = [layer.y.detach()[:, -1] for layer in training.models.taken]  # each [model, unit]
            training.models.taken = None
            self._add(torch.cat([*(y > 0 for y in hidden), torch.ones_like(last, dtype=torch.bool)], 1))
            training.descend(mean(losses, batch.present))

        return take

    def _add(self, active: Tensor) -> None:
        self.counts[:] = [active.long() + (self.counts[0] if self.counts else 0)]


def _watchable(recipe: Recipe) -> None:
    """An error where a gate is not a gate, or the record is not where it is looked for."""
    only_plain(recipe.step, "counting active steps")
    if not isinstance(recipe.sampler, FullBatch):
        raise ValueError("active steps are counted where every step sees every record; give the recipe FullBatch()")
    layers = [m for m in started(recipe, Seed(0)).modules() if not list(m.children())]
    odd = next((m for m in layers if not isinstance(m, (nn.Flatten, nn.Linear, nn.ReLU))), None)
    if odd is not None or any(isinstance(a, nn.Linear) and isinstance(b, nn.Linear) for a, b in pairwise(layers)):
        told = "two linear layers without one" if odd is None else type(odd).__name__
        raise ValueError(f"a unit is active or not where linear layers alternate with ReLU, got {told}")


def _standard(rows: Array) -> Floats:
    """Mean 0 and deviation 1 in each column; 0 where nothing moves."""
    scale = rows.std(0, dtype=np.float64)
    standard: Floats = (rows - rows.mean(0, dtype=np.float64)) / np.where(scale > 0, scale, np.inf)
    return standard


def _needed(reconstructor: Reconstructing | None) -> Reconstructing:
    if reconstructor is None:
        raise ValueError(
            f"this importance is read off a learned reconstructor, got none; use one of {', '.join(ALONE)}"
        )
    return reconstructor


def _rows(learned: Reconstructing, weights: Floats) -> Tensor:
    return torch.as_tensor(learned.standard(weights[:ASKED]), device=learned.device)


def _spread(learned: Reconstructing, values: Tensor) -> Floats:
    """Parameters that the reconstructor is not shown are of no importance to it."""
    found = np.zeros(len(learned.scale))
    found[learned.kept] = values.double().cpu().numpy()
    return found


def _lengths(module: nn.Module, rows: Tensor) -> Tensor:
    """The length of the derivative of the answer by each input, [shadow, input]."""
    found = torch.zeros_like(rows)
    for along in _directions(module, rows):
        found += _derivative(module, rows, along).square()
    return found.sqrt()


def _contributed(module: nn.Module, rows: Tensor) -> Tensor:
    """The length of what each input adds to the answer on the straight way from zero, [shadow, input]."""
    found = torch.zeros_like(rows)
    for along in _directions(module, rows):
        found += along_the_way(module, rows, along).square()
    return found.sqrt()


def along_the_way(module: nn.Module, rows: Tensor, along: Tensor) -> Tensor:
    """What each input adds to the answer in one direction, [shadow, input]; over inputs, answer less that at zero."""
    way = ((k + 0.5) / STEPS for k in range(STEPS))
    mean_derivative = torch.zeros_like(rows)
    for share in way:
        mean_derivative += _derivative(module, rows * share, along) / STEPS
    return rows * mean_derivative


def _derivative(module: nn.Module, rows: Tensor, along: Tensor) -> Tensor:
    """Of the answer in one direction by each input, [shadow, input]"""
    rows = rows.detach().clone().requires_grad_()
    found: Tensor = torch.autograd.grad((module(rows).flatten(1) @ along).sum(), rows)[0]
    return found


def _directions(module: nn.Module, rows: Tensor) -> Tensor:
    """Each number of the answer, or as many random ones as are affordable, [direction, number]"""
    with torch.no_grad():
        numbers = module(rows[:1]).numel()
    if numbers <= DIRECTIONS:
        return torch.eye(numbers).to(rows)
    drawn = Seed(0).child("directions").numpy().standard_normal((DIRECTIONS, numbers))
    return torch.as_tensor(drawn / np.sqrt(DIRECTIONS)).to(rows)
