from __future__ import annotations

import torch

from engram.clipping import routes
from engram.clipping.routes import Routes


def factors(records=3, positions=6, m=4, n=5):
    return torch.ones(records, positions, m), torch.ones(records, positions, n)


def test_the_fastest_measured_route_is_taken_and_remembered(monkeypatch):
    clock = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(routes, "_seconds", lambda *_: next(clock))
    chosen = Routes("measured")
    assert chosen.of(*factors(), may_keep=True) == "instantiated"
    assert chosen.of(*factors(records=7, positions=7), may_keep=True) == "instantiated"  # the clock is not asked again
    assert list(chosen.seconds.values()) == [{"gram": 3.0, "instantiated": 1.0, "kept": 2.0}]


def test_gradients_larger_than_their_factors_are_never_kept():
    large = factors(positions=2, m=40, n=50)
    assert Routes("counted").of(*large, may_keep=True) == "gram"
    assert "kept" not in routes._candidates(*large, keeps=False)
    assert Routes("counted").of(*factors(), may_keep=True) == "kept"
    assert Routes("counted").of(*factors(), may_keep=False) != "kept"


def test_hopeless_routes_are_not_tried():
    assert routes._candidates(*factors(positions=2, m=400, n=500), keeps=False) == ["gram"]
    assert routes._candidates(*factors(positions=4000, m=2, n=2), keeps=False) == ["instantiated"]


def test_measuring_really_measures():
    chosen = Routes("measured")
    chosen.of(*factors(), may_keep=True)
    (seconds,) = chosen.seconds.values()
    assert all(0 < value < 10 for value in seconds.values())


def test_the_fused_route_needs_a_gpu():
    assert Routes("fused").of(*factors(), may_keep=True) == "gram"
