from __future__ import annotations

import numpy as np
import pytest

from engram.chunks.local import Local, Memory
from engram.store import Store
from engram.types import Piece

PIECES = [Piece(f"block {k}", {"k": k}) for k in range(4)]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "engram.db") as opened:
        yield opened


@pytest.fixture(params=["local", "memory"])
def chunks(request, store):
    return Local(store) if request.param == "local" else Memory()


class Work:
    """Counts what it was asked to do."""

    def __init__(self, breaks_at: int = -1) -> None:
        self.done: list[str] = []
        self.breaks_at = breaks_at

    def __call__(self, piece):
        if piece.part["k"] == self.breaks_at:
            raise KeyboardInterrupt
        self.done.append(piece.name)
        return {"signal": np.full(3, piece.part["k"]), "design": np.arange(piece.part["k"] + 1)}


def test_results_come_in_order(chunks):
    results = list(chunks.run(PIECES, Work()))
    assert [int(r["signal"][0]) for r in results] == [0, 1, 2, 3]
    assert [len(r["design"]) for r in results] == [1, 2, 3, 4]


def test_what_is_done_is_not_done_again(chunks):
    first, second = Work(), Work()
    once, twice = list(chunks.run(PIECES[:3], first)), list(chunks.run(PIECES, second))
    assert first.done == ["block 0", "block 1", "block 2"]
    assert second.done == ["block 3"]
    for a, b in zip(once, twice, strict=False):
        np.testing.assert_array_equal(a["signal"], b["signal"])
        assert a["signal"].dtype == b["signal"].dtype


def test_an_interrupt_keeps_what_was_finished(chunks):
    with pytest.raises(KeyboardInterrupt):
        list(chunks.run(PIECES, Work(breaks_at=2)))
    again = Work()
    list(chunks.run(PIECES, again))
    assert again.done == ["block 2", "block 3"]


def test_a_piece_is_kept_before_the_next_one_begins(store):
    seen = []

    def work(_):
        seen.append([store.piece(p.name) is not None for p in PIECES])
        return {"a": np.zeros(1)}

    list(Local(store).run(PIECES, work))
    assert seen == [[k < n for k in range(4)] for n in range(4)]


def test_nothing_is_done_before_it_is_asked_for(chunks):
    work = Work()
    results = chunks.run(PIECES, work)
    assert not work.done
    next(results)
    assert work.done == ["block 0"]


def test_the_first_plan_stays(chunks):
    proposed = {"block": 8}
    assert chunks.agree("plan", proposed) == {"block": 8}
    proposed["block"] = 9
    assert chunks.agree("plan", proposed) == {"block": 8}
    assert chunks.agree("another", proposed) == {"block": 9}


def test_another_process_goes_on_where_the_first_one_was(tmp_path):
    with Store(tmp_path / "a.db") as store:
        list(Local(store).run(PIECES[:2], Work()))
    work = Work()
    with Store(tmp_path / "a.db") as store:
        list(Local(store).run(PIECES, work))
    assert work.done == ["block 2", "block 3"]
