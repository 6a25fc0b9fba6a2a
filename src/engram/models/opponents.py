"""Networks that tell members from non-members by a model's answers: of attacks, and of defences that train against one.

Shang et al.: WeMem, NDSS 2025, appendix and released code (the attackers). Nasr, Shokri, Houmansadr: Machine Learning with
Membership Privacy using Adversarial Regularization, 2018, section 4 (`Inference`).
Jia, Salem, Backes, Zhang, Gong: MemGuard, 2019, section 6.1 (the defence classifier: 256, 128 and 64 units).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from engram import check
from engram.models.layers import whole


def layers(*sizes: int, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers of these sizes, with ReLU and dropout after each."""
    made: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        made += [nn.Linear(n_in, n_out), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*made)


@dataclass(frozen=True)
class AnswerNet:
    """Fully connected, on whatever is known of an answer; two outputs: non-member, member."""

    inputs: int
    widths: Sequence[int] = (512, 256, 128)
    dropout: float = 0.2

    def __post_init__(self) -> None:
        whole(inputs=self.inputs, **{f"width {k + 1}": width for k, width in enumerate(self.widths)})
        check.fraction("dropout", self.dropout, zero=True)

    def __call__(self) -> nn.Module:
        *hidden, last = self.widths
        body = layers(self.inputs, *hidden, dropout=self.dropout)
        return nn.Sequential(
            *body, nn.Linear(hidden[-1] if hidden else self.inputs, last), nn.ReLU(), nn.Linear(last, 2)
        )


@dataclass(frozen=True)
class TokenNet:
    """The transformer of SAMIA: one token a class, of `features` numbers each; records are [feature, class]."""

    classes: int
    features: int = 3
    width: int = 64
    depth: int = 3

    def __post_init__(self) -> None:
        whole(classes=self.classes, features=self.features, width=self.width, depth=self.depth)

    def __call__(self) -> nn.Module:
        return _Tokens(self)


class _Tokens(nn.Module):
    def __init__(self, knobs: TokenNet) -> None:
        super().__init__()
        wide = knobs.width
        self.norm = nn.BatchNorm1d(knobs.features * knobs.classes)
        self.embed = nn.Sequential(nn.Linear(knobs.features, wide), nn.GELU())
        layer = nn.TransformerEncoderLayer(wide, 4, 2 * wide, dropout=0.2, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, knobs.depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(wide * knobs.classes, wide), nn.ReLU(), nn.Linear(wide, 2))

    def forward(self, x: Tensor) -> Tensor:  # [record, feature, class]
        tokens = self.norm(x.flatten(1)).view_as(x).mT  # [record, class, feature]
        told: Tensor = self.head(self.encoder(self.embed(tokens)))
        return told


@dataclass(frozen=True)
class Inference:
    """The opponent of adversarial regularisation, on answer and label side by side; one output: log-odds of a member."""

    classes: int
    width: int = 1024

    def __post_init__(self) -> None:
        whole(classes=self.classes)
        check.whole("width of the opponent", self.width, 4)

    def __call__(self) -> nn.Module:
        return _Inference(self)


class _Inference(nn.Module):
    def __init__(self, knobs: Inference) -> None:
        super().__init__()
        wide = knobs.width
        self.answer = layers(knobs.classes, wide, wide // 2, 64)
        self.label = layers(knobs.classes, wide // 2, 64)
        self.joint = nn.Sequential(*layers(128, max(1, wide // 4), 64), nn.Linear(64, 1))

    def forward(self, x: Tensor) -> Tensor:  # [record, 2 * class]
        answer, label = x.chunk(2, -1)
        told: Tensor = self.joint(torch.cat([self.answer(answer), self.label(label)], -1))
        return told
