"""Pieces of work, one after another in this process; what is done is kept in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engram.store import Store
from engram.types import Arrays, Piece


class Local:
    """Runs each piece here, keeps its result in the store as it arrives, and reads what is there instead of running it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def agree(self, name: str, proposed: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.store.agree(name, proposed)

    def run(self, pieces: Sequence[Piece], work: Callable[[Piece], Arrays]) -> Iterator[Arrays]:
        for piece in pieces:
            done = self.store.piece(piece.name)
            if done is None:
                done = work(piece)
                self.store.keep(piece.name, done)
            yield done


class Memory:
    """The same without a disk: for scripts and tests that keep nothing."""

    def __init__(self) -> None:
        self._plans: dict[str, Mapping[str, Any]] = {}
        self._done: dict[str, Arrays] = {}

    def agree(self, name: str, proposed: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._plans.setdefault(name, dict(proposed))

    def run(self, pieces: Sequence[Piece], work: Callable[[Piece], Arrays]) -> Iterator[Arrays]:
        for piece in pieces:
            if piece.name not in self._done:
                self._done[piece.name] = work(piece)
            yield self._done[piece.name]
