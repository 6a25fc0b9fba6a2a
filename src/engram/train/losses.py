"""Losses, one number a record. Outputs are [..., record, class], labels [..., record]; the loop takes the mean."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class CrossEntropy:
    """-log p of the label; with smoothing, of a label that is `smoothing` uniform over all classes."""

    smoothing: float = 0.0

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        flat = functional.cross_entropy(
            outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1), reduction="none", label_smoothing=self.smoothing
        )
        return flat.view(labels.shape)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Mean absolute plus mean squared error to the record that the label numbers, for a network that answers records."""

    records: Tensor  # [label, ...]

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        off = (outputs - self.records[labels].view(outputs.shape)).flatten(labels.ndim)
        return (off.abs() + off.square()).mean(-1)
