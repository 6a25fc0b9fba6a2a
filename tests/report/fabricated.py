"""Stores with a made-up run in them: scores drawn from Gaussians whose leak is known, judged as any others are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from engram.measure import judge, proportion, shuffled, simultaneous
from engram.seed import Seed
from engram.store import Store, Told
from engram.types import Array, Bools, Finding, Floats, Scores

IDENTITY = "5f1d8c0a" * 4
VARIANTS = {"confidence": ("one threshold", "per class"), "lira": ("online, record variance, views: as is",)}
ENVIRONMENT = {
    "engram": "0.1.0",
    "python": "3.11.9",
    "torch": "2.13.0",
    "numpy": "2.2.0",
    "scipy": "1.15.0",
    "system": "Linux x86_64",
    "processor": "a processor",
    "cores": 2,
    "threads": 2,
    "device": "cpu",
}


@dataclass(frozen=True)
class Fabricated:
    """What the made-up run holds."""

    leaks: Mapping[str, float] = field(default_factory=lambda: {"confidence": 0.4, "gap": 0.1, "lira": 1.2})
    guards: Mapping[str, float] = field(default_factory=dict)  # a defence and what it leaves of each leak
    members: int = 300
    non_members: int = 300
    shape: tuple[int, ...] = (1, 8, 8)
    refused: Mapping[str, str] = field(default_factory=dict)
    words: str = ""  # put wherever somebody else's text may come from
    target: Mapping[str, Any] = field(default_factory=dict)
    records: Array | None = None
    finished: bool = True


def fabricate(path: Path, made: Fabricated | None = None) -> tuple[Store, int]:
    """An open store and the number of its one run."""
    made = made or Fabricated()
    store = Store(path)
    member = np.arange(made.members + made.non_members) % 2 == 0
    member = np.random.default_rng(0).permutation(np.arange(len(member)) < made.members)
    run = store.begin(IDENTITY, _about(made, len(member)))
    x = _records(made, len(member))
    labels = np.arange(len(member)) % 10
    classes = np.array([f"{k}{made.words}" for k in range(10)])
    store.respond(run.id, {"truth": member, "labels": labels, "classes": classes})
    for guard, kept in {"": 1.0, **made.guards}.items():
        store.respond(run.id, {f"correct/{guard}": _correct(member, kept)})
        for attack, leak in made.leaks.items():
            store.tell(run.id, *_told(made, attack, leak * kept, guard, member))
    ids = _exposed(store, run.id, member)
    store.respond(run.id, {"exposed_ids": ids, "exposed_records": x[ids]})
    store.judge(run.id, [*_judged(store, run.id, member, tuple(made.guards)), *_refused(made)])
    if made.finished:
        store.finish(run.id)
    return store, run.id


def _about(made: Fabricated, records: int) -> dict[str, Any]:
    target = {
        "name": f"digits, learned by heart{made.words}",
        "model": "MLP",
        "parameters": 38410,
        "identity": IDENTITY,
        "data": f"digits{made.words}",
        "records": records,
        "members": made.members,
        "shape": list(made.shape),
        "classes": [str(k) for k in range(10)],
        "access": "Probabilities",
        "budget": None,
        "others": 0,
        "recipe": "Recipe(build=MLP(inputs=64, classes=10, width=512), epochs=300)",
        "duplicates": "",
        "notes": [f"made up{made.words}"],
    }
    knobs: dict[str, Any] = {name: {"shadows": 64} for name in (*made.leaks, *made.refused)}
    return {
        "command": ["engram", "audit", f"target.py{made.words}"],
        "target": {**target, **made.target},
        "attacks": knobs,
        "defences": {guard: {"strength": 0.2} for guard in made.guards},
        "seed": 0,
        "environment": ENVIRONMENT,
    }


def _records(made: Fabricated, n: int) -> Array:
    if made.records is not None:
        return made.records[:n]
    return np.random.default_rng(1).random((n, *made.shape), np.float32)


def _correct(member: Bools, kept: float) -> Bools:
    luck = np.random.default_rng(2).random(len(member))
    return luck < np.where(member, 0.9 + 0.1 * kept, 0.88 + 0.02 * kept)


def _told(made: Fabricated, attack: str, leak: float, guard: str, member: Bools) -> Sequence[Told]:
    about = {
        "knobs": {"shadows": 64},
        "asks": "Labels" if attack == "gap" else "Probabilities",
        "knowledge": f"the candidate records and their labels, the training recipe{made.words}",
        "queries": len(member),
        "seconds": 1.25,
        "question": "membership",
        "paper": f"Somebody et al. 2022{made.words}",
    }
    variants = VARIANTS.get(attack, ("",))
    said = [_scores(attack, leak / (1 + i), member, f"{v}{made.words}") for i, v in enumerate(variants)]
    return [Told(attack, guard, scores, about) for scores in said]


def _scores(attack: str, leak: float, member: Bools, variant: str) -> Scores:
    stream = Seed(3).child(attack, variant).numpy()
    ids = np.arange(len(member))
    if attack == "gap":
        right = stream.random(len(member)) < np.where(member, 0.9 + leak, 0.9)
        return Scores(right.astype(float), ids, claims=right, variant=variant)
    values: Floats = stream.normal(size=len(member)) + np.where(member, leak * stream.exponential(size=len(member)), 0)
    return Scores(values, ids, claims=values > leak / 2, variant=variant)


def _exposed(store: Store, run: int, member: Bools) -> Array:
    tops = [t.evidence for t in store.told(run, defence="")]
    found = [np.argsort(np.where(member, -s.values, np.inf))[:12] for s in tops if isinstance(s, Scores)]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _judged(store: Store, run: int, member: Bools, guards: Sequence[str]) -> list[Finding]:
    found: list[Finding] = []
    for guard in ("", *guards):
        right = np.asarray(store.responses(run)[f"correct/{guard}"])
        for kind, metric in ((True, "accuracy_members"), (False, "accuracy_non_members")):
            found.append(replace(proportion(right[member == kind], metric), defence=guard))
    told = store.told(run)
    level = simultaneous(0.95, max(1, len(told)))
    for one in told:
        assert isinstance(one.evidence, Scores)
        seed = Seed(4).child(one.attack, one.defence, one.evidence.variant)
        judged = [*judge(one.evidence, member, seed=seed), shuffled(one.evidence, member, seed=seed, level=level)]
        found += [replace(f, attack=one.attack, defence=one.defence) for f in judged]
    return found


def _refused(made: Fabricated) -> list[Finding]:
    return [Finding("auc", None, None, None, n=0, reason=why, attack=name) for name, why in made.refused.items()]
