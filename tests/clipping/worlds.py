"""Small models of every kind of layer, and the slow loop over records that everything is compared with."""

from __future__ import annotations

import copy

import torch
from torch import nn


def per_record(model, x, loss):
    """A backward pass for each record, in float64: the list of gradients of each, {name: [record, *parameter]}."""
    model = copy.deepcopy(model).double()
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    made = {n: [] for n in named}
    for i in range(len(x)):
        model.zero_grad()
        one = x[i : i + 1]
        loss(model(one.double() if one.is_floating_point() else one), i).sum().backward()
        for n, p in named.items():
            made[n].append(torch.zeros_like(p) if p.grad is None else p.grad.clone())
    return {n: torch.stack(g) for n, g in made.items()}


def norms(gradients):
    """[record]"""
    return torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()


class Losses:
    """A loss of each record that weighs its outputs by fixed numbers, unequal from record to record."""

    def __init__(self, seed):
        self.seed = seed

    def weights(self, out):
        stream = torch.Generator().manual_seed(self.seed)
        return torch.randn(64, *out.shape[1:], generator=stream, dtype=torch.float64)

    def __call__(self, out, record=None):
        w = self.weights(out).to(out.dtype)
        w = w[: len(out)] if record is None else w[record : record + 1]
        return (out.tanh() * w).flatten(1).sum(1)


class TinyGPT(nn.Module):
    """A decoder with every trap at once: positions without a batch dimension, dropout off, a tied head if asked."""

    def __init__(self, vocabulary=11, width=8, heads=2, depth=2, length=16, tied=False):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.mixed(self.before(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))
