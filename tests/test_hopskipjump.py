"""Distances to a boundary: known in closed form, and against a literal transcription for one record."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracles.hopskipjump import hopskipjump

from engram.hopskipjump import HopSkipJump, box, distances


class Spent(Exception):
    pass


def linear(d=20, n=30, seed=0):
    """Records about a plane through the origin, the labels a plane gives, and the exact distances to it."""
    stream = np.random.default_rng(seed)
    normal = stream.normal(size=d)
    normal /= np.linalg.norm(normal)
    x = stream.normal(size=(n, d)).astype(np.float32)
    return x, (x @ normal > 0).astype(int), np.abs(x @ normal), lambda q: (q.numpy() @ normal > 0).astype(int)


def walked(ask, x, y, queries=2000, seed=0, **knobs):
    x = torch.tensor(x)
    stream = torch.Generator().manual_seed(seed)
    return distances(ask, x, y, ask(x), HopSkipJump(queries, **knobs), stream, **({"out_of_queries": Spent}))


def test_the_distance_to_a_plane_is_found():
    x, y, exact, ask = linear()
    found = walked(ask, 4 * x, y, 4000)
    inside = exact < 1.2  # of the farther ones the nearest point lies outside the range of the records
    assert inside.sum() > 15
    np.testing.assert_array_less(4 * exact * (1 - 1e-5), found.values)
    assert np.median(found.values[inside] / (4 * exact[inside])) < 1.02
    assert (found.values / (4 * exact)).max() < 1.4


def test_more_queries_come_nearer():
    x, y, exact, ask = linear(d=60, n=40)
    off = [np.median(walked(ask, x, y, q).values / exact) for q in (30, 300, 3000)]
    assert off[0] > off[1] * 1.2
    assert off[1] > off[2]


def test_no_record_costs_more_than_it_may_and_every_query_is_counted():
    x, y, _, ask = linear()
    for queries in (1, 7, 30, 100, 333):
        asked = []
        found = walked(lambda q, asked=asked: asked.append(len(q)) or ask(q), x, y, queries)
        assert found.spent.max() <= queries
        assert found.spent.sum() == sum(asked) - len(x)  # the first answers are not the walk's


def test_it_finds_what_the_paper_finds_for_one_record():
    """Our walk with all its shared directions, and the paper's, record by record: the same distances on average."""
    stream = np.random.default_rng(1)
    centre, radius = np.zeros(12), 1.0
    x = (0.3 * stream.normal(size=(40, 12)) / np.sqrt(12)).astype(np.float32)
    x = np.concatenate([x, 3 * stream.normal(size=(10, 12)).astype(np.float32)])
    ask = lambda q: (np.linalg.norm(np.asarray(q) - centre, axis=-1) > radius).astype(int)  # noqa: E731
    y = ask(x)
    exact = np.abs(np.linalg.norm(x, axis=1) - radius)[:40]
    ours = walked(ask, x, y, 600).values[:40]
    low, high = x.min(0), x.max(0)
    outside = x[40:][y[40:] == 1]
    theirs = np.array(
        [
            hopskipjump(
                lambda q: int(ask(q[None])[0]),
                x[i].astype(float),
                0,
                outside[np.linalg.norm(outside - x[i], axis=1).argmin()].astype(float),
                600,
                low,
                high,
                np.random.default_rng(i),
            )
            for i in range(12)
        ]
    )
    assert (ours >= exact - 1e-4).all()
    assert (theirs >= exact[:12] - 1e-9).all()
    assert abs(np.mean(ours[:12] / exact[:12]) - np.mean(theirs / exact[:12])) < 0.03


def test_wrong_answers_lie_on_the_boundary_and_cost_nothing():
    x, y, _, ask = linear()
    y = y.copy()
    y[:5] = 1 - y[:5]
    found = walked(ask, x, y, 200)
    assert (found.values[:5] == 0).all()
    assert (found.spent[:5] == 0).all()
    assert (found.values[5:] > 0).all()


def test_a_model_of_one_answer_has_no_boundary():
    x, *_ = linear()
    found = walked(lambda q: np.zeros(len(q), int), x, np.zeros(len(x), int), 100)
    widest = np.linalg.norm(x.max(0) - x.min(0))
    np.testing.assert_allclose(found.values, widest, rtol=1e-6)
    assert found.unbounded == len(x)


def test_when_the_queries_run_out_it_tells_what_it_has():
    x, y, exact, ask = linear()
    count = 0

    def stingy(q):
        nonlocal count
        count += len(q)
        if count > 3000:
            raise Spent
        return ask(q)

    found = walked(stingy, x, y, 2000)
    assert found.broken_off
    assert (found.values >= exact * (1 - 1e-5)).all()
    assert (found.values <= walked(ask, x, y, 7).values + 1e-6).all()  # at the least, the first bisection


def test_a_record_on_the_boundary_is_no_trouble():
    """Whatever is asked is answered otherwise, but the record itself: each bisection ends nearer, down to nothing."""
    x, y, *_ = linear()
    first = [True]

    def ask(q):
        right, first[0] = first[0], False
        return y[: len(q)] if right else np.full(len(q), 7)

    found = walked(ask, x, y, 4000)
    assert np.isfinite(found.values).all()
    assert (found.values < 1e-4).all()


def test_no_question_leaves_the_range_of_the_records():
    x, y, _, ask = linear()
    low, high = box(torch.tensor(x))
    seen = []
    walked(lambda q: seen.append(q.clone()) or ask(q), x, y, 200)
    asked = torch.cat(seen)
    assert (asked >= low - 1e-6).all()
    assert (asked <= high + 1e-6).all()
    assert box(torch.tensor(x)[:, None, None])[0].ndim == 0  # of images, one range for all pixels


@pytest.mark.parametrize(("knob", "value"), [("queries", 0), ("queries", 2.5), ("directions", 3)])
def test_a_knob_that_cannot_be_is_an_error(knob, value):
    with pytest.raises((ValueError, TypeError), match=knob):
        HopSkipJump(**{knob: value})
