"""Many models of one recipe as matrices: what each was given, and what each says of every record.

Models train in blocks, each block as one stacked computation where that is faster. A finished block is one stored piece;
the plan (block size, threads, device) is agreed at the first start, so a run that was killed goes on with the same
arithmetic. Signals are kept, not models, unless weights are asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from engram import check
from engram.data.dataset import Dataset
from engram.data.fingerprints import fingerprint
from engram.measure.thresholds import best
from engram.seed import Seed
from engram.signals import STANDARD, Signal, View, as_is, released
from engram.train.feed import Rows
from engram.train.loop import fit_many, rebuilt
from engram.train.plan import Plan, answered_at_once, planned
from engram.train.recipe import Recipe
from engram.train.stack import Device, Models, Single, Stack
from engram.types import Arrays, Bools, Chunks, Floats, Ints, Piece, Track, quiet


@dataclass(frozen=True)
class Asked:
    """What is asked of every model: which signals, of which views of each record, and whether to keep its weights."""

    signals: tuple[Signal, ...] = tuple(STANDARD.values())
    views: tuple[View, ...] = (as_is,)
    weights: bool = False


@dataclass(frozen=True, eq=False)
class Population:
    """The models as matrices. `signals` are keyed by the signal's name."""

    member: Bools  # [model, record] of the records that were asked about
    signals: Mapping[str, Floats]  # each [model, view, record], or [model, view, record, class] of a whole answer
    weights: Arrays = field(default_factory=dict)  # each [model, ...]; empty unless asked for

    def __len__(self) -> int:
        return len(self.member)

    def of(self, signal: Signal) -> Floats:
        """[model, view, record], and [class] where the signal is a whole answer"""
        return self.signals[signal.__name__]

    def without(self, model: int) -> Population:
        """All models but one: what is left to learn from when that one stands in for the target."""
        kept = np.arange(len(self)) != model
        return Population(self.member[kept], {name: phi[kept] for name, phi in self.signals.items()})


class Design(Protocol):
    """What each model is given."""

    def __len__(self) -> int: ...

    @property
    def sizes(self) -> Ints: ...  # [model] how many records each is given

    @property
    def shared(self) -> bool: ...  # whether models hold most of their records in common

    def member(self, records: int) -> Bools: ...  # [model, record] of the first so many records

    def rows(self, models: Ints) -> Rows: ...  # of these models, which are given equally many


@dataclass(frozen=True, eq=False)
class Members:
    """Any records to any model."""

    given: Bools  # [model, record]
    shared: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.given)

    @property
    def sizes(self) -> Ints:
        sizes: Ints = self.given.sum(1)
        return sizes

    def member(self, records: int) -> Bools:
        return self.given[:, :records]

    def rows(self, models: Ints) -> Rows:
        return Rows(np.stack([np.flatnonzero(self.given[m]) for m in models]))


@dataclass(frozen=True, eq=False)
class OneMore:
    """The same records to every model, and one more of its own."""

    common: Ints  # [record]
    own: Ints  # [model]
    shared: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.own)

    @property
    def sizes(self) -> Ints:
        return np.full(len(self.own), len(self.common) + 1)

    def member(self, records: int) -> Bools:
        asked = np.arange(records)
        member: Bools = (asked == self.own[:, None]) | np.isin(asked, self.common)
        return member

    def rows(self, models: Ints) -> Rows:
        return Rows(self.own[models][:, None], self.common)


