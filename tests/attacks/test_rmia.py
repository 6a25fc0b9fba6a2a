from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from attacks.matrices import drawn
from oracles import membership as oracle

from engram.attacks.rmia import GRID, RMIA
from engram.signals import confidence, taylor_confidence


@pytest.mark.parametrize("gamma", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("a", [None, 0.0, 0.3, 1.0])
def test_scores_equal_a_literal_transcription(gamma, a):
    phi, _, shadow = drawn(confidence, records=30, confidence=True)
    attack = RMIA(gamma=gamma) if a is None else RMIA(mode="offline", a=a, gamma=gamma)
    expected = oracle.rmia(phi[0], shadow.of(confidence)[:, 0], shadow.member, gamma, a)
    np.testing.assert_allclose(attack.scored(phi, shadow), expected, rtol=0, atol=1e-9)


def test_the_taylor_softmax_equals_a_literal_transcription():
    p = torch.softmax(torch.randn(20, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), -1)
    labels = torch.arange(20) % 7
    expected = [oracle.taylor_softmax(row.numpy(), int(y)) for row, y in zip(p, labels, strict=True)]
    np.testing.assert_allclose(taylor_confidence(p, labels).numpy(), expected, rtol=1e-9)


def test_calibration_takes_the_best_a_on_shadows():
    _, _, shadow = drawn(confidence, shadows=16, records=120, confidence=True)
    attack = RMIA(mode="offline")
    chosen = attack.calibrated(shadow).a
    told = shadow.of(confidence)
    worth = {
        a: np.mean([
            oracle.area(replace(attack, a=float(a)).scored(told[m], shadow.without(m)), shadow.member[m]) for m in range(4)
        ])
        for a in GRID
    }  # fmt: skip
    assert worth[chosen] == max(worth.values())
    assert min(worth.values()) < max(worth.values()) - 0.01  # the choice matters here


def test_an_answer_of_exactly_zero_has_a_finite_score():
    phi, _, shadow = drawn(confidence, confidence=True)
    phi[0, 0] = 0.0
    assert np.isfinite(RMIA().scored(phi, shadow)).all()


@pytest.mark.parametrize(
    ("knobs", "told"),
    [({"gamma": 0.0}, "gamma must be positive"), ({"a": 1.5}, "a must lie in"), ({"signal": "tailor"}, "mean taylor")],
)
def test_wrong_knobs_are_refused(knobs, told):
    with pytest.raises(ValueError, match=told):
        RMIA(**knobs)
