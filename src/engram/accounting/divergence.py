"""Exact Renyi divergences of single mechanisms, at any order in (1, infinity], and at the limit order 1.

Mironov: Renyi Differential Privacy, 2017. Definition 3, Propositions 5 to 7 (Gaussian, Laplace, randomised response).
Mironov, Talwar, Zhang: Renyi Differential Privacy of the Sampled Gaussian Mechanism, 2019. Section 3.
Wang, Balle, Kasiviswanathan: Subsampled Renyi Differential Privacy and Analytical Moments Accountant, 2019. Theorem 9.
Differs from the papers: everything is written in psi(t) = e^t - 1 - t >= 0, in which no term cancels another, so tiny
divergences keep their digits; and the sampled Gaussian is integrated at every order instead of expanded at whole ones.

All curves answer the larger of both directions of the neighbouring pair. Nats everywhere.
"""

from __future__ import annotations

import numpy as np

from engram.types import Floats

SMALLEST_RATE = 1e-150  # a smaller rate is charged as this one: its powers stay above the smallest double


def psi(t: Floats) -> Floats:
    """e^t - 1 - t, to full relative precision."""
    near = np.abs(t) < 0.5
    s = np.where(near, t, 0.0)
    series = np.zeros_like(s)
    for k in range(15, 1, -1):
        series = (series + 1.0) * s / k  # s^2/2! + s^3/3! + ... by Horner, divided once more by s below
    return np.where(near, series * s, np.expm1(np.where(near, 0.0, t)) - t)
