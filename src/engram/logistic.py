"""Small classifiers, one for each class of records: logistic regressions that lean on the one over all classes.

Greenland: Principles of multilevel modelling, 2000 (a ridge penalty towards a common centre).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from engram.types import Bools, Floats, Ints

STEPS = 30


@dataclass(frozen=True, eq=False)
class ByClass:
    """Log odds of membership from features, with weights of its own for each class; larger = more likely a member."""

    weights: Floats  # [class, 1 + feature]; the first is the intercept
    centre: Floats  # [feature]
    scale: Floats  # [feature]

    def __call__(self, features: Floats, group: Ints) -> Floats:
        """features [..., record, feature], group [record] -> [..., record]"""
        return np.asarray((_with_one((features - self.centre) / self.scale) * self.weights[group]).sum(-1))


def fitted(
    features: Floats, member: Bools, group: Ints, groups: int, *, ridge: float = 1.0, towards: float = 10.0
) -> ByClass:
    """From features [record, feature] of known membership. `towards` is how hard a class is pulled to the common weights."""
    centre, scale = features.mean(0), features.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    x = _with_one((features - centre) / scale)
    y = member.astype(float)
    common = _newton(x, y, np.zeros(x.shape[1]), ridge)
    each = [_newton(x[group == g], y[group == g], common, towards) for g in range(groups)]
    return ByClass(np.stack(each), centre, scale)


def _newton(x: Floats, y: Floats, centre: Floats, ridge: float) -> Floats:
    """argmin of the log loss + ridge / 2 |w - centre|^2: strictly convex, so Newton with halved steps ends at it."""
    w = centre.copy()
    for _ in range(STEPS if len(y) else 0):
        p = expit(x @ w)
        slope = x.T @ (p - y) + ridge * (w - centre)
        bend = (x * (p * (1 - p))[:, None]).T @ x + ridge * np.eye(len(w))
        move = np.linalg.solve(bend, slope)
        step = 1.0
        while step > 1e-6 and _cost(x, y, w - step * move, centre, ridge) > _cost(x, y, w, centre, ridge) + 1e-12:
            step /= 2
        w = w - step * move
        if np.abs(move).max() < 1e-12:
            break
    return w


def _cost(x: Floats, y: Floats, w: Floats, centre: Floats, ridge: float) -> float:
    z = x @ w
    return float(np.logaddexp(0, z).sum() - y @ z + ridge / 2 * ((w - centre) ** 2).sum())


def _with_one(x: Floats) -> Floats:
    return np.concatenate([np.ones((*x.shape[:-1], 1)), x], -1)
