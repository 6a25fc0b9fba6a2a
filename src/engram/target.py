"""What the auditor knows: a trained model, candidate records, the truth about them, and what the adversary is granted."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from engram import check
from engram.access import IMPLIES, Candidates, Gradients, Handle, Informed, Knowledge, Lab, Probabilities, Release
from engram.access.gradients import relative
from engram.access.informed import released
from engram.data import Dataset, digits, duplicates, fingerprint, split
from engram.models import MLP
from engram.population import Answering, asking
from engram.seed import Seed
from engram.train import CrossEntropy, FullBatch, Recipe, Update, fit, shared
from engram.train.loop import rebuilt, started
from engram.train.sharing import functional, left_by, trainable
from engram.train.stack import Device
from engram.types import Bools, Track, quiet

MULTIPLE = 1e-3  # relative; what is nearer to a multiple than this is one


@dataclass(frozen=True, eq=False)
class Target:
    """A model to audit. `member` says which of `records` it was trained on; no adversary ever holds it.

    `access` is the strongest that the adversary is granted; weaker kinds follow from it. With a `recipe`, the adversary
    is taken to know it, trains shadow models from it, and defences can be tried; without, only attacks that need neither.
    With `access=Gradients`, `update` is what a participant shared and `records` are the batch behind it, all of them members.
    With `access=Informed`, `release` holds models that were let out, and `records` the one that each of them was trained on
    besides its fixed ones; `model` is the first of them.
    """

    model: nn.Module
    records: Dataset
    member: Bools  # [record]
    recipe: Recipe | None = None
    name: str = "unnamed"
    access: type[Handle] = Probabilities
    budget: int | None = None  # queries the adversary may ask in all
    others: Dataset | None = None  # more records of the same source that the adversary has; none is a candidate
    claim: tuple[float, float] | None = None  # the epsilon and delta that its training promises
    notes: tuple[str, ...] = field(default_factory=tuple)  # what a reader of the report should know
    update: Update | None = None  # what a participant shared, for an adversary who sees gradients
    release: Release | None = None  # models trained on fixed records and one more, for the informed adversary

    def __post_init__(self) -> None:
        if self.access not in IMPLIES:
            known = ", ".join(kind.__name__ for kind in IMPLIES)
            raise TypeError(f"access must be one of the handles {known}, got {self.access!r}")
        if not isinstance(self.recipe, Recipe | None):
            raise TypeError(f"recipe must be an engram.Recipe or None, got {self.recipe!r:.80}")
        object.__setattr__(self, "member", _membership(self.member, len(self.records), self.access))
        _update_fits(self.update, self.model, self.access)
        _release_fits(self.release, self.records, self.recipe, self.access)
        twice = duplicates(self.records.x, self.member)
        if len(twice.across):
            raise ValueError(
                f"{len(twice.across)} records occur both among members and among non-members (first: record "
                f"{twice.across[0]}); such a record has no membership, so remove one of the two"
            )
        _answers_fit("the model", self.model, self.records, self.device)
        if self.recipe is not None:
            _answers_fit("the network of the recipe", started(self.recipe, Seed(0)), self.records, "cpu")
        if self.update is not None and not (self.recipe and self.recipe.share):
            _averages_alike(self._left(), self.update)

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    @property
    def answer(self) -> Answering:
        """What the released model answers: records -> probabilities, [record, class]."""
        return Answering(self.model, self.recipe.after if self.recipe else ())

    def handle(self, asks: type[Handle], lab: Lab) -> Handle:
        """The access that an attack asks for, if the adversary is granted it. It holds the answers, not the target."""
        if asks not in IMPLIES[self.access]:
            raise NotGranted(f"it asks for {asks.__name__}, and the adversary is granted {self.access.__name__} only")
        if self.update is not None:
            return self._seen(self.update, lab)
        if self.release is not None:
            told = f"the released weights and all {len(self.release.fixed)} training records but one"
            return Informed(self.release, knowledge=Knowledge(self.recipe, self.others, told), lab=lab)
        assert issubclass(asks, Candidates)
        knowledge = Knowledge(self.recipe, self.others)
        return asks(self.records, self.answer, knowledge=knowledge, lab=lab, budget=self.budget)

    def _seen(self, update: Update, lab: Lab) -> Gradients:
        """The update and the model, without the batch."""
        knowledge = Knowledge(self.recipe, self.others, "the model, its loss and one update of it, no record")
        loss = self.recipe.loss if self.recipe else CrossEntropy()
        shape, classes = self.records.x.shape[1:], len(self.records.classes)
        return Gradients(self.model, loss, update, shape=shape, classes=classes, knowledge=knowledge, lab=lab)

    def self_test(self) -> float:
        """How far the update of the records themselves is from the one that was shared, relative to its length."""
        assert self.update is not None
        return float(relative(self._left(), [t.double() for t in self.update.tensors]))

    def _left(self) -> Sequence[Tensor]:
        """The update that these records leave, in float64."""
        assert self.update is not None
        model = functional(self.model).double()
        x, y = (torch.as_tensor(part, device=self.device) for part in (self.records.x, self.records.y))
        return left_by(
            model, self.recipe.loss if self.recipe else CrossEntropy(), trainable(model),
            x.double() if x.is_floating_point() else x, y, rate=self.update.rate, steps=self.update.steps,
        )  # fmt: skip

    def identity(self) -> str:
        """Equal for equal weights, records, truth, recipe and update."""
        weights = {name: w.detach().cpu() for name, w in self.model.state_dict().items()}
        told = (weights, self.records.x, self.records.y, self.member, self.recipe, self.access, self.budget)
        beside = [part for part in (self.update, self.release) if part is not None]
        return fingerprint(*told, *beside)


class NotGranted(ValueError):
    """The attack asks for more than the adversary is granted."""


def _membership(member: Bools, records: int, access: type[Handle]) -> Bools:
    member = np.asarray(member)
    if member.dtype != bool or member.ndim != 1:
        raise TypeError(f"member must be one bool a record, got {member.dtype} of shape {member.shape}")
    check.same_length(records=range(records), member=member)
    if access in (Gradients, Informed):
        if not member.all():
            raise ValueError(
                "the records of an update or a release were trained on, but some are said to be no members"
            )
        return member
    if member.all() or not member.any():
        raise ValueError("an audit needs members and non-members, but all records are of one kind; add the other")
    return member


def _update_fits(update: Update | None, model: nn.Module, access: type[Handle]) -> None:
    if (update is None) == (access is Gradients):
        wanted = "access Gradients needs the update that was shared" if update is None else "an update is only attacked"
        raise ValueError(f"{wanted}; give both update=... and access=Gradients, or neither")
    if update is not None:
        update.fits(model)


def _averages_alike(made: Sequence[Tensor], update: Update) -> None:
    """An error where the update is a multiple of what the records leave: no guess of the right size would explain it."""
    a, b = (torch.cat([t.double().flatten() for t in tensors]) for tensors in (made, update.tensors))
    factor = float((a @ b) / (a @ a).clamp_min(torch.finfo(a.dtype).tiny))
    if abs(factor - 1) > MULTIPLE and float((b - factor * a).norm()) < MULTIPLE * float(b.norm()):
        raise ValueError(
            f"the update is {factor:.4g} times what the mean loss of these records leaves: the loss that made it averages "
            "differently, or the rate is another; give the recipe that loss, or divide the update by this"
        )


def _release_fits(release: Release | None, records: Dataset, recipe: Recipe | None, access: type[Handle]) -> None:
    if (release is None) == (access is Informed):
        wanted = (
            "access Informed needs the release" if release is None else "a release is only attacked with its records"
        )
        raise ValueError(f"{wanted}; give both release=... and access=Informed, or neither")
    if release is None:
        return
    check.same_length(records=records, release=release)
    if recipe is None:
        raise ValueError("the informed adversary knows how the models were trained; give the target its recipe")
    release.fits(recipe)
    known = {row.tobytes() for row in release.fixed.x}
    held = [k for k, row in enumerate(records.x.astype(release.fixed.x.dtype)) if row.tobytes() in known]
    if held:
        raise ValueError(
            f"{len(held)} of the records to be reconstructed are among the fixed ones that the adversary holds (first: "
            f"record {held[0]}); remove them from one of the two"
        )


def _answers_fit(whose: str, model: nn.Module, records: Dataset, device: Device) -> None:
    with asking(model):
        try:
            answers = model(torch.as_tensor(records.x[:2], device=device))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            told = str(error).splitlines()[0]
            raise ValueError(f"{whose} does not take records of shape {records.x.shape[1:]}: {told}") from error
    wanted = (len(records.x[:2]), len(records.classes))
    if tuple(getattr(answers, "shape", ())) != wanted:
        raise ValueError(
            f"{whose} must answer one number a class, {wanted[1]} of them, got shape "
            f"{tuple(getattr(answers, 'shape', ())) or type(answers).__name__} for {wanted[0]} records; "
            "give the classes of the records, or a model that returns its logits"
        )
    if not bool(torch.isfinite(answers).all()):
        raise ValueError(f"{whose} answers {answers[~torch.isfinite(answers)][0]:g} for the first records")


def _ran(path: Path) -> object:
    """What the file's `target` is, or what it makes. The user's code may raise anything: say where."""
    try:
        found = runpy.run_path(str(path)).get("target")
        return found() if callable(found) else found
    except (Exception, SystemExit) as error:
        line = next(
            (f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if f.filename == str(path)), 0
        )
        told = str(error).splitlines() or ["no message"]
        raise ValueError(f"{path}, line {line}: {type(error).__name__}: {told[0]}") from error


def trained(
    recipe: Recipe,
    records: Dataset,
    *,
    name: str,
    seed: Seed,
    members: float = 0.5,
    access: type[Handle] = Probabilities,
) -> Target:
    """A target made here: a random share of `records` becomes members, and a model is trained on them."""
    chosen, _ = split(len(records), (members, 1 - members), seed=seed.child("members"))
    member = np.isin(np.arange(len(records)), chosen)
    model = fit(recipe, records.take(member), seed=seed.child("target"))
    return Target(model, records, member, recipe, name, access)


def sharing(
    recipe: Recipe,
    model: nn.Module,
    records: Dataset,
    *,
    name: str,
    seed: Seed,
    rate: float | None = None,
    steps: int = 1,
    normalised: bool = False,
) -> Target:
    """A target made here: a participant with these records shares one update of `model`."""
    update = shared(recipe, model, records, seed=seed, rate=rate, steps=steps, normalised=normalised)
    member = np.ones(len(records), bool)
    return Target(model, records, member, recipe, name, access=Gradients, update=update)


def releasing(
    recipe: Recipe, fixed: Dataset, records: Dataset, others: Dataset, *, name: str, lab: Lab, track: Track = quiet
) -> Target:
    """A target made here: for each of these records a model trained on it and the fixed ones, and let out."""
    release = released(recipe, fixed, records, lab, track)
    model = rebuilt(recipe, {weight: w[0] for weight, w in release.weights.items()}, lab.device)
    member = np.ones(len(records), bool)
    return Target(model, records, member, recipe, name, access=Informed, others=others, release=release)


def embedded(seed: Seed | None = None) -> Target:
    """The target that ships with the tool: a wide network that has learned 150 of 300 handwritten digits by heart."""
    seed = seed or Seed(0)
    rows, _ = split(1797, (300 / 1797, 1497 / 1797), seed=seed.child("records"))
    recipe = Recipe(MLP(inputs=64, classes=10, width=512), epochs=300, sampler=FullBatch())
    return trained(recipe, digits().take(rows), name="digits, learned by heart", seed=seed)


def load(path: str | Path) -> Target:
    """The `target` of a Python file: a `Target`, or a function without arguments that makes one.

    The file is code, and is run as such.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"expected a target file, found none at {path}; `engram new {path}` writes a template")
    if path.suffix != ".py":
        raise ValueError(
            f"a target file is a Python file, got {path.name}; a saved model alone does not say what it was trained on. "
            "Write a template with `engram new target.py`, and load your weights there with engram.models.load_weights"
        )
    made = _ran(path)
    if not isinstance(made, Target):
        raise ValueError(
            f"{path} must define `target`, an engram.Target or a function that returns one; got {made!r:.80}"
        )
    return made
