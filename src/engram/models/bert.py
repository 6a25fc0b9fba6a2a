"""A small encoder that names the word behind a mask.

Devlin, Chang, Lee, Toutanova: BERT: Pre-training of Deep Bidirectional Transformers, 2019. Section 3.1, task 1.
Differs from the paper: one word of each sentence is masked, at the same place in all; blocks are normalised before, not
after; the answer has a table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engram import check
from engram.models.gpt import Block
from engram.models.layers import whole


@dataclass(frozen=True)
class BERT:
    """Blocks of attention to all places; answers with logits for each word of the vocabulary at the place `masked`."""

    vocabulary: int
    length: int
    masked: int = 0
    width: int = 64
    depth: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        whole(vocabulary=self.vocabulary, length=self.length, width=self.width, depth=self.depth, heads=self.heads)
        check.at_least("masked", self.masked, 0)
        if self.masked >= self.length:
            raise ValueError(f"masked must be a place of the sentence, below {self.length}, got {self.masked}")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width} and {self.heads}")

    def __call__(self) -> nn.Module:
        return Encoder(self)


class Encoder(nn.Module):
    """Tokens [record, position] to logits [record, word]."""

    def __init__(self, knobs: BERT) -> None:
        super().__init__()
        self.masked = knobs.masked
        self.token = nn.Embedding(knobs.vocabulary, knobs.width)
        self.position = nn.Embedding(knobs.length, knobs.width)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(knobs.width, knobs.heads, causal=False) for _ in range(knobs.depth)))
        self.norm = nn.LayerNorm(knobs.width)
        self.head = nn.Linear(knobs.width, knobs.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        return self.read(self.token(tokens) + self.position(places))

    def read(self, embedded: Tensor) -> Tensor:
        """The answer to embeddings, [record, position, width]."""
        logits: Tensor = self.head(self.norm(self.blocks(embedded))[..., self.masked, :])
        return logits
