"""Attacks on a target, and on the same training with each defence: evidence first, then what it is worth, in a store.

Everything that is finished is stored as it comes. The same audit, started again, goes on where it was.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import engram
from engram import check
from engram.access import Gradients, Handle, Informed, Lab, Labels, OutOfQueries, Release, Unknown, Unsuited, Weights
from engram.access.informed import released
from engram.accounting.limits import Claim, broken
from engram.attacks import attack as attack_named
from engram.attacks import kind as attack_kind
from engram.attacks import knobs_of as knobs_of_attack
from engram.attacks import known as known_attacks
from engram.chunks.local import Local
from engram.data import duplicates, fingerprint
from engram.defences import defence as defence_named
from engram.defences import knobs_of
from engram.environment import environment
from engram.measure import epsilon_at, judge, proportion, recovery, shuffled, simultaneous
from engram.seed import Seed
from engram.signals import shown
from engram.store import Run, Store, Told
from engram.target import NotGranted, Target
from engram.train import Recipe, fit_many, shared
from engram.train.loop import rebuilt
from engram.train.plan import planned
from engram.types import Array, Arrays, Attack, Bools, Finding, Piece, Recovered, Scores, Track, quiet

Knobs = Mapping[str, Mapping[str, Any]]  # name of an attack or a defence -> its knobs
UNDEFENDED = ""
REFUSED = f"recovered@{recovery.CLOSE:g}"  # what an attack on records would have been measured by
SHOWN = 12  # exposed records kept for each attack
MEMBERSHIP = ("gap", "confidence", "entropy", "modified-entropy", "lira", "rmia", "bavaria")
LABEL_ONLY = ("gap", "augmentation", "noise", "boundary", "yoqo")
IMAGES = ("augmentation", "combined")  # attacks that turn or shift records
SUITED: dict[type[Handle], tuple[str, ...]] = {
    Labels: LABEL_ONLY,
    Weights: (*MEMBERSHIP, "carlini-wagner", "adversarial-confidence"),
    Informed: ("reconstructor", "inversion"),
    Gradients: ("bag-of-labels", "linear-layer", "recursive", "spear", "deep-leakage", "inverting-gradients"),
}


@dataclass(frozen=True)
class Plan:
    """What to try: which attacks, behind which defences, with which knobs."""

    attacks: tuple[str, ...] | None = None  # None: those that suit the target's access
    defences: tuple[str, ...] = ()
    knobs: Knobs = dataclasses.field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.told()  # an unknown name or knob is an error now, not after an hour
        for name in self.knobs:
            check.known("attack or defence of this audit", name, (*(self.attacks or known_attacks()), *self.defences))
            if name not in self.defences:
                self.attack(name)

    def suited(self, access: type[Handle], *, images: bool = True) -> Plan:
        """With the attacks that are tried by default where the adversary is granted this."""
        if self.attacks is not None:
            return self
        names = SUITED.get(access, MEMBERSHIP)
        return replace(self, attacks=tuple(name for name in names if images or name not in IMAGES))

    def attack(self, name: str) -> Attack:
        return attack_named(name, self.knobs.get(name))

    def told(self) -> dict[str, Any]:
        made = {name: knobs_of_attack(self.attack(name)) for name in self.attacks or ()}
        for name in self.defences:
            defence_named(name, self.knobs.get(name))
        guards = {name: {**knobs_of(name), **self.knobs.get(name, {})} for name in self.defences}
        return {"attacks": made, "defences": guards, "seed": self.seed}


def audit(
    target: Target, plan: Plan | None = None, *, store: Store, command: Sequence[str] = (), track: Track = quiet
) -> Run:
    """Every attack of the plan, on the target and behind every defence; the finished run."""
    plan = (plan or Plan()).suited(target.access, images=target.records.x.ndim == 4)
    for name in plan.defences:
        guarded(target, name, plan)  # a knob that cannot be is an error now, not after the attacks on the plain model
    about = {
        "command": list(command),
        "target": _about(target),
        **plan.told(),
        "environment": environment(target.device),
    }
    run = store.begin(fingerprint("audit", engram.__version__, target.identity(), plan.told()), about)
    truth = {"truth": target.member, "labels": target.records.y, "classes": np.array(target.records.classes)}
    if target.update is not None:
        truth |= {"shared_records": target.records.x, "self_test": np.array(target.self_test())}
    if target.release is not None:
        truth["missing_records"] = target.records.x
        truth["nearest_held"] = _nearest_held(target, target.release)
    store.respond(run.id, truth)
    refused: list[Finding] = []
    for defence in (UNDEFENDED, *plan.defences):
        arm = defended(target, defence, plan, store) if defence else target
        if target.release is None:  # else each record has a model of its own
            store.respond(run.id, {f"correct/{defence}": _correct(arm)})
        for name in plan.attacks or ():
            if not store.told(run.id, attack=name, defence=defence):
                refused += _attacked(arm, name, defence, plan, run, store, track)
    store.respond(run.id, _exposed(target, store.told(run.id)))
    store.judge(run.id, [*judged(store, run, Seed(plan.seed)), *refused])
    store.finish(run.id)
    return store.run(run.id)


def judged(store: Store, run: Run, seed: Seed) -> list[Finding]:
    """What the stored evidence is worth. Touches no model, so new metrics run on old evidence."""
    responses = store.responses(run.id)
    truth = np.asarray(responses["truth"])
    found = [
        replace(
            proportion(right[truth == kind], metric), defence=name.partition("/")[2], non_members=int((~truth).sum())
        )
        for name, right in responses.items()
        if name.startswith("correct/")
        for kind, metric in ((True, "accuracy_members"), (False, "accuracy_non_members"))
        if (truth == kind).any()
    ]
    found += _recovered(store, run, responses)
    evidence = [told for told in store.told(run.id) if isinstance(told.evidence, Scores)]
    level = simultaneous(0.95, max(1, len(evidence)))
    for told in evidence:
        assert isinstance(told.evidence, Scores)
        scores, member = told.evidence, truth[told.evidence.ids]
        own = seed.child("judge", told.attack, told.defence, scores.variant)
        findings = [*judge(scores, member, seed=own), shuffled(scores, member, seed=own.child("shuffled"), level=level)]
        if not told.defence:
            findings += _contradicted(run, scores, member, level)
        found += [replace(f, attack=told.attack, defence=told.defence) for f in findings]
    return found


def _contradicted(run: Run, scores: Scores, member: Bools, level: float) -> list[Finding]:
    """A loud finding where what was measured lies above what the training claims; all attacks together at 95 %."""
    promise = run.about["target"].get("claim")
    if not promise:
        return []
    claim = Claim(*promise)
    measured = epsilon_at(scores, member, claim.delta, level)
    loud = broken(measured, claim, at_delta=claim.delta) if measured and measured.value is not None else None
    return [replace(loud, variant=scores.variant)] if loud else []


def _recovered(store: Store, run: Run, responses: Arrays) -> list[Finding]:
    """What guesses are worth: of the batch behind an update, or of the one record that each released model knew."""
    y = np.asarray(responses["labels"])
    found: list[Finding] = []
    for told in store.told(run.id):
        if not isinstance(told.evidence, Recovered):
            continue
        if "shared_records" in responses:
            worth = recovery.judge(told.evidence, np.asarray(responses["shared_records"]), y)
        else:
            x, nearest = np.asarray(responses["missing_records"]), np.asarray(responses["nearest_held"])
            worth = recovery.of_missing(told.evidence, x, y, nearest)
        found += [replace(f, attack=told.attack, defence=told.defence) for f in worth]
    return found


def _nearest_held(target: Target, release: Release) -> Array:
    """For each missing record the nearest that the adversary holds: what one could say without any attack."""
    held = release.fixed.x if target.others is None else np.concatenate([release.fixed.x, target.others.x])
    return recovery.nearest(target.records.x, held)


def guarded(target: Target, name: str, plan: Plan) -> Recipe:
    """The target's recipe with a defence."""
    if target.recipe is None:
        raise Unknown(
            f"{name} changes how the model is trained, and this target does not say how it was; give it a recipe"
        )
    return defence_named(name, plan.knobs.get(name))(target.recipe)


