"""Records read off a first linear layer with a bias: the gradient of a unit's weights over that of its bias.

Phong, Aono, Hayashi, Wang, Moriai: Privacy-Preserving Deep Learning via Additively Homomorphic Encryption, 2018.
Section III: for one record every unit gives it. Geiping et al. 2020, proposition 3.1.
For a batch a unit gives a record only where it was active on that record alone, so a quotient counts as a record where
several units agree on it: two mixtures of records do not agree by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engram.access import Gradients, Unknown
from engram.matching import Layer, met
from engram.seed import Seed
from engram.types import Recovered, Track, quiet

AGREE = 1e-5  # relative; what float32 leaves of two quotients of one record, with room


@dataclass(frozen=True)
class LinearLayer:
    """Exact for one record, and for those of a batch that some units of the first layer met alone. No search."""

    asks: ClassVar = Gradients
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Phong et al. 2018"

    def __call__(self, target: Gradients, *, seed: Seed, track: Track = quiet) -> Recovered:  # noqa: ARG002  draws nothing
        layer = first_linear(target)
        bias = layer.bias
        if bias is None:
            raise Unknown(f"the first layer, {layer.name}, has no bias, so its quotients are undefined; try spear")
        told = target.update.gradient
        found, agreeing, certificates = agreed(told[layer.weight].double(), told[bias].double(), target.update.batch)
        if not len(found):
            raise Unknown(
                "no two units of the first layer agree on a record: each met several, or the gradient was altered"
            )
        return Recovered(
            "record",
            found.view(-1, *target.shape).cpu().numpy(),
            agreeing.double().cpu().numpy(),
            certificates.cpu().numpy(),
        )


def first_linear(target: Gradients) -> Layer:
    """The first layer with weights, if it is linear and sees the whole record."""
    layer = met(target.model, target.shape)[0]
    size = int(np.prod(target.shape))
    if not isinstance(layer.module, torch.nn.Linear) or layer.inputs != (size,):
        raise Unknown(
            f"the first layer with weights is {layer.name}, a {type(layer.module).__name__} of inputs {layer.inputs}; "
            f"this attack needs a linear layer that sees all {size} numbers of a record"
        )
    return layer


def agreed(g_weight: Tensor, g_bias: Tensor, batch: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Records, on how many units agree on each, and the least relative distance between two that do. Most agreed first."""
    alive = g_bias.abs() > 1e-12 * g_bias.abs().max()
    x = g_weight[alive] / g_bias[alive, None]  # [unit, number]
    if not len(x):
        return x, x.new_zeros(0), x.new_zeros(0)
    apart = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") / x.norm(dim=1)[:, None].clamp_min(1e-300)
    near = apart <= AGREE
    left = near.sum(1)
    picked: list[int] = []
    while len(picked) < (batch or len(x)) and int(left.max()) > 1:  # the largest group first
        k = int(left.argmax())
        picked.append(k)
        left = left.masked_fill(near[k], 0)
    chosen = torch.tensor(picked, dtype=torch.int64, device=x.device)
    apart.fill_diagonal_(torch.inf)
    return x[chosen], near[chosen].sum(1), apart[chosen].min(1).values if picked else x.new_zeros(0)
