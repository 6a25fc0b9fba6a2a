"""Chen, Jordan, Wainwright 2020, HopSkipJump for L2 and one record: one loop a line of Algorithms 1 and 2."""

from __future__ import annotations

import math

import numpy as np


def hopskipjump(label, x, y, start, budget, low, high, stream, directions=100):
    """The distance of x (of label y) to the nearest point found, from a start of another label, within so many queries."""
    spent = 0
    theta = len(x) ** -1.5
    steps = math.ceil(math.log2(1 / theta))

    def fools(point):
        nonlocal spent
        spent += 1
        return label(point) != y

    def bisected(point):
        a, b = 0.0, 1.0
        for _ in range(steps):
            middle = (a + b) / 2
            if fools(x + middle * (point - x)):
                b = middle
            else:
                a = middle
        return x + b * (point - x)

    at = bisected(start)
    best = np.linalg.norm(at - x)
    t = 0
    while True:
        t += 1
        n = round(directions * math.sqrt(t))
        if spent + n + 2 + steps > budget:
            return best
        far = np.linalg.norm(at - x)
        delta = 0.1 * np.mean(high - low) if t == 1 else math.sqrt(len(x)) * theta * far
        phi, moves = [], []
        for _ in range(n):
            u = stream.normal(size=len(x))
            point = np.clip(at + delta * u / np.linalg.norm(u), low, high)
            moves.append((point - at) / delta)
            phi.append(1.0 if fools(point) else -1.0)
        mean = np.mean(phi)
        v = sum((p - (0 if abs(mean) == 1 else mean)) * u for p, u in zip(phi, moves, strict=True))
        v = v / np.linalg.norm(v)
        length = far / math.sqrt(t)
        while not fools(np.clip(at + length * v, low, high)):
            length /= 2
        at = bisected(np.clip(at + length * v, low, high))
        best = min(best, np.linalg.norm(at - x))
