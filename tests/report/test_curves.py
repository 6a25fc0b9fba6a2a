from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from report.fabricated import Fabricated, fabricate

from engram.measure import judge
from engram.measure.ranks import ranked
from engram.report.charts import Scale, round_numbers, steps
from engram.report.curves import BINS, bins, histograms, lines, roc, shares
from engram.report.dossier import dossier
from engram.seed import Seed
from engram.store import Told
from engram.types import Scores

# Six members, four non-members, and what a reader would draw by hand.
VALUES = np.array([9.0, 8, 7, 6, 5, 4, 7.5, 6, 3, 2])
MEMBER = np.arange(10) < 6


def drawn(told):
    """The points of each line of an ROC drawing, as shares again: the drawing goes over three decades or one."""
    svg = re.search(r'<svg[^>]*class="roc".*?</svg>', told, re.S)[0]
    paths = re.findall(r'<path d="M([^"]*)" class="series', svg)
    return [[tuple(map(float, point.split())) for point in path.split("L")] for path in paths]


def test_the_drawn_points_are_the_measured_ones(tmp_path):
    store, run = fabricate(tmp_path / "engram.db", Fabricated(leaks={}, members=6, non_members=4))
    with store:
        scores = Scores(VALUES, np.arange(10))
        store.respond(run, {"truth": MEMBER})
        store.tell(run, Told("lira", "", scores, {"question": "membership"}))
        store.judge(run, [replace(f, attack="lira") for f in judge(scores, MEMBER, seed=Seed(0))])
        (line,) = drawn(roc(dossier(store, run)))
    low = 0.1
    x, y = Scale(low, 1, 50, 470, log=True), Scale(low, 1, 400, 24, log=True)
    reached = {0.0: 2 / 6, 0.25: 3 / 6, 0.5: 6 / 6, 0.75: 1.0, 1.0: 1.0}  # by hand: members found at each share accused
    wanted = [(x(0.0), y(2 / 6))]
    for accused, found in list(reached.items())[1:]:
        wanted += [(x(accused), wanted[-1][1]), (x(accused), y(found))]
    kept = [p for i, p in enumerate(wanted) if i == 0 or p != wanted[i - 1]]
    np.testing.assert_allclose(line, kept, atol=0.006)


def test_a_staircase_keeps_its_height_up_to_the_next_place():
    assert steps([0, 1, 3], [5, 6, 7]) == [(0, 5), (1, 5), (1, 6), (3, 6), (3, 7)]


def test_each_attack_has_a_colour_and_each_variant_its_dashes(tmp_path):
    store, run = fabricate(tmp_path / "engram.db")
    with store:
        looks = {line.name: (line.class_, line.dash) for line in lines(dossier(store, run))}
    assert len(set(looks.values())) == len(looks) == 4
    assert looks["confidence", "one threshold"][0] == looks["confidence", "per class"][0]


# Histograms


def leaning(tails=0.0, n=600):
    """Scores as a likelihood ratio has them: most within a few units, some of the non-members at minus thousands."""
    stream = np.random.default_rng(0)
    values, member = stream.normal(size=n), np.arange(n) % 2 == 0
    values[~member] -= np.where(stream.random(n // 2) < tails, stream.exponential(1000, n // 2), 0)
    return ranked(values, member)


@pytest.mark.parametrize("tails", [0.0, 0.02, 0.1, 0.3])
def test_the_bulk_is_spread_over_the_bars_however_long_the_tails(tails):
    ranks = leaning(tails)
    edges = bins(ranks.values, ranks.members + ranks.others)
    assert len(edges) == BINS + 1
    assert edges[-1] - edges[0] < 20
    inside = shares(ranks, ranks.members, edges)
    assert inside.max() < 0.25
    assert (inside > 0).sum() >= 8


def test_tails_are_counted_in_the_end_bars():
    ranks = leaning(0.3)
    edges = bins(ranks.values, ranks.members + ranks.others)
    for counts in (ranks.members, ranks.others):
        heights = shares(ranks, counts, edges)
        assert heights.sum() == pytest.approx(1)
        below = counts[ranks.values < edges[1]].sum() / counts.sum()
        above = counts[ranks.values >= edges[-2]].sum() / counts.sum()
        assert (heights[0], heights[-1]) == (pytest.approx(below), pytest.approx(above))
    assert shares(ranks, ranks.others, edges)[0] > 0.25
    assert shares(ranks, ranks.members, edges)[0] < 0.02


def test_scores_without_tails_are_drawn_from_end_to_end():
    values = np.linspace(0, 1, 1000)
    edges = bins(values, np.ones(1000, int))
    assert (edges[0], edges[-1]) == pytest.approx((0.005, 0.995), abs=2e-3)


def test_two_heaps_far_apart_are_both_drawn():
    stream = np.random.default_rng(1)
    values = np.sort(np.concatenate([stream.normal(size=300), stream.normal(100, 1, 300)]))
    edges = bins(values, np.ones(600, int))
    assert edges[0] < 0
    assert edges[-1] > 100


def test_where_most_scores_are_one_number_the_rest_is_still_drawn():
    values, counts = np.arange(20.0), np.array([1] * 19 + [1000])
    assert bins(values, counts)[-1] == 19
    assert np.all(np.diff(bins(values, counts)) > 0)


@pytest.mark.parametrize(
    ("values", "edges"),
    [([0.0, 1.0], [-0.5, 0.5, 1.5]), ([3.0], [2.5, 3.5]), ([], [-0.5, 0.5]), ([-np.inf, 1, 3, np.inf], [0, 2, 4])],
)
def test_few_scores_get_a_bar_each(values, edges):
    values = np.array(values, float)
    np.testing.assert_array_equal(bins(values, np.ones(len(values), int)), edges)


def test_the_histograms_say_where_the_rest_is(tmp_path):
    store, run = fabricate(tmp_path / "engram.db")
    with store:
        told = histograms(dossier(store, run))
    assert "Scores beyond the drawing are counted in its first and last bar." in told
    assert told.count("histogram of scores") == 3


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 7.9), (1e-9, 3e-9), (-2500, 40), (0.45, 1.0)])
def test_marks_lie_inside_and_have_few_digits(low, high):
    marks = round_numbers(low, high)
    assert 2 <= len(marks) <= 8
    assert all(low - 1e-9 * (high - low) <= m <= high + 1e-9 * (high - low) for m in marks)
    assert all(float(f"{m:.3g}") == m for m in marks)
    assert len(set(marks)) == len(marks)


def test_what_lies_outside_a_scale_is_put_on_its_edge():
    scale = Scale(0.01, 1, 0, 100, log=True)
    assert [scale(v) for v in (0, 0.01, 0.1, 1, 5)] == [0, 0, 50, 100, 100]
