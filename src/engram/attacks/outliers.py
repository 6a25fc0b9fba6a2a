"""Claims on exposed records alone: those that stand apart from all others, which a model gets right only if it saw them.

Long, Wang, Bu, Bindschaedler, Wang, Tang, Gunter, Chen: A Pragmatic Approach to Membership Inferences on Machine Learning
Models, 2020, section 4 (vulnerable records have few neighbours among the features of reference models).
Choquette-Choo, Tramer, Carlini, Papernot: Label-Only Membership Inference, 2021, section 5.5: cosine distance in the layer
before the last; an outlier has fewer than `neighbours` others within a distance at which a share of the records are
outliers; the metric is the precision of the claims.
Differs from the papers: distances are averaged over shadows instead of taken in one model, and the distance at which a
share of the records are outliers is found exactly, as a quantile of that to each record's last neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from engram import check
from engram.access import Labels, Unknown
from engram.population import Population, asking
from engram.seed import Seed
from engram.signals import correct
from engram.train.loop import started
from engram.train.recipe import Recipe
from engram.types import Array, Bools, Floats, Scores, Track, quiet

AT_ONCE = 1024  # records whose distances to all others are held at a time


@dataclass(frozen=True)
class Outliers:
    """Of the most isolated `share` of the records, those answered with the true label. Few claims, mostly right.

    Isolation is seen in the adversary's own shadows; of the target it needs labels, one query a record.
    """

    asks: ClassVar = Labels
    question: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Long et al. 2020"
    shadows: int = 4
    neighbours: int = 10
    share: float = 0.05

    def __post_init__(self) -> None:
        check.whole("shadows", self.shadows, 2)
        check.whole("neighbours", self.neighbours, 1)
        check.fraction("share", self.share)

    def __call__(self, target: Labels, *, seed: Seed, track: Track = quiet) -> Scores:  # noqa: ARG002
        if len(target.records) <= self.neighbours:
            raise Unknown(f"{len(target.records)} records have no {self.neighbours} neighbours each; lower neighbours")
        shadow = target.population(self.shadows, signals=(correct,), weights=True, track=track)
        assert target.knowledge.recipe is not None
        apart = isolation(features(target.knowledge.recipe, shadow, target.records.x), self.neighbours)  # [record]
        right = target.labels(target.records.x) == target.records.y
        return self.claimed(apart, right, target)

    def claimed(self, apart: Floats, right: Bools, target: Labels) -> Scores:
        """What is right comes before what is wrong; among each, the more isolated says more."""
        scores = np.where(right, 1 + apart, -1 - apart)
        outlier = apart > np.quantile(apart, 1 - self.share)
        return Scores(scores, target.ids, right & outlier, f"{self.neighbours} neighbours, share {self.share:g}")


def isolation(features: Iterator[Tensor], neighbours: int) -> Floats:
    """The cosine distance to the last of so many neighbours, averaged over models; features[record, unit] of each."""
    each = [_to_last(f, neighbours) for f in features]
    return np.asarray(torch.stack(each).mean(0).cpu().numpy(), float)


def _to_last(features: Tensor, neighbours: int) -> Tensor:
    unit = nn.functional.normalize(features.double(), dim=-1)
    parts = torch.split(unit, AT_ONCE)
    nearest = [(1 - part @ unit.T).topk(neighbours + 1, largest=False).values for part in parts]  # its own first
    return torch.cat(nearest)[:, -1]


def features(recipe: Recipe, shadow: Population, x: Array) -> Iterator[Tensor]:
    """What the last linear layer of each shadow is given, [record, unit]."""
    net = started(recipe, Seed(0))
    held = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    for m in range(len(shadow)):
        with torch.no_grad():
            for name, w in shadow.weights.items():
                held[name].copy_(torch.tensor(w[m]))
        yield before_last(net, torch.as_tensor(x))


def before_last(net: nn.Module, x: Tensor) -> Tensor:
    linears = [m for m in net.modules() if isinstance(m, nn.Linear)]
    if not linears:
        raise Unknown("isolation is seen in what the last linear layer is given, and this network has none")
    seen: list[Tensor] = []
    hook = linears[-1].register_forward_pre_hook(lambda _, given: seen.append(given[0].flatten(1)))
    with asking(net):
        for part in torch.split(x, AT_ONCE):
            net(part)
    hook.remove()
    return torch.cat(seen)
