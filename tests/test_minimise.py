from __future__ import annotations

from collections import deque

import pytest
import torch

from engram.minimise import _direction, _pair, lbfgs, signed_adam


def rosenbrock(z):
    a, b = z[:, 0], z[:, 1]
    return (1 - a) ** 2 + 100 * (b - a**2) ** 2


def test_every_problem_reaches_its_own_minimum():
    start = torch.tensor([[-1.2, 1.0], [2.0, 2.0], [0.0, -1.0]], dtype=torch.float64)
    found = lbfgs(rosenbrock, start, steps=range(200))
    torch.testing.assert_close(found.z, torch.ones_like(start))
    assert found.evaluations < 200


def test_a_problem_is_not_changed_by_its_neighbours():
    start = torch.tensor([[-1.2, 1.0], [2.0, 2.0], [0.0, -1.0]], dtype=torch.float64)
    together = lbfgs(rosenbrock, start, steps=range(12))
    alone = torch.cat([lbfgs(rosenbrock, row[None], steps=range(12)).z for row in start])
    torch.testing.assert_close(together.z, alone, rtol=1e-6, atol=1e-9)


def test_a_quadratic_of_wildly_different_scales_is_solved():
    scale = torch.logspace(0, 6, 20, dtype=torch.float64)
    found = lbfgs(lambda z: (scale * (z - 1) ** 2).sum(1), torch.zeros(2, 20, dtype=torch.float64), steps=range(500))
    torch.testing.assert_close(found.z, torch.ones(2, 20, dtype=torch.float64), rtol=0, atol=1e-6)


def test_it_never_climbs_and_stops_where_nothing_lowers_the_cost():
    found = lbfgs(lambda z: z.abs().sum(1), torch.tensor([[0.5], [-3.0]], dtype=torch.float64), steps=range(50))
    assert (found.costs <= torch.tensor([0.5, 3.0])).all()
    stuck = lbfgs(lambda z: z.sum(1) * 0 + 1, torch.ones(1, 3, dtype=torch.float64), steps=range(50))
    assert stuck.steps == 1


def test_a_cost_that_is_no_number_is_walked_around():
    found = lbfgs(
        lambda z: (z.sqrt() - 1).square().sum(1), torch.full((1, 1), 9.0, dtype=torch.float64), steps=range(60)
    )
    assert found.z.item() == pytest.approx(1)


def test_signed_adam_keeps_the_best_and_stays_in_its_box():
    start = torch.tensor([[0.9, 0.1], [0.2, 0.2]], dtype=torch.float64)
    goal = torch.tensor([0.5, 2.0], dtype=torch.float64)
    found = signed_adam(lambda z: (z - goal).square().sum(1), start, steps=range(400), total=400, box=(0.0, 1.0))
    torch.testing.assert_close(found.z, torch.tensor([[0.5, 1.0], [0.5, 1.0]], dtype=torch.float64), rtol=0, atol=2e-3)
    torch.testing.assert_close(found.costs, (found.z - goal).square().sum(1))


def test_its_direction_is_that_of_the_matrix_it_stands_for():
    """The two loops multiply by the BFGS inverse (Nocedal 1980, equation 4), started from a multiple of the identity."""
    stream = torch.Generator().manual_seed(0)
    s, y = (torch.randn(3, 5, generator=stream, dtype=torch.float64) for _ in range(2))
    y = y * (s * y).sum(1, keepdim=True).sign()
    g = torch.randn(1, 5, generator=stream, dtype=torch.float64)
    pairs = deque(_pair(a[None], b[None]) for a, b in zip(s, y, strict=True))
    inverse = torch.eye(5, dtype=torch.float64) * (s[-1] @ y[-1]) / (y[-1] @ y[-1])
    for a, b in zip(s, y, strict=True):
        left = torch.eye(5, dtype=torch.float64) - torch.outer(a, b) / (a @ b)
        inverse = left @ inverse @ left.T + torch.outer(a, a) / (a @ b)
    torch.testing.assert_close(_direction(g, pairs)[0], -inverse @ g[0])
