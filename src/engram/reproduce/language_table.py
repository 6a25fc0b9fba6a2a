"""What all tables of the private-language reproduction share: text, tokens, public models, tasks, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engram.data import fingerprint
from engram.models.language import Reads, Writes
from engram.reproduce import language_grammar, language_tasks
from engram.reproduce.cells import Bench, Cell
from engram.reproduce.language_runs import Describing, Judging
from engram.reproduce.language_settings import RATES, Size
from engram.reproduce.language_tokens import Tokens, learned, paired, tokens, windows
from engram.reproduce.language_training import Public, Tuning, pretrained
from engram.reproduce.paired import difference
from engram.seed import Seed
from engram.types import Floats, Ints, Piece


@dataclass(frozen=True, eq=False)
class Table:
    """What all tables of one reproduction share."""

    bench: Bench
    size: Size

    @cached_property
    def tokens(self) -> Tokens:
        text, count = self.text, self.size.vocabulary
        piece = Piece(f"private-language/tokens/{fingerprint(text, count)}")
        (stored,) = self.bench.chunks.run([piece], lambda _: {"json": learned(text, count, language_tasks.MARKERS)})
        return tokens(stored["json"])

    @cached_property
    def text(self) -> list[str]:
        if self.bench.data is None:
            return language_grammar.public_text(self.size.public, self.bench.seed)
        return language_tasks.public_text(self.bench.data, self.size.public)

    @cached_property
    def pages(self) -> Ints:
        """What decoders read: public text, and as many rows of exercises made of it."""
        size = self.size
        plain = windows(self.tokens.of(self.text), size.prompt + size.answer, self.tokens.end)
        exercises = language_tasks.exercises(self.text, len(plain), self.bench.seed)
        return np.concatenate([plain, paired(self.tokens, exercises, size.prompt, size.answer)])

    @cached_property
    def plain(self) -> Ints:
        """What encoders read."""
        return windows(self.tokens.of(self.text), self.size.sentence, self.tokens.end)

    @cached_property
    def restaurants(self) -> Describing:
        bench, whole = self.bench, self.size.delexicalised
        task = (
            language_grammar.restaurants(self.size.records, bench.seed, delexicalised=whole) if bench.data is None
            else language_tasks.restaurants(bench.data, delexicalised=whole)
        )  # fmt: skip
        return Describing(bench, self.size, task, self.tokens)

    @cached_property
    def sentences(self) -> Judging:
        bench = self.bench
        task = (
            language_grammar.sentences(self.size.records, bench.seed) if bench.data is None
            else language_tasks.sentences(bench.data)
        )  # fmt: skip
        return Judging(bench, self.size, task, self.tokens)

    def decoder(self, name: str) -> Public:
        build = Writes(self.size.shape(self.size.decoders, name, self.tokens.count))
        return pretrained(self.bench, build, self.pages, self.tokens.mask, self.size.reading)

    def encoder(self, name: str) -> Public:
        build = Reads(self.size.shape(self.size.encoders, name, self.tokens.count))
        return pretrained(self.bench, build, self.plain, self.tokens.mask, self.size.masked)

    def tuning(self, method: str, epsilon: float | None) -> Tuning:
        """How restaurants are learned."""
        plain = Tuning(method, epsilon, self.size.batch, self.size.steps, 0.0)
        public = self.decoder(base(self.size.decoders))

        def loss(how: Tuning) -> float:
            return float(self.restaurants.run(public, how, self._tried, tuning=True)["loss"])

        return self._rated(plain, method, loss)

    def judging(self, way: str, method: str, epsilon: float | None) -> Tuning:
        """How sentences are learned."""
        plain = Tuning(method, epsilon, self.size.judged_batch, self.size.judged_steps, 0.0)
        public = self.encoder(base(self.size.encoders))

        def wrong(how: Tuning) -> float:
            return -float(self.sentences.run(public, how, way != "head", self._tried, tuning=True)["right"].mean())

        return self._rated(plain, way, wrong)

    def _rated(self, plain: Tuning, which: str, badness: Callable[[Tuning], float]) -> Tuning:
        """With the rate that is best on the part for tuning: one for all epsilons, and one without privacy."""
        among = RATES[self.bench.scale][which][plain.epsilon is None]
        if len(among) == 1:
            return replace(plain, rate=among[0])
        tried = replace(plain, epsilon=None if plain.epsilon is None else max(self.size.private))
        return replace(plain, rate=min(among, key=lambda rate: badness(replace(tried, rate=rate))))

    def described(
        self, public: Public, how: Tuning, task: Describing | None = None, seeds: int = 0
    ) -> dict[str, Floats]:
        """Every score of one way of fine-tuning, over seeds; seeds are shared, so that differences are paired."""
        runs = [(task or self.restaurants).run(public, how, self._seed(k)) for k in range(seeds or self.size.seeds)]
        return {metric: np.array([float(run[metric]) for run in runs]) for metric in runs[0]}

    def accuracy(self, public: Public, how: Tuning, infilling: bool) -> Floats:
        """Per cent, over seeds."""
        runs = [self.sentences.run(public, how, infilling, self._seed(k)) for k in range(self.size.seeds)]
        return np.array([100 * float(run["right"].mean()) for run in runs])

    def claim(
        self, row: str, column: str, values: Floats, published: float | None = None, within: float | None = None
    ) -> Cell:
        """A difference that the talk says something of; two steps of a smoke run are not asked to bear it out."""
        cell = difference(row, column, values, published, within)
        return cell if self.bench.scale != "smoke" else replace(cell, holds=None, note="not judged at this scale")

    @property
    def _tried(self) -> Seed:
        return self.bench.seed.child("private-language", "tried")

    def _seed(self, k: int) -> Seed:
        return self.bench.seed.child("private-language", "tuning", k)


def base(among: Mapping[str, object]) -> str:
    """The size that the tables are about: the last."""
    return list(among)[-1]
