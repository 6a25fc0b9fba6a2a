"""Which classes are in the batch, and how often: read off the gradient of the last layer.

Zhao, Mopuri, Bilen: iDLG: Improved Deep Leakage from Gradients, 2020, section 3.2 (one record: exact).
Wainakh et al.: User-Level Label Leakage from Gradients in Federated Learning, 2021 (batches); see `matching.counted_labels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from engram.access import Gradients
from engram.matching import counted_labels, met
from engram.seed import Seed
from engram.types import Recovered, Track, quiet


@dataclass(frozen=True)
class BagOfLabels:
    """The labels of a batch, in no order. Exact for one record; a good count for batches on untrained networks."""

    asks: ClassVar = Gradients
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Zhao et al. 2020"
    batch: int | None = None

    def __call__(self, target: Gradients, *, seed: Seed, track: Track = quiet) -> Recovered:  # noqa: ARG002  draws nothing
        records = target.behind(self.batch)
        last = met(target.model, target.shape)[-1]
        labels = (
            torch.repeat_interleave(counted_labels(target.update, target.model, target.shape, records)).cpu().numpy()
        )
        certificates = np.full(records, unbalanced(target, last.bias))
        return Recovered("labels", labels, -certificates, certificates, labels=labels)


def unbalanced(target: Gradients, bias: int | None) -> float:
    """The gradients of all classes' biases add up to zero under cross-entropy: how far they do not, relative to their size.

    Infinite where the last layer has no bias, as then nothing certifies the count.
    """
    if bias is None:
        return float("inf")
    rows = target.update.gradient[bias].double()
    return float(rows.sum().abs() / rows.abs().sum().clamp_min(torch.finfo(torch.float64).tiny))
