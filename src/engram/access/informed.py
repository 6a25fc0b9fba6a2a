"""The informed adversary's handle: released weights, how they were trained, and every training record but one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from engram.access.handle import Handle, Knowledge, Lab, Unknown
from engram.data.dataset import Dataset
from engram.population import Asked, OneMore, population
from engram.seed import Seed
from engram.train.feed import Rows
from engram.train.loop import fit_many, started
from engram.train.recipe import Given, Recipe
from engram.train.sampling import FullBatch
from engram.train.sharing import trainable
from engram.train.steps import Plain
from engram.types import Array, Arrays, Floats, Ints, Track, quiet

WEIGHTS = Asked(signals=(), weights=True)
TRIES = 3  # labels of a guess


@dataclass(frozen=True, eq=False)
class Release:
    """Models that were let out, each trained on the same fixed records and one more."""

    weights: Arrays  # parameter -> [model, ...]
    fixed: Dataset

    def __len__(self) -> int:
        return len(next(iter(self.weights.values())))

    def fits(self, recipe: Recipe) -> None:
        """An error that names the first tensor that is not of the recipe's network."""
        wanted = shapes(recipe)
        for name, shape in wanted.items():
            if name not in self.weights:
                raise ValueError(f"the released weights do not fit the recipe's network: they lack {name}")
            found = tuple(np.shape(self.weights[name])[1:])
            if found != shape:
                raise ValueError(
                    f"the released weights do not fit the recipe's network: {name} is {shape} there and {found} here; "
                    "give the recipe that they were trained with, and weights as [model, ...]"
                )


@dataclass(frozen=True, eq=False)
class Shadows:
    """Models of the adversary's own, and the one record that each was given besides the fixed ones."""

    weights: Floats  # [shadow, parameter]
    records: Dataset  # [shadow]


