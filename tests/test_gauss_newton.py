from __future__ import annotations

import torch

from engram.gauss_newton import columns, gram, metric, minimised
from engram.minimise import lbfgs


def valley(z):
    """A chain of Rosenbrock's valleys as residuals."""
    return torch.cat([1 - z, 100 * (z[:, 1:] - z[:, :-1].square())], 1)


def test_columns_are_those_of_the_slope():
    z = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slope = torch.autograd.functional.jacobian(lambda at: valley(at[None])[0], z)
    torch.testing.assert_close(columns(valley, z).T.double(), slope, rtol=1e-4, atol=1e-4)


def test_a_gram_matrix_in_bands_is_the_gram_matrix():
    rows = torch.randn(19, 30, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(gram(rows), rows @ rows.T)


def test_the_metric_makes_the_valley_round():
    z = torch.ones(12, dtype=torch.float64)
    factor = metric(valley, z)
    slope = columns(valley, z).T.double()
    round_ = torch.linalg.svdvals(slope @ torch.linalg.inv(factor).T)
    rough = torch.linalg.svdvals(slope)
    assert rough.max() / rough.min() > 100
    assert round_.max() / round_.min() < 15


def test_a_problem_without_slope_still_has_a_metric():
    factor = metric(lambda z: z * 0 + 1e-3 * z[:, :1], torch.ones(4, dtype=torch.float64))
    assert torch.isfinite(factor).all()


def test_a_long_valley_is_walked_where_plain_steps_are_not_enough():
    """Sizes over five decades, mixed and bent a little, as in the gradient of a sigmoid network."""
    stream = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(60, 60, generator=stream, dtype=torch.float64)).Q
    sizes = torch.logspace(0, -5, 60, dtype=torch.float64)

    def left(z):
        mixed, true = z @ turn, turn.sum(0)
        return sizes * (mixed + 0.1 * mixed**3 - true - 0.1 * true**3)

    start = torch.randn(1, 60, generator=stream, dtype=torch.float64)
    plain = lbfgs(lambda z: left(z).square().sum(1), start, steps=range(500))
    ours = minimised(left, start, steps=iter(range(500)), enough=1e-24)
    assert ours.steps <= 500
    assert (plain.z - 1).abs().max() > 1e-2
    assert (ours.z - 1).abs().max() < 1e-4


def test_it_gives_up_where_nothing_halves_the_cost():
    found = minimised(
        lambda z: torch.cat([z, z * 0 + 1], 1), torch.ones(1, 3, dtype=torch.float64), steps=iter(range(10**6))
    )
    assert found.steps < 2000
    assert abs(float(found.costs) - 3) < 1e-9
