from __future__ import annotations

from collections import deque

import pytest
import torch

from engram.minimise import _direction, _pair, lbfgs, least_squares, signed_adam


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


def curved(z, rows):
    """Residuals of problems that differ by how they bend; zero at z = (1, 2)."""
    bend = 0.3 * (1 + rows.to(z))[:, None]
    a = z - torch.tensor([1.0, 2.0]).to(z)
    return torch.cat([a, bend * a * a.flip(1), bend * torch.sin(a)], 1)


def its_slopes(z, rows):
    return torch.stack(
        [torch.func.jacrev(lambda one, r=r: curved(one[None], r[None])[0])(v) for v, r in zip(z, rows, strict=True)]
    )


@pytest.mark.parametrize("renew", [1, 100])
def test_least_squares_ends_at_the_zero_of_each_problem(renew):
    z = torch.tensor([[4.0, -3.0], [0.0, 0.0], [2.0, 1.0]]).double()
    found = least_squares(curved, its_slopes, z, steps=range(60), renew=renew, enough=1e-26)
    torch.testing.assert_close(found.z, torch.tensor([[1.0, 2.0]]).double().expand(3, 2), rtol=0, atol=1e-10)
    assert found.steps < 60


def test_secants_repair_slopes_that_are_wrong():
    """Slopes half wrong: with secants the digits come, without them a fixed share of the error is left at each step."""

    def rough(z, rows):
        return its_slopes(z, rows) * torch.tensor([0.5, 1.6]).to(z)

    z = torch.tensor([[1.5, 1.0]]).double()
    steps = range(14)
    with_secants = least_squares(curved, rough, z, steps=steps, renew=100).costs
    without = least_squares(curved, rough, z, steps=steps, renew=1).costs
    assert with_secants < 1e-18
    assert without > 1e-12


def test_a_least_squares_problem_does_not_see_the_others():
    z = torch.tensor([[4.0, -3.0], [0.0, 0.5]]).double()
    both = least_squares(curved, its_slopes, z, steps=range(5))
    own = least_squares(
        lambda v, rows: curved(v, rows + 1), lambda v, rows: its_slopes(v, rows + 1), z[1:], steps=range(5)
    )
    torch.testing.assert_close(both.z[1], own.z[0], rtol=1e-12, atol=1e-12)


def test_a_problem_that_is_not_finite_somewhere_turns_back():
    def walled(z, rows):  # noqa: ARG001
        return torch.where(z > 3, torch.nan, z - 2)

    found = least_squares(
        walled,
        lambda _, rows: 0.2 * torch.eye(1).double().expand(len(rows), 1, 1),
        torch.zeros(1, 1).double(),
        steps=range(30),
    )
    assert found.z.item() == pytest.approx(2, abs=1e-6)