def paired(models: int, records: int, seed: Seed) -> Bools:
    """Membership as complementary pairs: model 2k+1 gets what model 2k does not, so every record is in exactly half.

    >>> paired(4, 6, Seed(0)).sum(0).tolist()
    [2, 2, 2, 2, 2, 2]
    """
    if models < 2 or models % 2:
        raise ValueError(f"models come in pairs, so their number must be even and at least 2, got {models}")
    check.at_least("records", records, 2)
    member = np.zeros((models, records), bool)
    for pair in range(models // 2):
        given = seed.child("pair", pair).numpy().permutation(records)[: records // 2]
        member[2 * pair, given] = True
        member[2 * pair + 1] = ~member[2 * pair]
    return member


def population(
    recipe: Recipe,
    data: Dataset,
    given: Bools | Design,  # [model, record] which records each model is given
    *,
    seed: Seed,
    chunks: Chunks,
    asked: Asked | None = None,
    records: int | None = None,
    device: Device = "cpu",
    keep: bool = False,
    track: Track = quiet,
) -> Population:
    """A model of `recipe` for each line of `given`, and its signals on the first `records` records (all, unless told).

    A recipe that cannot be stacked is trained model by model, and the plan says why. With `keep` the models are stored,
    so that whoever asks them something else, or changes their answers only, trains none anew.
    """
    asked = asked or Asked()
    if isinstance(given, np.ndarray):
        check.same_length(records=data, member=given[0])
        given = Members(given)
    n = len(data) if records is None else records
    name = f"population/{fingerprint(recipe, data.x, data.y, seed, asked, n)}"
    trained = f"weights/{fingerprint(replace(recipe, after=()), data.x, data.y, seed)}" if keep else name
    plan = _agreed(chunks, trained, planned(recipe, data, int(given.sizes.max()), device, shared=given.shared))
    blocks = list(_blocks(given.sizes, plan.block))
    label, weights = f"training {len(given)} shadow models", dict[int, Arrays]()

    def train(block: Ints) -> Iterator[Models]:
        return _trained(recipe, data, given, block, seed, plan)

    def asked_of(block: Ints) -> Arrays:
        made = _again(recipe, weights[int(block[0])], plan) if keep else train(block)
        return _joined_models([_answers(models, recipe, data, asked, n, plan) for models in made])

    if keep:
        kept = _each(chunks, trained, given, blocks, lambda block: _weights(train(block)), plan, track, label)
        weights = {int(block[0]): arrays for block, arrays in zip(blocks, kept, strict=True)}
    done = _each(chunks, name, given, blocks, asked_of, plan, track, "asking them" if keep else label)
    return _joined(given.member(n), asked, np.concatenate(blocks), done)


def _each(
    chunks: Chunks, name: str, given: Design, blocks: Sequence[Ints], work: Callable[[Ints], Arrays], plan: Plan,
    track: Track, label: str,
) -> list[Arrays]:  # fmt: skip
    """One stored piece a block, by the plan."""
    told = {_piece(name, given.rows(block), block): block for block in blocks}

    def planned_work(piece: Piece) -> Arrays:
        with plan.in_force():
            return work(told[piece.name])

    pieces = [Piece(piece, {"models": len(block)}) for piece, block in told.items()]
    return list(track(chunks.run(pieces, planned_work), label, len(pieces)))


def stood_in(
    population: Population, score: Callable[[Floats, Population], Floats], signal: Signal, times: int = 8
) -> float:
    """The claim threshold that is best when shadows stand in for the target, each judged by all the others."""
    models = range(min(times, len(population)))
    scores = [score(population.of(signal)[m], population.without(m)) for m in models]
    return best(np.concatenate(scores), np.concatenate([population.member[m] for m in models]))


def _agreed(chunks: Chunks, name: str, plan: Plan) -> Plan:
    stored = Plan(**chunks.agree(name, plan.told()))
    if torch.device(stored.device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"this run was begun on {stored.device}, and there is none now, so it cannot go on to the same numbers; "
            "run it where it was begun, or name a new --store"
        )
    return stored


def _blocks(sizes: Ints, block: int) -> Iterator[Ints]:
    """Models of equal size, at most `block` of them."""
    for size in np.unique(sizes):
        alike = np.flatnonzero(sizes == size)
        for start in range(0, len(alike), block):
            yield alike[start : start + block]


def _piece(name: str, rows: Rows, block: Ints) -> str:
    return f"{name}/{block[0]}-{block[-1]}/{fingerprint(rows.own, rows.common, block)}"


def _trained(recipe: Recipe, data: Dataset, given: Design, block: Ints, seed: Seed, plan: Plan) -> Iterator[Models]:
    """These models, as one stack or one after another."""
    seeds = [seed.child("model", int(m)) for m in block]
    if plan.stacked:
        yield fit_many(recipe, data, given.rows(block), seeds, device=plan.device)
        return
    for i in range(len(block)):
        yield fit_many(recipe, data, given.rows(block[i : i + 1]), [seeds[i]], stacked=False, device=plan.device)


def _weights(made: Iterable[Models]) -> Arrays:
    return _joined_models([{name: w.cpu().numpy() for name, w in models.weights().items()} for models in made])


def _again(recipe: Recipe, weights: Arrays, plan: Plan) -> Iterator[Models]:
    """The models that have these weights, each [model, ...]."""
    count = len(next(iter(weights.values())))
    each = (rebuilt(recipe, {name: w[m] for name, w in weights.items()}, plan.device) for m in range(count))
    for models in [Stack(each, count, plan.device)] if plan.stacked else (Single(m, plan.device) for m in each):
        models.train(False)
        yield models


def _joined_models(each: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([a[name] for a in each]) for name in each[0]}


def _answers(models: Models, recipe: Recipe, data: Dataset, asked: Asked, n: int, plan: Plan) -> dict[str, Any]:
    """Every signal asked for, [model, view, record, ...]; and the weights, if they were."""
    with torch.no_grad():
        views = [_signals(models, recipe, data, asked, n, plan, view) for view in asked.views]
    answers = {name: np.stack([v[name] for v in views], 1) for name in views[0]}
    if asked.weights:
        answers |= {f"weights/{name}": w.cpu().numpy() for name, w in models.weights().items()}
    return answers


def _signals(
    models: Models, recipe: Recipe, data: Dataset, asked: Asked, n: int, plan: Plan, view: View
) -> dict[str, Floats]:
    parts: list[list[Tensor]] = []
    for start in range(0, n, plan.answered):
        rows = slice(start, min(n, start + plan.answered))
        x = view(torch.as_tensor(data.x[rows], device=plan.device))
        y = torch.as_tensor(data.y[rows], device=plan.device)
        p = sound(released(models(x, shared=True), recipe.after), "a shadow model")  # [model, record, class]
        parts.append([signal(p, y).cpu() for signal in asked.signals])
    told = [torch.cat(part, 1).numpy() for part in zip(*parts, strict=True)]
    return {signal.__name__: phi for signal, phi in zip(asked.signals, told, strict=True)}


def _joined(member: Bools, asked: Asked, order: Ints, done: Sequence[Arrays]) -> Population:
    whole = {name: np.concatenate([a[name] for a in done])[np.argsort(order)] for name in done[0]}
    weights = {name.removeprefix("weights/"): w for name, w in whole.items() if name.startswith("weights/")}
    return Population(member, {s.__name__: whole[s.__name__] for s in asked.signals}, weights)


def sound(p: Tensor, whose: str) -> Tensor:
    """Probabilities; what is no number has no rank, so it is an error and not a score."""
    if not bool(torch.isfinite(p).all()):
        wrong = p[~torch.isfinite(p)][0]
        raise ValueError(
            f"{whose} answers {wrong:g} where a probability was expected; look at its weights and its rate"
        )
    return p


@dataclass(frozen=True, eq=False)
class Answering:
    """What a released model answers, and nothing else of it: records -> probabilities, [record, class], in float64."""

    model: nn.Module
    after: tuple[Callable[[Tensor], Tensor], ...] = ()
    _at_once: dict[tuple[int, ...], int] = field(default_factory=dict)

    def __call__(self, x: Tensor) -> Tensor:
        with asking(self.model):
            if x.shape[1:] not in self._at_once:
                self._at_once[x.shape[1:]] = answered_at_once(self.model, x)
            parts = torch.split(x, self._at_once[x.shape[1:]])
            return sound(torch.cat([released(self.model(part), self.after) for part in parts]), "the model")


@contextlib.contextmanager
def asking(module: nn.Module) -> Iterator[nn.Module]:
    """The module in evaluation mode and without gradients; its modes are given back as they were."""
    modes = {m: m.training for m in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield module
    finally:
        for m, mode in modes.items():
            m.training = mode
