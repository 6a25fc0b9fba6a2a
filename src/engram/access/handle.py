"""What every adversary has: what it knows, and a count of what it asked. Most hold candidate records besides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from engram.data.dataset import Dataset
from engram.data.fingerprints import fingerprint
from engram.population import Answering, Asked, Population, paired, population
from engram.seed import Seed
from engram.signals import STANDARD, Signal, View, as_is, correct
from engram.train.loop import rebuilt
from engram.train.recipe import Recipe
from engram.train.stack import Device
from engram.types import Array, Arrays, Bools, Chunks, Floats, Ints, Piece, Track, quiet

Answer = Callable[[Tensor], Tensor]  # records -> released probabilities, [record, class]


class OutOfQueries(Exception):
    """The query budget is spent. What was learned until then still counts."""


class Unknown(ValueError):
    """The attack needs something that this adversary does not know."""


class Unsuited(ValueError):
    """The attack cannot be tried on such records."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What the adversary knows besides what it may ask. Granted by the target, printed in each finding."""

    recipe: Recipe | None = None  # how the model was trained
    others: Dataset | None = None  # more records of the same source, none of them a candidate
    given: str = "the candidate records and their labels"  # what comes with the handle itself, in words

    def __str__(self) -> str:
        recipe = "the training recipe" if self.recipe else "not how it was trained"
        others = f", {len(self.others)} other records of the source" if self.others is not None else ""
        return f"{self.given}, {recipe}{others}"


@dataclass(frozen=True, eq=False)
class Lab:
    """Where the adversary trains its own models: the stream they start from, where they run, and on what."""

    seed: Seed
    chunks: Chunks
    device: Device = "cpu"
    keep: bool = False  # the models too, so that all attacks, and all masks of their answers, share one training


H = TypeVar("H")


@dataclass(frozen=True, eq=False)
class Rehearsal(Generic[H]):
    """A shadow model as the target: the same kind of handle on it, and what is true of it."""

    handle: H
    module: nn.Module  # it is the adversary's own: it may look inside
    member: Bools  # [record]


class Handle:
    """What every adversary has: knowledge, and a count of its questions. Final handles add what may be asked."""

    def __init__(self, *, knowledge: Knowledge, lab: Lab, budget: int | None = None) -> None:
        self.knowledge = knowledge
        self.budget = budget  # queries that may be asked in all; None: any number
        self.queries = 0
        self._lab = lab

    @property
    def device(self) -> torch.device:
        """Where the models are, and where questions are best made."""
        return torch.device(self._lab.device)

    def left(self, records: int) -> int | None:
        """How many more queries each of so many records may cost; None: any number."""
        return None if self.budget is None else (self.budget - self.queries) // records


class Candidates(Handle):
    """Candidate records, a model that answers, shadows of one's own: what a membership adversary has."""

    def __init__(
        self, records: Dataset, answer: Answer, *, knowledge: Knowledge, lab: Lab, budget: int | None = None
    ) -> None:
        super().__init__(knowledge=knowledge, lab=lab, budget=budget)
        self.records = records
        self.ids: Ints = np.arange(len(records))
        self._answer = answer

    def population(
        self,
        shadows: int,
        *,
        views: Sequence[View] = (as_is,),
        signals: Sequence[Signal] = tuple(STANDARD.values()),
        weights: bool = False,
        track: Track = quiet,
    ) -> Population:
        """Shadow models of the known recipe, each trained on a random half of all records the adversary holds.

        All attacks on one target share their shadows, if they ask the same of them: the first that asks trains them.
        With `weights`, the models are kept as well.
        """
        return self._shadows(shadows, Asked(tuple(signals), tuple(views), weights), track)

    def numbers(self) -> Tensor:
        """The records, where they are real numbers that can be changed a little; [record, ...] on the device."""
        if self.records.x.dtype.kind != "f":
            raise Unsuited(f"it changes records a little, and these are {self.records.x.dtype}, not real numbers")
        return torch.as_tensor(self.records.x, device=self.device)

    def images(self) -> Tensor:
        """The records, where they are images; [record, channel, row, column] on the device."""
        if self.records.x.ndim != 4:
            raise Unsuited(
                "it turns and shifts images, [channel, row, column], and these records have shape "
                f"{self.records.x.shape[1:]}; use the attacks noise or boundary"
            )
        return self.numbers()

    def rehearsals(self, shadows: int, *, track: Track = quiet) -> list[Rehearsal[Self]]:
        """Shadow models as targets of the same kind, to play the attack on where the truth is known.

        They are the first so many of all shadows. What is asked of them costs no query of the target.
        """
        shadow = self._shadows(shadows, Asked((correct,), weights=True), track)
        recipe = self._recipe()
        modules = [
            rebuilt(recipe, {name: w[m] for name, w in shadow.weights.items()}, self._lab.device)
            for m in range(shadows)
        ]
        played = [
            type(self)(self.records, Answering(module, recipe.after), knowledge=self.knowledge, lab=self._lab)
            for module in modules
        ]
        return [Rehearsal(*one) for one in zip(played, modules, shadow.member, strict=True)]

    def played(
        self, shadows: int, play: Callable[[Self], Floats], *about: object, track: Track = quiet
    ) -> tuple[Floats, Bools]:
        """What the play yields on each shadow, [shadow, ...], and who was in it, [shadow, record].

        What is played is kept under `about`, which must say all that `play` depends on: all targets that share their
        shadows share it, and a run that was killed does not play it again.
        """
        rehearsals = functools.cache(lambda: self.rehearsals(shadows, track=track))
        held = (self._recipe(), self.records, self.knowledge.others, self._lab.seed, type(self).__name__)
        name = f"played/{fingerprint(*held, shadows, *about)}"
        pieces = [Piece(f"{name}/{m}", {"shadow": m}) for m in range(shadows)]

        def work(piece: Piece) -> Arrays:
            one = rehearsals()[piece.part["shadow"]]
            return {"told": play(one.handle), "member": one.member}

        found = list(track(self._lab.chunks.run(pieces, work), "playing on shadows", shadows))
        return np.stack([np.array(one["told"]) for one in found]), np.stack([np.array(one["member"]) for one in found])

    def _recipe(self) -> Recipe:
        if self.knowledge.recipe is None:
            raise Unknown(
                "shadow models need the training recipe, and this adversary does not know it; give the target one"
            )
        return self.knowledge.recipe

    def _shadows(self, shadows: int, asked: Asked, track: Track) -> Population:
        recipe, pool = self._recipe(), _together(self.records, self.knowledge.others)
        return population(
            recipe,
            pool,
            paired(shadows, len(pool), self._lab.seed),
            seed=self._lab.seed,
            chunks=self._lab.chunks,
            asked=asked,
            records=len(self.records),
            device=self._lab.device,
            keep=self._lab.keep,
            track=track,
        )

    def _ask(self, x: Array | Tensor) -> Tensor:
        if self.budget is not None and self.queries + len(x) > self.budget:
            raise OutOfQueries(
                f"{len(x)} more queries were asked, {self.budget - self.queries} of {self.budget} are left"
            )
        self.queries += len(x)
        return self._answer(torch.as_tensor(x, device=self._lab.device))


def _together(records: Dataset, others: Dataset | None) -> Dataset:
    if others is None:
        return records
    x, y = np.concatenate([records.x, others.x]), np.concatenate([records.y, others.y])
    return Dataset(x, y, records.classes, records.name)
