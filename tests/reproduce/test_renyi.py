from __future__ import annotations

import importlib.util
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from engram.accounting import Laplace
from engram.reproduce import renyi

COLUMNS = ["pure", "strong composition", "Kairouz et al.", "Renyi, Mironov", "Renyi", "tight"]


@pytest.mark.parametrize("mechanism", renyi.MECHANISMS, ids=lambda m: m.name)
@pytest.mark.parametrize("times", [1, 200])
def test_renyi_lies_between_the_tight_bound_and_the_others(mechanism, times):
    cells = list(renyi.composed(mechanism, times))
    assert {"Renyi", "Renyi, Mironov", "strong composition", "Kairouz et al.", "tight"} <= {c.column for c in cells}
    assert all(c.holds is not False for c in cells)
    assert any(c.holds for c in cells)


def test_a_claim_can_fail():
    """An analysis that is told too small an epsilon for one answer would look better than Renyi: the row must say so."""
    wrong = replace(renyi.MECHANISMS[1], event=Laplace(20.0), approximate=lambda _: (1 / 60, 0.0))
    assert any(c.holds is False for c in renyi.composed(wrong, 100))


def test_peers_that_are_not_installed_say_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    cells = list(renyi.against_peers(2.0, 0.1, 10))
    assert [c.note for c in cells if c.column != "Renyi"] == ["not installed"] * 3
    assert all(c.ours is None for c in cells if c.column != "Renyi")


def test_an_under_reporting_peer_is_not_a_bound_to_stay_below(monkeypatch):
    monkeypatch.setattr(renyi, "PEERS", {"low": ("math", lambda *_: 1e-3), "high": ("math", lambda *_: 99.0)})
    low, high = [c for c in renyi.against_peers(2.0, 0.1, 10) if c.column != "Renyi"]
    assert low.holds is None
    assert "under-reports" in low.note
    assert high.holds is True


def test_the_figures_have_a_line_for_each_guarantee():
    table = [cell for mechanism in renyi.MECHANISMS for times in (1, 100) for cell in renyi.composed(mechanism, times)]
    drawn = renyi.figures(table)
    assert sorted(drawn) == ["gaussian", "laplace", "randomised-response"]
    assert [len(ElementTree.fromstring(drawn[name]).findall("{*}path")) for name in sorted(drawn)] == [5, 6, 6]


def test_a_figure_shows_its_cells():
    """The line of the largest epsilon ends highest."""
    table = [cell for times in (1, 100) for cell in renyi.composed(renyi.MECHANISMS[1], times)]
    text = renyi.figures([*table, *renyi.composed(renyi.MECHANISMS[0], 1), *renyi.composed(renyi.MECHANISMS[2], 1)])
    paths = ElementTree.fromstring(text["laplace"]).findall("{*}path")
    ends = {name: float(path.get("d").split()[-1]) for name, path in zip(COLUMNS, paths, strict=True)}
    assert ends["pure"] < ends["strong composition"] <= ends["Kairouz et al."] < ends["Renyi, Mironov"] < ends["Renyi"]
