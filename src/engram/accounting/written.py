"""Events as plain dictionaries and back, for budgets that are saved with a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from engram import check
from engram.accounting.events import Composed, Event, Leaf, Schedule

KINDS = {kind.__name__: kind for kind in get_args(Leaf)}


def plain(event: Event) -> dict[str, Any]:
    """Numbers, strings, lists and dictionaries only.

    >>> from engram.accounting import Gaussian
    >>> plain(Gaussian(1.5))
    {'kind': 'Gaussian', 'noise_multiplier': 1.5}
    """
    kind = type(event).__name__
    if isinstance(event, Composed):
        return {"kind": kind, "parts": [[plain(part), int(count)] for part, count in event.parts]}
    if isinstance(event, Schedule):
        steps = zip(*(part.tolist() for part in event.pairs), strict=True)
        return {"kind": kind, "steps": [[noise, rate, int(n)] for noise, rate, n in steps]}
    return {"kind": kind} | {f.name: _told(getattr(event, f.name)) for f in fields(event)}


def read(told: Mapping[str, Any]) -> Event:
    """The event that `plain` wrote."""
    kind = check.known("event", str(told.get("kind")), (*KINDS, "Composed"))
    if kind == "Composed":
        return Composed(*((read(part), count) for part, count in told["parts"]))
    if kind == "Schedule":
        steps = [(noise, rate) for noise, rate, n in told["steps"] for _ in range(n)]
        return Schedule([s for s, _ in steps], [q for _, q in steps])  # type: ignore[arg-type]
    given = {name: read(v) if isinstance(v, Mapping) else v for name, v in told.items() if name != "kind"}
    made: Event = KINDS[kind](**given)
    return made


def _told(value: Any) -> Any:
    return plain(value) if isinstance(value, get_args(Leaf)) else value