def defended(target: Target, name: str, plan: Plan, store: Store) -> Target:
    """The same records and the same training with a defence. The model is trained once, and stored."""
    recipe = guarded(target, name, plan)
    assert target.recipe is not None
    told = f"{target.name}, with {name}"
    if target.update is not None:
        return _shared_again(target, recipe, told, Seed(plan.seed).child("defended", name))
    if target.release is not None:
        lab = Lab(Seed(plan.seed).child("defended", name), Local(store), target.device)
        again = released(recipe, target.release.fixed, target.records, lab)
        first = rebuilt(recipe, {weight: w[0] for weight, w in again.weights.items()}, target.device)
        return replace(target, model=first, recipe=recipe, release=again, name=told)
    if fingerprint(replace(recipe, after=())) == fingerprint(replace(target.recipe, after=())):
        return replace(target, recipe=recipe, name=told)  # only the answers change
    seed = Seed(plan.seed).child("defended", name)
    piece = Piece(f"defended/{fingerprint(recipe, target.records.x, target.records.y, target.member, seed)}")

    def train(_: Piece) -> Arrays:
        rows = np.flatnonzero(target.member)[None]
        stacked = planned(recipe, target.records, rows.shape[1], target.device).stacked
        models = fit_many(recipe, target.records, rows, [seed], stacked=stacked, device=target.device)
        return {weight: value[0].cpu().numpy() for weight, value in models.weights().items()}

    (weights,) = Local(store).run([piece], train)
    return replace(target, model=rebuilt(recipe, weights, target.device), recipe=recipe, name=told)


