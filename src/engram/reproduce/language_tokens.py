"""Byte-pair tokens, learned from public text alone: what is learned from private records would have to be paid for.

Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words with Subword Units, 2016.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.data.files import installed
from engram.models.language import PAD
from engram.types import Array, Ints

SPECIAL = ("<pad>", "<end>", "<mask>", "<text>")  # PAD is 0


@dataclass(frozen=True, eq=False)
class Tokens:
    """Text to numbers and back."""

    inner: Any
    end: int
    mask: int
    begin: int

    @property
    def count(self) -> int:
        return int(self.inner.get_vocab_size())

    def of(self, texts: Sequence[str]) -> list[list[int]]:
        return [told.ids for told in self.inner.encode_batch(list(texts))]

    def text(self, ids: Iterable[int]) -> str:
        """Up to the end."""
        kept: list[int] = []
        for number in ids:
            if number == self.end:
                break
            kept.append(int(number))
        told: str = self.inner.decode(kept, skip_special_tokens=False)
        return told.strip()

    def word(self, text: str) -> int:
        """The first token of a word in the middle of a sentence."""
        return self.of([f" {text}"])[0][0]


def learned(public: Sequence[str], vocabulary: int, markers: Sequence[str]) -> Array:
    """The bytes of a tokeniser; `markers` are words of the task's format (names of slots) that get a token each."""
    library: Any = installed("tokenizers", "language tasks", "text")
    inner = library.Tokenizer(library.models.BPE())
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    inner.decoder = library.decoders.ByteLevel()
    special = [*SPECIAL, *(library.AddedToken(marker, lstrip=True, normalized=False) for marker in markers)]
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, show_progress=False,
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    inner.train_from_iterator(public, trainer)
    return np.frombuffer(inner.to_str().encode(), np.uint8).copy()


def tokens(stored: Array) -> Tokens:
    library: Any = installed("tokenizers", "language tasks", "text")
    inner = library.Tokenizer.from_str(np.asarray(stored, np.uint8).tobytes().decode())
    return Tokens(inner, *(inner.token_to_id(name) for name in SPECIAL[1:]))


def left(rows: Sequence[Sequence[int]], length: int) -> Ints:
    """[record, length], filled up before, cut before."""
    return np.array([[PAD] * (length - len(row)) + list(row[-length:]) for row in rows], np.int64).reshape(-1, length)


def right(rows: Sequence[Sequence[int]], length: int) -> Ints:
    """[record, length], filled up behind, cut behind."""
    return np.array([list(row[:length]) + [PAD] * (length - len(row)) for row in rows], np.int64).reshape(-1, length)


def windows(rows: Sequence[Sequence[int]], length: int, end: int) -> Ints:
    """[row, length]: all texts one after another, cut into equal rows."""
    line = np.concatenate([np.array([*row, end], np.int64) for row in rows])
    return line[: len(line) // length * length].reshape(-1, length)


def paired(tokens: Tokens, pairs: Sequence[tuple[str, str]], prompt: int, answer: int) -> Ints:
    """[record, prompt + answer]: answers begin at one position, whatever their prompts' length."""
    ended = [[*row, tokens.end] for row in tokens.of([told for _, told in pairs])]
    return np.concatenate([left(tokens.of([asked for asked, _ in pairs]), prompt), right(ended, answer)], 1)