class Informed(Handle):
    """The weights of released models, the recipe, and all of their training records but one each."""

    def __init__(self, release: Release, *, knowledge: Knowledge, lab: Lab) -> None:
        super().__init__(knowledge=knowledge, lab=lab)
        self.release = release
        self.fixed = release.fixed
        self.queries = len(release)  # each model was seen once; what the adversary does with its own costs nothing

    @property
    def recipe(self) -> Recipe:
        if self.knowledge.recipe is None:
            raise Unknown("it trains as the model was trained, and this adversary does not know how; give a recipe")
        return self.knowledge.recipe

    @property
    def public(self) -> Dataset:
        """Records like the one that is sought, none of them in the training set."""
        if self.knowledge.others is None:
            raise Unknown("it learns from records like the one it seeks, and this adversary has none; give others=...")
        return self.knowledge.others

    @property
    def weights(self) -> Floats:
        """Of the released models, [model, parameter]"""
        return flat(self.recipe, self.release.weights)

    @property
    def repeatable(self) -> bool:
        """Whether two trainings on the same records end alike: known start, no order and no chance to draw."""
        recipe = self.recipe
        known = isinstance(recipe.start, Given) and not recipe.start.partly
        fixed = isinstance(recipe.sampler, FullBatch) and isinstance(recipe.step, Plain)
        return known and fixed and not (recipe.before or recipe.stop)

    def shadows(self, number: int, *, skip: int = 0, track: Track = quiet) -> Shadows:
        """So many models of one's own, each trained on the fixed records and one public record, after the first `skip`."""
        public = self.public
        if skip + number > len(public):
            raise Unknown(f"{skip + number} shadow models take as many public records, and there are {len(public)}")
        rows = np.arange(skip, skip + number)
        return Shadows(self.trained(public.take(rows), "shadows", skip, track), public.take(rows))

    def unrest(self) -> float:
        """How far two trainings on the same records end apart, in units of how far one record moves the weights.

        Beyond one, what the record did is lost in what the adversary cannot repeat.
        """
        here, there = self.without(), self.without("again")
        reach = np.linalg.norm(self.weights - here, axis=1)
        return float(np.linalg.norm(here - there) / max(np.median(reach), np.finfo(float).tiny))

    def without(self, name: str = "without") -> Floats:
        """The weights of a model trained on the fixed records alone, [parameter]"""
        models = fit_many(
            self.recipe, self.fixed, Rows(np.arange(len(self.fixed))[None]), [self._seed(name)],
            device=self._lab.device,
        )  # fmt: skip
        alone: Floats = flat(self.recipe, {name: w.cpu().numpy() for name, w in models.weights().items()})[0]
        return alone

    def trained(self, more: Dataset, what: str = "guesses", number: int = 0, track: Track = quiet) -> Floats:
        """The weights of models trained on the fixed records and one of these each, [model, parameter]"""
        lab = replace(self._lab, seed=self._seed(what, number))
        return flat(self.recipe, released(self.recipe, self.fixed, more, lab, track).weights)

    def explained(self, guesses: Array, track: Track = quiet) -> tuple[Ints, Floats]:
        """For every released model, the label under which its guess explains the weights best, and what is left over.

        Left over: the distance of the released weights from those of a model trained with the guess, in units of their
        distance from a model trained without. Near zero, the guess is what was trained on; at one, it explains nothing.
        The labels tried are those of the records most like the guess.
        """
        likely, targets = self._likely(guesses), self.weights
        reach = np.linalg.norm(targets - self.without(), axis=1)
        left = np.empty(likely.shape)
        for k in track(range(likely.shape[1]), "retraining with the guesses", total=likely.shape[1]):
            made = self.trained(replace(self.fixed, x=guesses, y=likely[:, k]))
            left[:, k] = np.linalg.norm(made - targets, axis=1) / np.maximum(reach, np.finfo(float).tiny)
        best = left.argmin(1)
        return likely[np.arange(len(likely)), best], left.min(1)

    def _likely(self, guesses: Array) -> Ints:
        """The few classes whose nearest held record is nearest to each guess, [guess, try]"""
        held = [self.fixed] if self.knowledge.others is None else [self.fixed, self.knowledge.others]
        x, y = (
            np.concatenate([each.x for each in held]).reshape(-1, guesses[0].size),
            np.concatenate([e.y for e in held]),
        )
        far = np.full((len(guesses), len(self.fixed.classes)), np.inf)
        for k, guess in enumerate(np.asarray(guesses).reshape(len(guesses), -1)):
            np.minimum.at(far[k], y, ((x - guess) ** 2).sum(1))
        return np.argsort(far, 1, kind="stable")[:, :TRIES]

    def _seed(self, *names: str | int) -> Seed:
        return self._lab.seed.child("informed", *names)


def released(recipe: Recipe, fixed: Dataset, missing: Dataset, lab: Lab, track: Track = quiet) -> Release:
    """Models of this recipe, each trained on the fixed records and one of the missing ones."""
    n = len(fixed)
    pool = replace(
        fixed, x=np.concatenate([fixed.x, missing.x.astype(fixed.x.dtype)]), y=np.concatenate([fixed.y, missing.y])
    )
    given = OneMore(np.arange(n), np.arange(n, n + len(missing)))
    models = population(
        recipe, pool, given, seed=lab.seed, chunks=lab.chunks, asked=WEIGHTS, records=0, device=lab.device, track=track
    )
    return Release(models.weights, fixed)


def shapes(recipe: Recipe) -> dict[str, tuple[int, ...]]:
    """Of the weights that are trained, in the network's order."""
    return {name: tuple(w.shape) for name, w in trainable(started(recipe, Seed(0))).items()}


def flat(recipe: Recipe, weights: Mapping[str, Array]) -> Floats:
    """All trained weights of each model in one line, [model, parameter]"""
    return np.concatenate([np.asarray(weights[name]).reshape(len(weights[name]), -1) for name in shapes(recipe)], 1)
