"""All that the store holds of one run, read once: what the sections of a report are written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from engram.store import Run, Store, Told
from engram.types import Arrays, Bools, Finding, Scores

Name = tuple[str, str]  # an attack and its variant
TARGET: Name = ("", "")  # findings on the model itself, such as its accuracy
UNDEFENDED = ""


@dataclass(frozen=True, eq=False)
class Dossier:
    """One run as the report sees it. A run that has not finished has fewer findings, never wrong ones."""

    run: Run
    told: tuple[Told, ...]
    findings: tuple[Finding, ...]
    responses: Arrays
    redact: bool = False

    @property
    def target(self) -> Mapping[str, Any]:
        return dict(self.run.about.get("target", {}))

    @property
    def defences(self) -> tuple[str, ...]:
        return tuple(self.run.about.get("defences", {}))

    @property
    def arms(self) -> tuple[str, ...]:
        """The model as it is, then behind each defence."""
        return (UNDEFENDED, *self.defences)

    @property
    def member(self) -> Bools | None:
        """[record] the truth, where it was stored"""
        return np.asarray(self.responses["truth"], bool) if "truth" in self.responses else None

    @cached_property
    def _by_name(self) -> dict[tuple[str, Name, str], Finding]:
        return {(f.metric, (f.attack, f.variant), f.defence): f for f in self.findings}

    def finding(self, metric: str, name: Name = TARGET, defence: str = UNDEFENDED) -> Finding | None:
        return self._by_name.get((metric, name, defence))

    def of_arm(self, defence: str) -> list[Finding]:
        return [f for f in self.findings if f.defence == defence and f.attack]

    def ranking(self, defence: str = UNDEFENDED) -> list[Name]:
        """Attacks and variants with an AUC, highest first."""
        areas = [f for f in self.of_arm(defence) if f.metric == "auc" and f.value is not None]
        return [(f.attack, f.variant) for f in sorted(areas, key=lambda f: (-(f.value or 0), f.attack, f.variant))]

    def leaders(self, defence: str = UNDEFENDED) -> list[Name]:
        """The best variant of each attack, best first."""
        best: dict[str, Name] = {}
        for name in self.ranking(defence):
            best.setdefault(name[0], name)
        return list(best.values())

    def scores(self, name: Name, defence: str = UNDEFENDED) -> Scores | None:
        for told in self.told:
            evidence = told.evidence
            if isinstance(evidence, Scores) and (told.attack, evidence.variant, told.defence) == (*name, defence):
                return evidence
        return None

    def refused(self) -> list[Finding]:
        """Attacks that were tried and could not be, each with its reason."""
        return [f for f in self.findings if f.attack and f.value is None and _first(f.metric)]

    def questions(self) -> set[str]:
        """The questions that some attack of this run was asked to answer, refused ones included."""
        asked = {str(t.about.get("question", "")) for t in self.told}
        return asked | {"membership" for f in self.findings if f.attack and f.metric == "auc"}


def _first(metric: str) -> bool:
    """The metric that stands for an attack as a whole."""
    return metric == "auc" or metric.startswith("recovered@")


def dossier(store: Store, run: int, *, redact: bool = False) -> Dossier:
    return Dossier(store.run(run), tuple(store.told(run)), tuple(store.findings(run)), store.responses(run), redact)
