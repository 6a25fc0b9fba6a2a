"""A small causal transformer on tokens.

Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask Learners, 2019. Section 2.3.
Differs from the paper: queries, keys and values are three layers; a head for classes reads the mean over positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.models.layers import whole


@dataclass(frozen=True)
class GPT:
    """Blocks of causal attention and a small network, normalised before each; answers with logits for each class."""

    vocabulary: int
    length: int
    classes: int
    width: int = 64
    depth: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        whole(
            vocabulary=self.vocabulary, length=self.length, classes=self.classes,
            width=self.width, depth=self.depth, heads=self.heads,
        )  # fmt: skip
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width} and {self.heads}")

    def __call__(self) -> nn.Module:
        return Decoder(self)


class Decoder(nn.Module):
    """Tokens [record, position] to logits [record, class]."""

    def __init__(self, knobs: GPT) -> None:
        super().__init__()
        self.token = nn.Embedding(knobs.vocabulary, knobs.width)
        self.position = nn.Embedding(knobs.length, knobs.width)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(knobs.width, knobs.heads) for _ in range(knobs.depth)))
        self.norm = nn.LayerNorm(knobs.width)
        self.head = nn.Linear(knobs.width, knobs.classes)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        h = self.blocks(self.token(tokens) + self.position(places))
        logits: Tensor = self.head(self.norm(h).mean(-2))
        return logits


class Block(nn.Module):
    """Attention and a network of two layers, each added to what came in."""

    def __init__(self, width: int, heads: int, *, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.out(self._attended(self.norm1(h)))
        mixed: Tensor = h + self.narrow(functional.gelu(self.wide(self.norm2(h))))
        return mixed

    def _attended(self, h: Tensor) -> Tensor:
        q, k, v = (
            f(h).view(*h.shape[:-1], self.heads, -1).transpose(-3, -2) for f in (self.query, self.key, self.value)
        )
        mixed: Tensor = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return mixed.transpose(-3, -2).flatten(-2)
