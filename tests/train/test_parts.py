"""Samplers, losses and optimisers: the small parts of a recipe."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engram.train import SGD, Adam, Batches, CrossEntropy, FullBatch, Patience


def test_batches_use_every_record_once_an_epoch_and_each_model_its_own_order():
    streams = [np.random.default_rng(m) for m in range(2)]
    positions = list(Batches(4)(streams, 10))
    assert [p.shape for p in positions] == [(2, 4), (2, 4), (2, 2)]
    for model in range(2):
        assert sorted(np.concatenate([p[model] for p in positions])) == list(range(10))
    assert not np.array_equal(positions[0][0], positions[0][1])
    assert list(FullBatch()(streams, 10)) == [None]


def test_cross_entropy_is_that_of_every_record_of_every_model():
    outputs, labels = torch.randn(2, 5, 3), torch.randint(0, 3, (2, 5))
    p = torch.softmax(outputs.double(), -1)
    by_hand = -p.gather(-1, labels[..., None])[..., 0].log()
    torch.testing.assert_close(CrossEntropy()(outputs, labels).double(), by_hand, rtol=1e-5, atol=1e-6)
    smooth = 0.7 * by_hand - 0.3 * p.log().mean(-1)
    torch.testing.assert_close(CrossEntropy(0.3)(outputs, labels).double(), smooth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimiser", [Adam(0.1), Adam(0.1, weight_decay=0.3, decoupled=True), SGD(0.1, momentum=0.5)])
def test_a_step_on_many_is_a_step_on_each(optimiser):
    start, pull = torch.randn(6), torch.randn(3, 6)
    both = start.clone().requires_grad_()
    parts = [start[:2].clone().requires_grad_(), start[2:].clone().requires_grad_()]
    for values, slices in [(both, slice(None)), (parts[0], slice(0, 2)), (parts[1], slice(2, 6))]:
        step = optimiser(values)
        for g in pull:
            values.grad = g[slices].clone()
            step.step()
    torch.testing.assert_close(both, torch.cat(parts))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Batches(0), "batch size must be at least 1"),
        (lambda: Patience(0), "patience must be at least 1"),
        (lambda: Patience(3, 1.0), "held_out must lie in"),
    ],
)
def test_impossible_parts_are_refused(make, told):
    with pytest.raises(ValueError, match=told):
        make()
