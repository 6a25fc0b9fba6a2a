"""Attacks on gradients as their papers write them, record by record and unit by unit. Slow on purpose."""

from __future__ import annotations

import itertools

import numpy as np
import torch


def distance(model, x, soft, told):
    """Zhu, Liu, Han 2019, algorithm 1, lines 4 and 5: ||grad W' - grad W||^2 with soft labels."""
    logits = model(x)
    loss = -(soft * logits.log_softmax(-1)).sum(-1).mean()
    made = torch.autograd.grad(loss, list(model.parameters()))
    return sum(float(((a - b) ** 2).sum()) for a, b in zip(made, told, strict=True))


def spear(g_weight, g_bias, records):
    """Dimitrov et al. 2024, section 3: the kernels of ALL sets of B - 1 rows of L; the B sparsest independent; the scale."""
    u, s, v = np.linalg.svd(g_weight, full_matrices=False)
    left, right = u[:, :records] * s[:records], v[:records]
    left = left / s[0]
    right = right * s[0]
    alive = [j for j in range(len(left)) if np.linalg.norm(left[j]) > 1e-9]
    found = []
    for rows in itertools.combinations(alive, records - 1):
        _, sizes, kernel = np.linalg.svd(left[list(rows)])
        if records > 1 and sizes[-1] < 1e-9:
            continue
        q = kernel[-1]
        d = left[alive] @ q
        found.append((int((np.abs(d) < 1e-9 * np.abs(d).max()).sum()), tuple(q)))
    chosen = []
    for _, q in sorted(found, reverse=True):
        if np.linalg.matrix_rank(np.array([*chosen, q]), tol=1e-6) > len(chosen):
            chosen.append(q)
        if len(chosen) == records:
            break
    q = np.array(chosen).T
    scale = np.linalg.lstsq(left @ q, g_bias, rcond=None)[0]
    return np.linalg.solve(q * scale, right)


def ssim(a, b, span, window, sigma):
    """Wang et al. 2004, equations 13 to 16, window by window."""
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    far = np.arange(window) - window // 2
    w = np.exp(-(far[:, None] ** 2 + far[None] ** 2) / (2 * sigma**2))
    w /= w.sum()
    values = []
    for i, j in itertools.product(range(a.shape[0] - window + 1), range(a.shape[1] - window + 1)):
        x, y = a[i : i + window, j : j + window], b[i : i + window, j : j + window]
        mx, my = (w * x).sum(), (w * y).sum()
        sx, sy = (w * (x - mx) ** 2).sum(), (w * (y - my) ** 2).sum()
        sxy = (w * (x - mx) * (y - my)).sum()
        values.append((2 * mx * my + c1) * (2 * sxy + c2) / ((mx**2 + my**2 + c1) * (sx + sy + c2)))
    return float(np.mean(values))
