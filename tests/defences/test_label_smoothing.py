from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contract.targets import LEARNED_BY_HEART

from engram.defences.label_smoothing import label_smoothing
from engram.train.losses import CrossEntropy


def test_the_loss_is_cross_entropy_towards_a_softened_label():
    loss = label_smoothing(LEARNED_BY_HEART, smoothing=0.3).loss
    outputs, labels = torch.tensor([[2.0, -1.0, 0.5]], dtype=torch.float64), torch.tensor([1])
    p = torch.softmax(outputs, -1)[0]
    wanted = [0.1, 0.8, 0.1]
    by_hand = -sum(w * torch.log(q) for w, q in zip(wanted, p, strict=True))
    torch.testing.assert_close(loss(outputs, labels)[0], by_hand)


def test_another_loss_is_not_replaced_in_silence():
    def squares(outputs, labels):
        return outputs[..., 0] - labels

    with pytest.raises(TypeError, match="label smoothing replaces cross-entropy, and this recipe trains with"):
        label_smoothing(replace(LEARNED_BY_HEART, loss=squares))


def test_smoothing_is_not_added_to_what_is_there():
    once = label_smoothing(LEARNED_BY_HEART, smoothing=0.1)
    assert label_smoothing(once, smoothing=0.1).loss == CrossEntropy(0.1)
