from __future__ import annotations

import numpy as np
import pytest

from engram.accounting.events import (
    Composed,
    Gaussian,
    Laplace,
    MixedRelations,
    PoissonSampled,
    RandomisedResponse,
    SampledWithoutReplacement,
    Schedule,
    UnknownEvent,
    leaves,
    relation,
)
from engram.accounting.written import plain, read

STEP = PoissonSampled(0.01, Gaussian(1.1))
TREE = Composed(
    (STEP, 10), (Composed((STEP, 2), (Laplace(2.0), 1)), 5), (PoissonSampled(0.0, Gaussian(0.0)), 7), (Gaussian(0.0), 0)
)


def test_equal_events_are_counted_together_and_free_ones_left_out():
    assert leaves(TREE) == {STEP: 20, Laplace(2.0): 5}


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_noise_is_refused_where_it_is_none(bad):
    with pytest.raises(ValueError, match=r"noise_multiplier must be at least 0.0, got (-1.0|nan)"):
        Gaussian(bad)
    with pytest.raises(ValueError, match="scale must be"):
        Laplace(bad)
    with pytest.raises(ValueError, match=r"noise_multipliers must be at least 0, got .* at step 1"):
        Schedule(np.array([1.0, bad]), np.array([0.1, 0.1]))


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_0_to_1_is_refused(bad):
    with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\]"):
        PoissonSampled(bad, Gaussian(1.0))
    with pytest.raises(ValueError, match=r"rates must be in \[0, 1\], got .* at step 0"):
        Schedule(np.ones(2), np.array([bad, 0.5]))
    with pytest.raises(ValueError, match="truth must lie"):
        RandomisedResponse(bad)


def test_counts_are_whole_numbers():
    for bad in (-1, 1.5, True, "3"):
        with pytest.raises(ValueError, match="count must be a whole number"):
            Composed((STEP, bad))
    with pytest.raises(ValueError, match="batch must be at most records, got 11 of 10"):
        SampledWithoutReplacement(11, 10, Gaussian(1.0))
    with pytest.raises(ValueError, match="answers must be a whole number, at least 2"):
        RandomisedResponse(0.5, 1)


def test_an_unknown_event_is_refused():
    for made in (
        lambda: leaves("a shuffled epoch"),
        lambda: relation(Composed((3, 1))),
        lambda: PoissonSampled(0.1, Laplace(1.0)),
    ):
        with pytest.raises(UnknownEvent):
            made()
    with pytest.raises(UnknownEvent, match="SampledWithoutReplacement is understood around"):
        SampledWithoutReplacement(1, 10, STEP)


def test_events_must_share_a_relation():
    fixed = SampledWithoutReplacement(1, 10, Gaussian(1.0))
    assert relation(Composed((STEP, 1), (Laplace(1.0), 1))) == "add-remove"
    assert relation(STEP, "zero-out") == "zero-out"
    assert relation(fixed) == "replace-one"
    with pytest.raises(
        MixedRelations, match="PoissonSampled: add-remove, zero-out; SampledWithoutReplacement: replace-one"
    ):
        relation(Composed((STEP, 1), (fixed, 1)))
    with pytest.raises(MixedRelations, match="'replace-one'"):
        relation(STEP, "replace-one")
    with pytest.raises(MixedRelations):
        relation(Composed((STEP, 0), (fixed, 1)))  # also what never happened must be consistent
    with pytest.raises(ValueError, match="did you mean add-remove"):
        relation(STEP, "add-remov")


def test_a_schedule_counts_its_different_steps():
    noise, rate, counts = Schedule(np.array([1.0, 2.0, 1.0, 1.0]), np.array([0.1, 0.1, 0.1, 0.2])).pairs
    assert sorted(zip(noise, rate, counts, strict=True)) == [(1.0, 0.1, 2), (1.0, 0.2, 1), (2.0, 0.1, 1)]
    with pytest.raises(ValueError, match="one number a step"):
        Schedule(np.ones((2, 2)), np.ones((2, 2)))


def test_events_are_written_and_read():
    for event in (TREE, RandomisedResponse(0.6, 4), SampledWithoutReplacement(2, 10, Laplace(3.0))):
        assert read(plain(event)) == event
    schedule = Schedule(np.array([1.0, 2.0, 1.0]), np.array([0.1, 0.2, 0.1]))
    back = read(plain(schedule))
    assert all((a == b).all() for a, b in zip(back.pairs, schedule.pairs, strict=True))
    with pytest.raises(ValueError, match="no event is called 'Shuffled'"):
        read({"kind": "Shuffled"})
