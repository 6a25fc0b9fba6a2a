"""From public text to a language model, and from that to one that was fine-tuned privately.

Every run is a piece of work named by what it computes, so a killed reproduction goes on where it was. The noise of these runs
is drawn from the seed, so that the table can be made again: their epsilon is that of the mechanism, not of these models.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import engram.clipping as clipping
from engram import check
from engram.accounting import calibration
from engram.data import fingerprint
from engram.models import adapters
from engram.models.language import PAD, Reads, Writer, Writes
from engram.models.reparametrised import Carriers, low_rank
from engram.reproduce.cells import Bench
from engram.seed import Seed
from engram.train import Recipe
from engram.train.loop import started
from engram.train.recipe import Given
from engram.types import Array, Arrays, Ints, Piece

METHODS: dict[str, Callable[[Any], nn.Module]] = {
    "full": adapters.whole_model,
    "LoRA": adapters.lora,
    "prefix": adapters.prefix,
    "RGP": low_rank,
    "top-2": adapters.top,
    "from scratch": adapters.whole_model,
}
AT_ONCE = 128  # records in one backward pass
MASKED = 0.15

LossOf = Callable[[nn.Module, Ints], Tensor]  # [record]


@dataclass(frozen=True)
class Pretraining:
    """How a model is made from public text."""

    batch: int
    steps: int  # of one piece
    rate: float
    pieces: int = 1  # each begins with the weights of the one before, and a fresh optimiser


@dataclass(frozen=True)
class Tuning:
    """How a model is fine-tuned; all of it may be published."""

    method: str
    epsilon: float | None  # None: without privacy
    batch: int  # expected
    steps: int
    rate: float  # of learning
    clip_norm: float = 0.1

    def __post_init__(self) -> None:
        check.known("method", self.method, METHODS)


def noise_of(how: Tuning, records: int, delta: float) -> float:
    """The least noise multiplier that keeps epsilon."""
    return 0.0 if how.epsilon is None else _noise(how.epsilon, delta, how.batch / records, how.steps)


@functools.cache
def _noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    return calibration.noise_multiplier(epsilon=epsilon, delta=delta, rate=rate, steps=steps)


@dataclass(frozen=True, eq=False)
class Public:
    """A model of public text, and what names it."""

    build: Writes | Reads
    weights: Arrays
    name: str

    def model(self, seed: Seed, *, scratch: bool = False, classes: int = 0) -> Any:
        """The model before it sees anything private; a head for classes is drawn from the seed."""
        build = replace(self.build, classes=classes) if isinstance(self.build, Reads) else self.build
        if scratch:
            return started(Recipe(build), seed)
        weights = {name: torch.as_tensor(np.array(w)) for name, w in self.weights.items()}
        return started(Recipe(build, start=Given(weights, partly=classes > 0)), seed)


def pretrained(bench: Bench, build: Writes | Reads, text: Ints, mask: int, how: Pretraining) -> Public:
    """A model that has read `text` [row, position]."""
    seed = bench.seed.child("private-language", "public")
    told: Public | None = None
    for k in range(how.pieces):
        name = f"private-language/public/{fingerprint(build, text, how, seed.number, k)}"

        def work(_: Piece, k: int = k, before: Public | None = told) -> Arrays:
            model = started(Recipe(build), seed) if before is None else before.model(seed)
            read(model.to(bench.device), text, mask, how, seed.child("piece", k), bench)
            return {name: w.cpu().numpy() for name, w in model.state_dict().items()}

        (weights,) = bench.chunks.run([Piece(name)], work)
        told = Public(build, weights, name)
    assert told is not None
    return told


def read(model: nn.Module, text: Ints, mask: int, how: Pretraining, seed: Seed, bench: Bench) -> None:
    """Ordinary training on random rows: the next word, or the masked ones."""
    stream, optimiser = seed.numpy(), torch.optim.AdamW(model.parameters(), how.rate, weight_decay=0.01)
    for step in bench.track(range(how.steps), "reading public text", how.steps):
        optimiser.param_groups[0]["lr"] = how.rate * warmed(step / how.steps)
        ids = torch.as_tensor(text[stream.integers(0, len(text), how.batch)], device=bench.device)
        loss = next_word(model, ids, 1) if isinstance(model, Writer) else masked_words(model, ids, mask, stream)
        optimiser.zero_grad()
        loss.mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def warmed(share: float) -> float:
    """Up over the first twentieth, down as a cosine."""
    return min(share * 20, 0.5 + 0.5 * math.cos(math.pi * share)) if share < 1 else 0.0


def next_word(model: nn.Module, ids: Tensor, first: int) -> Tensor:
    """[record] the mean loss of the words from position `first` on; PAD is none."""
    logits = model(ids[:, :-1], first - 1)
    wanted = ids[:, first:]
    loss = functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none", ignore_index=PAD)
    return loss.sum(1) / (wanted != PAD).sum(1).clamp_min(1)


def masked_words(model: nn.Module, ids: Tensor, mask: int, stream: np.random.Generator) -> Tensor:
    """[record] the mean loss of a share of the words that were masked or (one in five) left or replaced."""
    records, length = ids.shape
    hidden = np.argsort(stream.random((records, length)), 1)[:, : max(1, round(MASKED * length))]
    places = torch.as_tensor(hidden, device=ids.device)
    wanted, drawn = ids.gather(1, places), torch.as_tensor(stream.random(hidden.shape), device=ids.device)
    others = ids[torch.as_tensor(stream.permutation(records), device=ids.device)].gather(1, places)
    put = torch.where(drawn < 0.8, mask, torch.where(drawn < 0.9, wanted, others))
    logits = model(ids.scatter(1, places, put), places)
    return functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none").mean(1)


def fine_tuned(
    public: Public, how: Tuning, loss: LossOf, records: int, delta: float, seed: Seed, device: str, classes: int = 0
) -> Any:
    """A model after `how.steps` private steps on Poisson samples of the records."""
    model = public.model(seed, scratch=how.method == "from scratch", classes=classes)
    model = started(Recipe(lambda: METHODS[how.method](model)), seed.child("adapter")).to(device).train()
    private = clipping.private(
        model, optimiser_of(model, how, seed), noise_multiplier=noise_of(how, records, delta),
        clip_norm=math.inf if how.epsilon is None else how.clip_norm, expected_batch=how.batch,
        rate=how.batch / records, simulated=seed.child("noise"),
    )  # fmt: skip
    for rows in clipping.poisson(records, how.batch / records, steps=how.steps, simulated=seed.child("sample")):
        for part in np.array_split(rows, 1 + len(rows) // AT_ONCE):
            if len(part):
                private.backward(loss(model, part))
        private.step()
    return private.release().eval()


def optimiser_of(model: nn.Module, how: Tuning, seed: Seed) -> torch.optim.Optimizer:
    """Adam, as in the talk; for RGP, Adam on the matrices that are carried."""
    if how.method == "RGP":
        stream = torch.Generator().manual_seed(seed.child("carriers").number)
        return Carriers(model, lambda whole: torch.optim.Adam(whole, how.rate), stream)
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], how.rate)


def on_pairs(ids: Array, first: int, device: str) -> LossOf:
    """The loss of answers that begin at position `first`."""
    held = torch.as_tensor(ids, device=device)
    return lambda model, rows: next_word(model, held[torch.as_tensor(rows, device=device)], first)


def on_sentences(ids: Array, places: Array, labels: Array, words: tuple[int, ...], device: str) -> LossOf:
    """The loss of the class; with `words`, of the one of them that stands for it at the masked place."""
    x, at, y = (torch.as_tensor(a, device=device) for a in (ids, places, labels))

    def loss(model: nn.Module, rows: Ints) -> Tensor:
        chosen = torch.as_tensor(rows, device=device)
        return functional.cross_entropy(judged(model, x[chosen], at[chosen], words), y[chosen], reduction="none")

    return loss


def judged(model: nn.Module, ids: Tensor, places: Tensor, words: tuple[int, ...]) -> Tensor:
    """[record, class]."""
    logits: Tensor = model(ids, places)
    return logits[:, 0, list(words)] if words else logits