def _shared_again(target: Target, recipe: Recipe, name: str, seed: Seed) -> Target:
    """The same model and batch, and the update that a participant who follows this recipe shares of them."""
    assert target.update is not None
    rate, steps, dtype = target.update.rate, target.update.steps, target.update.tensors[0].dtype
    normalised = bool(target.update.statistics)
    update = shared(
        recipe, target.model, target.records, seed=seed, rate=rate, steps=steps, dtype=dtype, normalised=normalised
    )
    return replace(target, recipe=recipe, update=update, name=name)


def _attacked(
    target: Target, name: str, defence: str, plan: Plan, run: Run, store: Store, track: Track
) -> list[Finding]:
    """Keep what the attack says, with the circumstances; where it cannot be tried, a finding that says why."""
    cls, attack, seed = attack_kind(name), plan.attack(name), Seed(plan.seed)
    lab = Lab(seed.child("shadows"), Local(store), target.device)
    began = time.perf_counter()
    try:
        handle = target.handle(cls.asks, lab)
        said = attack(handle, seed=seed.child("attack", name), track=track)
    except (NotGranted, Unknown, Unsuited, OutOfQueries) as reason:
        metric = "auc" if cls.question == "membership" else REFUSED
        return [Finding(metric, None, None, None, n=0, reason=str(reason), attack=name, defence=defence)]
    about = {
        "knobs": knobs_of_attack(attack),
        "asks": cls.asks.__name__,
        "knowledge": str(handle.knowledge),
        "queries": handle.queries,
        "seconds": round(time.perf_counter() - began, 3),
        "question": cls.question,
        "paper": cls.paper,
    }
    said = said if isinstance(said, Sequence) else [said]
    apart = [handle.by_tensor(one) if isinstance(handle, Gradients) else [] for one in said]
    store.tell(
        run.id, *(Told(name, defence, one, {**about, "residuals": r}) for one, r in zip(said, apart, strict=True))
    )
    return []


def _correct(target: Target) -> Bools:
    """Which records the model gets right, [record]."""
    labels = shown(target.answer(torch.as_tensor(target.records.x, device=target.device))).cpu().numpy()
    right: Bools = labels == target.records.y
    return right


def _exposed(target: Target, said: Sequence[Told]) -> Arrays:
    """The members that each attack is surest of, as the report shows them."""
    tops = [t.evidence for t in said if isinstance(t.evidence, Scores) and t.defence == UNDEFENDED]
    found = [
        s.ids[target.member[s.ids]][np.argsort(-s.values[target.member[s.ids]], kind="stable")[:SHOWN]] for s in tops
    ]
    ids = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
    return {"exposed_ids": ids, "exposed_records": target.records.x[ids]}


def _about(target: Target) -> dict[str, Any]:
    records, twice = target.records, duplicates(target.records.x, target.member)
    return {
        "name": target.name,
        "model": type(target.model).__name__,
        "parameters": sum(p.numel() for p in target.model.parameters()),
        "identity": target.identity(),
        "data": records.name,
        "records": len(records),
        "members": int(target.member.sum()),
        "shape": list(records.x.shape[1:]),
        "classes": list(records.classes),
        "access": target.access.__name__,
        "budget": target.budget,
        "claim": target.claim,
        "others": 0 if target.others is None else len(target.others),
        "recipe": str(target.recipe) if target.recipe else None,
        "duplicates": str(twice) if twice else "",
        "notes": list(target.notes),
    }
