from __future__ import annotations

import pytest
import torch

from engram.defences.top_k_outputs import Top
from engram.signals import shown


def answers(records=500, classes=10):
    logits = torch.randn(records, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.softmax(3 * logits, -1)


def literal(p, k):
    """One record at a time, in Python."""
    told = []
    for record in p.tolist():
        order = sorted(range(len(record)), key=lambda i: (-record[i], i))
        hidden = order[k:]
        left = sum(record[i] for i in hidden) / max(1, len(hidden))
        told.append([left if i in hidden else v for i, v in enumerate(record)])
    return torch.tensor(told, dtype=torch.float64)


@pytest.mark.parametrize("k", [1, 2, 9, 10, 50])
def test_it_is_what_a_reader_of_the_first_classes_works_out(k):
    p = answers()
    torch.testing.assert_close(Top(k)(p), literal(p, k), rtol=0, atol=1e-15)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_answers_stay_probabilities_and_labels_stay(k):
    p = answers()
    masked = Top(k)(p)
    torch.testing.assert_close(masked.sum(-1), torch.ones(len(p), dtype=torch.float64), rtol=0, atol=1e-12)
    assert (masked >= 0).all()
    assert torch.equal(shown(masked), shown(p))


def test_all_classes_hide_nothing():
    p = answers()
    assert torch.equal(Top(10)(p), p)


@pytest.mark.parametrize("classes", range(2, 40))
def test_equal_answers_keep_their_label(classes):
    """The mean of equal numbers may come out a last digit above them."""
    p = torch.softmax(torch.zeros(1, classes, dtype=torch.float64), -1)
    assert shown(Top(1)(p)).item() == shown(p).item() == 0


def test_of_equal_probabilities_the_first_is_shown():
    p = torch.tensor([[0.1, 0.4, 0.4, 0.1]], dtype=torch.float64)
    torch.testing.assert_close(Top(1)(p), torch.tensor([[0.2, 0.4, 0.2, 0.2]], dtype=torch.float64))


def test_many_models_at_once_are_masked_as_each_alone():
    p = answers(60).view(3, 20, 10)
    assert torch.equal(Top(2)(p)[1], Top(2)(p[1]))
