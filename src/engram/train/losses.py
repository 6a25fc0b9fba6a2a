"""Losses, one number a record. Outputs are [..., record, class], labels [..., record]; the loop takes the mean."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class CrossEntropy:
    """-log p of the label; with smoothing, of a label that is `smoothing` uniform over all classes."""

    smoothing: float = 0.0

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if outputs.ndim > 2 and outputs.stride(-1) != 1:  # each class's answers side by side: left so, not copied
            return cross_entropy(outputs.movedim(-1, 1), labels, reduction="none", label_smoothing=self.smoothing)
        rows, wanted = outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1)
        flat: Tensor = cross_entropy(rows, wanted, reduction="none", label_smoothing=self.smoothing)
        return flat.view(labels.shape)
