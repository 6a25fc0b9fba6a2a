"""A decoder trained privately on sentences and canaries, and what an observer tells of who was in.

Steinke, Nasr, Jagielski: Privacy Auditing with One (1) Training Run, 2023. Algorithm 1.
A canary is a word of its own, said again and again, so that most of its gradient is in the lines of that word; a fair coin
decides whether it is in the training set. Two observers: one who sees the finished model, and scores a canary by how much
its loss fell; and one who sees every update, and scores it by how far those lines were moved as its gradient says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from clipping.worlds import TinyGPT
from torch import nn

import engram
from engram import Seed
from engram.clipping import poisson
from engram.measure.epsilon import from_scores

WORDS, LENGTH, CLIP = 32, 8, 0.5


@dataclass(frozen=True)
class Canaries:
    """How many, and the training they go into."""

    canaries: int = 300
    sentences: int = 100
    steps: int = 60
    rate: float = 0.1
    learning_rate: float = 0.02

    def lower_bounds(self, noise_multiplier: float, delta: float, seed: int) -> dict[str, float]:
        """The epsilon that each observer proves, from one training."""
        stream = Seed(seed).child("canaries").numpy()
        ids, member = self._records(stream)
        seen = np.concatenate([np.arange(self.sentences), self.sentences + np.flatnonzero(member)])
        scores = self._trained(ids, seen, noise_multiplier, Seed(seed))
        guesses = self.canaries // 3
        return {name: from_scores(s, member, guesses=guesses, delta=delta) for name, s in scores.items()}

    def _records(self, stream: np.random.Generator) -> tuple[torch.Tensor, np.ndarray]:
        """Sentences of a chain of words, then the canaries; and which of those are in."""
        after = stream.permuted(np.tile(np.arange(WORDS), (WORDS, 1)), axis=1)[:, :3]  # each word has three successors
        ids = stream.integers(0, WORDS, (self.sentences + self.canaries, LENGTH))
        for t in range(1, LENGTH):
            ids[: self.sentences, t] = after[ids[: self.sentences, t - 1], stream.integers(0, 3, self.sentences)]
        ids[self.sentences :] = WORDS + np.arange(self.canaries)[:, None]
        return torch.from_numpy(ids), stream.random(self.canaries) < 0.5

    def _trained(self, ids: torch.Tensor, seen: np.ndarray, noise: float, seed: Seed) -> dict[str, np.ndarray]:
        model, watched = (_decoder(WORDS + self.canaries, seed) for _ in range(2))
        canaries = ids[self.sentences :]
        before = _losses(watched, canaries)
        expected = self.rate * (self.sentences + self.canaries / 2)
        private = engram.private(
            model,
            torch.optim.SGD(model.parameters(), self.learning_rate * expected / CLIP),
            noise_multiplier=noise,
            clip_norm=CLIP,
            expected_batch=expected,
            rate=self.rate,
            simulated=seed,
        )
        moved = torch.zeros(self.canaries, dtype=torch.float64)
        for batch in poisson(len(seen), self.rate, steps=self.steps, simulated=seed):
            own = _own_gradients(watched, canaries)
            if len(batch):
                private.backward(_losses(model, ids[seen[batch]]))
            private.step()
            update = torch.cat([old - new for old, new in zip(_own(watched), _own(model), strict=True)], 1)
            moved += (own * update).sum(1).detach()
            watched.load_state_dict(model.state_dict())
        fell = before - _losses(watched, canaries)
        return {"the finished model": fell.detach().numpy(), "every update": moved.numpy()}


def _decoder(words: int, seed: Seed) -> TinyGPT:
    """Begun as GPT-2 is: small embeddings, so that most of a canary's gradient is that of its word."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed.child("start").number)
        model = TinyGPT(vocabulary=words, width=16, depth=1, length=LENGTH)
        for p in model.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, 0, 0.02)
    return model


def _losses(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """[record] the mean cross-entropy of the next word."""
    each = nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return each.view(len(ids), -1).mean(1)


def _own(model: TinyGPT) -> list[torch.Tensor]:
    """The lines of the first and the last matrix that belong to the canaries' words."""
    return [model.words.weight[WORDS:], model.head.weight[WORDS:]]


def _own_gradients(model: TinyGPT, ids: torch.Tensor) -> torch.Tensor:
    """[canary, number] of unit length: which way each canary's loss moves the lines of its own word."""
    made = torch.autograd.grad(_losses(model, ids).sum(), [model.words.weight, model.head.weight])
    return nn.functional.normalize(torch.cat([g[WORDS:] for g in made], 1), dim=1).double()
