"""Ways to fine-tune a language model by few parameters. Each takes a model of `engram.models.language` and leaves
trainable what it trains; everything else is frozen.

Hu et al.: LoRA, 2022, equation 3. Li, Liang: Prefix-Tuning, 2021, equation 3.
Differs from the papers: LoRA stands beside every matrix of the blocks, not the queries and values alone; the prefix begins as
words would, and is trained as it is, without a network that makes it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from engram import check
from engram.data.files import installed
from engram.models.language import Reader, Shape, Writer

Model = Writer | Reader


def whole_model(model: Model) -> Model:
    """Every parameter."""
    return model.requires_grad_(True)


def top(model: Model, blocks: int = 2) -> Model:
    """The last blocks, and the norm behind them."""
    model.requires_grad_(False)
    for block in model.blocks()[-check.whole("blocks", blocks, 1) :]:
        block.requires_grad_(True)
    if isinstance(model, Writer):
        model.net.transformer.ln_f.requires_grad_(True)
    return with_head(model)


def lora(model: Model, rank: int = 4, scale: float = 8.0) -> Model:
    """A product of two thin matrices beside every matrix of the blocks; the model begins as it was."""
    model.requires_grad_(False)
    for parent, name, matrix in matrices(model):
        setattr(parent, name, Beside(matrix, rank, scale))
    return with_head(model)


def prefix(model: Writer, length: int = 10) -> Writer:
    """Keys and values of positions that stand before every text."""
    model.requires_grad_(False)
    made = Prefix(model.shape, length)
    made.begin_as(model)
    model.prefix = made
    return model


class Beside(nn.Module):
    """A frozen matrix W, and B A beside it: W x + scale B A x."""

    def __init__(self, matrix: nn.Module, rank: int, scale: float) -> None:
        super().__init__()
        inputs, outputs = sizes(matrix)
        self.matrix, self.scale = matrix, scale
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.matrix(x) + self.scale * self.up(self.down(x))
        return out


class Prefix(nn.Module):
    """One row a position: the keys and values that every block attends to."""

    def __init__(self, shape: Shape, length: int) -> None:
        super().__init__()
        self.shape, self.length = shape, check.whole("length", length, 1)
        self.table = nn.Embedding(length, 2 * shape.depth * shape.width)

    @torch.no_grad()
    def begin_as(self, model: Writer) -> None:
        """The keys and values of words, which training finds its way from sooner than from noise."""
        cache = installed("transformers", "language models", "text").DynamicCache()
        model.net.transformer(input_ids=torch.arange(self.length)[None] % self.shape.vocabulary, past_key_values=cache)
        held = torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers])
        self.table.weight.copy_(
            held.permute(3, 0, 1, 2, 4).reshape(self.length, -1)
        )  # from [depth, 2, head, position, width]

    def forward(self, records: int) -> Any:
        """The cache that generation would have after reading the prefix."""
        shape, cache = self.shape, installed("transformers", "language models", "text").DynamicCache()
        places = torch.arange(self.length, device=self.table.weight.device).expand(records, -1)
        split = self.table(places).view(records, self.length, shape.depth, 2, shape.heads, -1)
        for depth, (keys, values) in enumerate(split.permute(2, 3, 0, 4, 1, 5)):  # [record, head, position, width]
            cache.update(keys, values, depth)
        return cache


def matrices(model: Model) -> list[tuple[nn.Module, str, nn.Module]]:
    """The matrices of the blocks: who holds each, under which name."""
    found = []
    for block in model.blocks():
        for path, module in block.named_modules():
            if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
                parent, _, name = path.rpartition(".")
                found.append((block.get_submodule(parent), name, module))
    return found


def sizes(matrix: Any) -> tuple[int, int]:
    """Inputs and outputs; the Conv1D of transformers stores its matrix the other way round."""
    rows, columns = matrix.weight.shape
    return (columns, rows) if isinstance(matrix, nn.Linear) else (rows, columns)


def with_head(model: Model) -> Model:
    """A fresh head for classes has learned nothing yet, so it is trained in any case."""
    if isinstance(model, Reader) and model.classes is not None:
        model.classes.requires_grad_(True)
    return model
