"""One run: a public model, fine-tuned on a task in one way, and what it is worth on records that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from engram.data import fingerprint
from engram.models.language import Writer
from engram.reproduce import language_scores
from engram.reproduce.cells import Bench
from engram.reproduce.language_settings import Size
from engram.reproduce.language_tasks import JUDGED, TEMPLATE, Asked, Judged, Written, hidden, named
from engram.reproduce.language_tokens import Tokens, left, paired, right
from engram.reproduce.language_training import Public, Tuning, fine_tuned, judged, next_word, on_pairs, on_sentences
from engram.seed import Seed
from engram.types import Array, Arrays, Ints, Piece

SCORES = {"BLEU": language_scores.bleu, "ROUGE-L": language_scores.rouge_l, "F1": language_scores.f1}


@dataclass(frozen=True, eq=False)
class Describing:
    """A task whose answers are texts, in tokens."""

    bench: Bench
    size: Size
    task: Written
    tokens: Tokens

    @cached_property
    def ids(self) -> Ints:
        return paired(self.tokens, self.task.train, self.size.prompt, self.size.answer)

    @property
    def delta(self) -> float:
        """Below one over the number of records, as the talk's."""
        return 1 / (2 * len(self.task.train))

    def run(self, public: Public, how: Tuning, seed: Seed, *, tuning: bool = False) -> Arrays:
        """BLEU, ROUGE-L, F1 and the loss of a word, as stored; of the part that settings are chosen on, or of the test."""
        asked = (self.task.tuning if tuning else self.task.test)[: self.size.tested]
        name = fingerprint(self.ids, [a.prompt for a in asked], public.name, how, seed.number)

        def work(_: Piece) -> Arrays:
            loss = on_pairs(self.ids, self.size.prompt, self.bench.device)
            model = fine_tuned(public, how, loss, len(self.ids), self.delta, seed, self.bench.device)
            said, texts = self.said(model, asked), [a.answers for a in asked]
            told = {metric: np.array(score(said, texts)) for metric, score in SCORES.items()}
            return {**told, "loss": np.array(self.loss(model, asked))}

        (found,) = self.bench.chunks.run([Piece(f"private-language/described/{name}")], work)
        return found

    def said(self, model: Writer, asked: Sequence[Asked]) -> list[str]:
        """What the model answers, with the names put in."""
        prompts = left(self.tokens.of([a.prompt for a in asked]), self.size.prompt)
        ids = torch.as_tensor(prompts, device=self.bench.device)
        told = model.continued(ids, self.size.answer, self.tokens.end).tolist()
        return [named(self.tokens.text(row), a.names) for row, a in zip(told, asked, strict=True)]

    def loss(self, model: Writer, asked: Sequence[Asked]) -> float:
        """Of a word of the first reference, by which perplexity is told."""
        firsts = [(a.prompt, hidden(a.answers[0], a.names)) for a in asked]
        ids = paired(self.tokens, firsts, self.size.prompt, self.size.answer)
        with torch.no_grad():
            return float(next_word(model, torch.as_tensor(ids, device=self.bench.device), self.size.prompt).mean())


@dataclass(frozen=True, eq=False)
class Judging:
    """A task whose answers are classes, in tokens."""

    bench: Bench
    size: Size
    task: Judged
    tokens: Tokens

    @property
    def delta(self) -> float:
        return 1 / (2 * len(self.task.train))

    @cached_property
    def words(self) -> tuple[int, ...]:
        """The tokens that stand for the classes."""
        return next((pair for pair in map(self._pair, JUDGED) if pair), tuple(map(self.tokens.word, JUDGED[-1])))

    @cached_property
    def train(self) -> tuple[Array, Array, Array]:
        return self._rows(self.task.train)

    def run(self, public: Public, how: Tuning, infilling: bool, seed: Seed, *, tuning: bool = False) -> Arrays:
        """Whether each sentence was judged rightly, as stored."""
        part = (self.task.tuning if tuning else self.task.test)[: self.size.judged]
        name = fingerprint(*self.train, list(part), public.name, how, infilling, seed.number)
        words = self.words if infilling else ()

        def work(_: Piece) -> Arrays:
            loss = on_sentences(*self.train, words, self.bench.device)
            classes = 0 if infilling else 2
            model = fine_tuned(public, how, loss, len(self.task.train), self.delta, seed, self.bench.device, classes)
            return {"right": self._right(model, part, words)}

        (found,) = self.bench.chunks.run([Piece(f"private-language/judged/{name}")], work)
        return found

    def _right(self, model: torch.nn.Module, part: Sequence[tuple[str, int]], words: tuple[int, ...]) -> Array:
        ids, places, labels = (torch.as_tensor(a, device=self.bench.device) for a in self._rows(part))
        with torch.no_grad():
            found = [
                judged(model, ids[k : k + 256], places[k : k + 256], words).argmax(1) for k in range(0, len(ids), 256)
            ]
        return (torch.cat(found) == labels).cpu().numpy()

    def _rows(self, part: Sequence[tuple[str, int]]) -> tuple[Array, Array, Array]:
        """Tokens, where the mask stands, and labels. A long sentence loses its end, never the template."""
        asked = self.tokens.of([TEMPLATE])[0]
        room = self.size.sentence - len(asked)
        ids = right([row[:room] + asked for row in self.tokens.of([text for text, _ in part])], self.size.sentence)
        return ids, (ids == self.tokens.mask).argmax(1)[:, None], np.array([label for _, label in part])

    def _pair(self, words: Sequence[str]) -> tuple[int, ...]:
        told = [self.tokens.of([f" {word}"])[0] for word in words]
        return tuple(t[0] for t in told) if all(len(t) == 1 for t in told) else ()
