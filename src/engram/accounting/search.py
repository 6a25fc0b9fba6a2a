"""The best order: a smooth function minimised over all orders above 1, without a grid that would put a floor under it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engram.types import Floats

Objective = Callable[[Floats], Floats]  # orders -> what an order yields; every order is valid, the least is wanted

FIRST = np.geomspace(10**-2.5, 10**4.0, 27)  # orders less 1
OUTWARD = np.geomspace(10**0.25, 10**3.0, 12)
FURTHEST = 1e12
ROUNDS = 30
ENOUGH = 1e-11  # relative: neighbours on both sides no larger than this above the least
NARROW = 1e-8
EVENLY = np.linspace(0, 1, 16)[1:-1]  # across the bracket: a wall beside the least misleads the parabola
ABOUT = np.array([-0.1, -0.01, -1e-4, 0.0, 1e-4, 0.01, 0.1])  # the parabola's top, in brackets


def least(objective: Objective) -> tuple[float, float]:
    """The least value and its order. The order is infinite where no order yields anything finite."""
    b, values = _bracketed(objective)
    if not np.isfinite(values).any():
        return float("inf"), float("inf")
    for _ in range(ROUNDS):
        b, values = _bracket(b, values)
        if values.max() - values.min() <= ENOUGH * abs(values.min()) or b[2] - b[0] <= NARROW * b[1]:
            break
        b, values = _closer(objective, b, values)
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


def _bracket(b: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The least and its neighbours."""
    at = int(np.clip(np.argmin(values), 1, len(b) - 2))
    return b[at - 1 : at + 2], values[at - 1 : at + 2]


def _closer(objective: Objective, b: Floats, values: Floats) -> tuple[Floats, Floats]:
    """More places within a bracket of three."""
    x = np.log(b)
    top = _vertex(x, values) if np.isfinite(values).all() else x[1]
    places = np.concatenate([x[0] + EVENLY * (x[2] - x[0]), top + ABOUT * (x[2] - x[0])])
    fine = np.exp(places[(places > x[0]) & (places < x[2])])
    joined = np.concatenate([fine, b])
    found = np.concatenate([objective(1 + fine), values])
    joined, first = np.unique(joined, return_index=True)
    return joined, found[first]


def _vertex(x: Floats, y: Floats) -> float:
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    bend = (right - left) / (x[2] - x[0])
    return float(x[1]) if bend <= 0 else float(np.clip((x[0] + x[1]) / 2 - left / (2 * bend), x[0], x[2]))
