"""What an answer says of a record, against literal transcriptions; and where an answer is certain."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from oracles import membership as oracle

from engram import signals

LITERAL = {
    signals.confidence: lambda answer, label: answer[label],
    signals.loss: lambda answer, label: -math.log(answer[label]),
    signals.entropy: lambda answer, _: oracle.entropy(answer),
    signals.modified_entropy: oracle.modified_entropy,
    signals.margin: oracle.margin,
    signals.correct: lambda answer, label: float(max(range(len(answer)), key=answer.__getitem__) == label),
}


@pytest.mark.parametrize("signal", LITERAL, ids=lambda signal: signal.__name__)
def test_a_signal_equals_its_literal_transcription(signal):
    stream = np.random.default_rng(0)
    p = torch.softmax(torch.as_tensor(stream.normal(size=(3, 50, 5)) * 4), -1)  # [model, record, class]
    labels = torch.as_tensor(stream.integers(0, 5, 50))
    told = [[LITERAL[signal](p[m, r].tolist(), int(labels[r])) for r in range(50)] for m in range(3)]
    np.testing.assert_allclose(signal(p, labels).numpy(), told, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("signal", signals.STANDARD.values(), ids=signals.STANDARD)
@pytest.mark.parametrize("label", [0, 1])
def test_a_certain_answer_has_finite_signals(signal, label):
    assert torch.isfinite(signal(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), torch.tensor([label]))).all()


def test_a_surer_member_stands_where_its_signal_says():
    sure, unsure = (torch.tensor([[p, 1 - p]], dtype=torch.float64) for p in (0.9, 0.6))
    label = torch.tensor([0])
    for signal in (signals.confidence, signals.margin, signals.taylor_confidence):
        assert signal(sure, label) > signal(unsure, label)
    for signal in (signals.loss, signals.entropy, signals.modified_entropy):
        assert signal(sure, label) < signal(unsure, label)
