"""The best order: a smooth function minimised over all orders above 1, without a grid that would put a floor under it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engram.types import Floats

Objective = Callable[[Floats], Floats]  # orders -> what an order yields; every order is valid, the least is wanted

FIRST = np.geomspace(10**-2.5, 10**4.0, 27)  # orders less 1
OUTWARD = np.geomspace(10**0.25, 10**3.0, 12)
FURTHEST = 1e12
ROUNDS = (0.5, 0.03)  # how much of the bracket each closer look spans


def least(objective: Objective) -> tuple[float, float]:
    """The least value and its order. The order is infinite where no order yields anything finite."""
    b, values = _bracketed(objective)
    if not np.isfinite(values).any():
        return float("inf"), float("inf")
    for share in ROUNDS:
        b, values = _closer(objective, b, values, share)
    at = int(np.argmin(values))
    return float(values[at]), float(1 + b[at])


def _bracketed(objective: Objective) -> tuple[Floats, Floats]:
    """Values on a wide grid that reaches beyond the least on both sides."""
    b, values = FIRST, objective(1 + FIRST)
    while (at := int(np.argmin(values))) in (0, len(b) - 1) and 1 / FURTHEST < b[at] < FURTHEST:
        more = b[0] / OUTWARD[::-1] if at == 0 else b[-1] * OUTWARD
        found = objective(1 + more)
        if not found.min() < values[at]:
            break
        b, values = (np.concatenate(pair if at == 0 else pair[::-1]) for pair in ((more, b), (found, values)))
    return b, values


def _closer(objective: Objective, b: Floats, values: Floats, share: float) -> tuple[Floats, Floats]:
    """A finer grid about the top of the parabola through the least value and its neighbours."""
    at = int(np.clip(np.argmin(values), 1, len(b) - 2))
    x, y = np.log(b[at - 1 : at + 2]), values[at - 1 : at + 2]
    middle = _vertex(x, y) if np.isfinite(y).all() else x[1]
    half = share * (x[2] - x[0]) / 2
    fine = np.exp(np.linspace(max(x[0], middle - half), min(x[2], middle + half), 13))
    joined = np.concatenate([fine, b[at - 1 : at + 2]])
    found = np.concatenate([objective(1 + fine), y])
    joined, first = np.unique(joined, return_index=True)
    return joined, found[first]


def _vertex(x: Floats, y: Floats) -> float:
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    bend = (right - left) / (x[2] - x[0])
    return float(x[1]) if bend <= 0 else float(np.clip((x[0] + x[1]) / 2 - left / (2 * bend), x[0], x[2]))
