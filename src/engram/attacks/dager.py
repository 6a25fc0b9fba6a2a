"""Text, exactly, from a shared gradient of a transformer.

Petrov, Dimitrov, Baader, Mueller, Vechev: DAGER: Exact Gradient Inversion for Large Language Models, 2024.
The gradient of a linear layer is a sum of (.) x' over tokens, so its rows span what the layer was given (theorem 3.1).
Algorithm 1: the tokens of each position are those whose embedding lies in the span of the first attention layer; then
prefixes grow token by token as long as what the second attention layer is given lies in its span (section 4).
Differs from the paper: the gradients of queries, keys and values are taken together, as the first position leaves none in
the queries; the rank is where the spectrum has its gap and a vector counts as inside the span up to the middle of that
gap, so no tolerance is set by hand. Where the first layer allows one
token at each position, as it mostly does for one sentence, that is the sentence, for encoders as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram import check
from engram.access import Gradients, Unknown
from engram.seed import Seed
from engram.train.sharing import trainable
from engram.types import Recovered, Track, quiet

GAP = 30.0  # between the smallest singular value that counts and the largest that does not


@dataclass(frozen=True)
class Dager:
    """Every sentence of a batch, as long as all tokens together are fewer than the network is wide; of an encoder, one.

    `first` and `second` name the linear layers that read the input of the first and of the second attention; left empty,
    they are the first linear layer that is met and its counterpart in the next block. `beam` bounds the prefixes kept.
    """

    asks: ClassVar = Gradients
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Petrov et al. 2024"
    first: str = ""
    second: str = ""
    beam: int = 1024
    at_once: int = 2**21  # numbers of embeddings tested in one go, divided by the width

    def __post_init__(self) -> None:
        check.at_least("beam", self.beam, 1)
        check.at_least("at_once", self.at_once, 1)

    def __call__(self, target: Gradients, *, seed: Seed, track: Track = quiet) -> Recovered:  # noqa: ARG002  draws nothing
        reader = _Reader.of(target, self.first, self.second)
        (length,) = target.shape
        inner = span(reader.rows(0))
        allowed = [
            self._tokens(reader, inner, position, length)
            for position in track(range(length), "testing the vocabulary at each position", total=length)
        ]
        if all(len(tokens) == 1 for tokens in allowed):
            return _only(torch.cat(allowed)[None], reader, inner)
        outer = span(reader.rows(1))
        ranks = inner.basis.shape[1], outer.basis.shape[1]
        if ranks[1] < ranks[0]:
            raise Unknown(
                f"the gradient of the second attention has rank {ranks[1]}, below {ranks[0]} of the first: "
                "the network answers from some positions only, and no attention layer but the last is left to test prefixes"
            )
        sentences, apart = self._sentences(reader, outer, allowed, target.update.batch)
        if not len(sentences):
            raise Unknown("no sentence fits the update: it is of another model or batch, or it was altered")
        order = apart.argsort(stable=True)
        certificates = apart[order].cpu().numpy()
        return Recovered("text", sentences[order].cpu().numpy(), -certificates, certificates)

    def _tokens(self, reader: _Reader, inner: Span, position: int, length: int) -> Tensor:
        """The tokens whose embedding at this position lies in the span of the first layer."""
        step = max(1, self.at_once // (reader.width * (position + 1)))
        found = []
        for some in torch.split(torch.arange(reader.vocabulary, device=inner.basis.device), step):
            tokens = torch.zeros(len(some), length, dtype=torch.int64, device=some.device)
            tokens[:, position] = some
            found.append(some[inner.distance(reader.given(tokens[:, : position + 1], 0)[:, -1]) < inner.inside])
        return torch.cat(found)

    def _sentences(
        self, reader: _Reader, outer: Span, allowed: Sequence[Tensor], batch: int | None
    ) -> tuple[Tensor, Tensor]:
        """Prefixes that lie in the span of the second layer at every position, and the worst distance of each."""
        kept = torch.zeros(1, 0, dtype=torch.int64, device=outer.basis.device)
        worst = torch.zeros(1, dtype=torch.float64, device=outer.basis.device)
        for choices in allowed:
            grown = torch.cat([kept.repeat_interleave(len(choices), 0), choices.repeat(len(kept))[:, None]], 1)
            apart = torch.maximum(worst.repeat_interleave(len(choices)), self._apart(reader, outer, grown))
            best = apart.argsort(stable=True)[: self.beam]
            best = best[apart[best] < outer.inside]
            kept, worst = grown[best], apart[best]
        return (kept, worst) if batch is None else (kept[:batch], worst[:batch])

    def _apart(self, reader: _Reader, outer: Span, sentences: Tensor) -> Tensor:
        parts = torch.split(sentences, max(1, self.at_once // (reader.width * sentences.shape[1])))
        found = [outer.distance(reader.given(part, 1)[:, -1]) for part in parts if len(part)]
        return torch.cat(found) if found else outer.basis.new_zeros(0)


def _only(sentence: Tensor, reader: _Reader, inner: Span) -> Recovered:
    """The one sentence that the first layer allows, [1, position]; what the network does behind it no longer matters."""
    apart = inner.distance(reader.given(sentence, 0)[0]).max()[None].cpu().numpy()
    return Recovered("text", sentence.cpu().numpy(), -apart, apart)


@dataclass(frozen=True, eq=False)
class Span:
    """An orthonormal basis [width, rank], and the distance of a unit vector up to which it counts as inside."""

    basis: Tensor
    inside: float

    def distance(self, vectors: Tensor) -> Tensor:
        """[vector, width] -> [vector], relative to their length"""
        unit = vectors / vectors.norm(dim=-1, keepdim=True)
        left = unit - (unit @ self.basis) @ self.basis.T
        apart: Tensor = left.norm(dim=-1)
        return apart


def span(rows: Tensor) -> Span:
    """What the rows [row, width] span, up to the largest gap of their spectrum; refuses where there is none."""
    _, s, v = torch.linalg.svd(rows, full_matrices=False)
    floor = s[0] * torch.finfo(s.dtype).eps
    steps = s[1:].clamp_min(floor) / s[:-1].clamp_min(floor)
    rank, gap = int(steps.argmin()) + 1, float(steps.min())
    if not gap < 1 / GAP:
        raise Unknown(
            f"the gradient of the attention has no clear rank (its largest gap is a factor {1 / max(gap, 1e-300):.1f}, "
            f"wanted {GAP:g}): the batch has as many tokens as the network is wide, {rows.shape[1]}, or noise was added"
        )
    if rank >= rows.shape[1] - 1:  # normalised inputs add up to zero, so one direction is always missing
        raise Unknown(
            f"the gradient of the attention has rank {rank}: the batch has as many tokens as the network is wide, "
            f"{rows.shape[1]}, and then every token fits; dager answers fewer"
        )
    return Span(v[:rank].T, gap**0.5)


class _Enough(Exception):
    """What the layer was given is known; the rest of the forward pass is not needed."""


@dataclass(frozen=True, eq=False)
class _Reader:
    """What two attention layers are given, and what their gradients were."""

    model: nn.Module
    layers: tuple[list[str], list[str]]
    gradients: dict[str, Tensor]
    vocabulary: int
    width: int

    @classmethod
    def of(cls, target: Gradients, first: str, second: str) -> _Reader:
        model, _, _ = target.exact()
        model.eval()
        table = next((m for m in model.modules() if isinstance(m, nn.Embedding)), None)
        if table is None or len(target.shape) != 1:
            raise Unknown("dager reads sentences: it needs records of tokens and a model with a table of embeddings")
        shares = _sharing_input(model, target.shape)
        inner = _group(shares, first) if first else shares[0]
        outer = _group(shares, second or _next_block(inner[0]))
        named = dict(zip(trainable(target.model), target.update.gradient, strict=True))
        return cls(model, (inner, outer), {n: g.double() for n, g in named.items()}, *table.weight.shape)

    def rows(self, which: int) -> Tensor:
        """The gradients of all layers that share this input, [row, width]."""
        modules = dict(self.model.named_modules())
        told = [(self.gradients[f"{name}.weight"], modules[name]) for name in self.layers[which]]
        return torch.cat([g if isinstance(m, nn.Linear) else g.T for g, m in told])

    def given(self, tokens: Tensor, which: int) -> Tensor:
        """What the layer is given, [sentence, position, width]."""
        seen: list[Tensor] = []

        def stop(_: nn.Module, given: Any) -> None:
            seen.append(given[0])
            raise _Enough

        hook = dict(self.model.named_modules())[self.layers[which][0]].register_forward_pre_hook(stop)
        try:
            with torch.no_grad():
                self.model(tokens)
        except _Enough:
            pass
        finally:
            hook.remove()
        return seen[0]


def _sharing_input(model: nn.Module, shape: tuple[int, ...]) -> list[list[str]]:
    """Names of the layers with a matrix, in the order in which they are met; those given the same tensor together."""
    groups: list[tuple[Tensor, list[str]]] = []

    def note(name: str, given: Any) -> None:
        for held, names in groups:
            if held is given[0]:
                names.append(name)
                return
        groups.append((given[0], [name]))

    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear) or type(m).__name__ == "Conv1D"}
    hooks = [m.register_forward_pre_hook(lambda _, given, n=name: note(n, given)) for name, m in linear.items()]
    with torch.no_grad():
        model(torch.zeros(1, *shape, dtype=torch.int64, device=next(model.parameters()).device))
    for hook in hooks:
        hook.remove()
    return [names for _, names in groups]


def _group(groups: list[list[str]], name: str) -> list[str]:
    for names in groups:
        if name in names:
            return names
    raise Unknown(f"the model meets no linear layer called {name!r}; name the layers with the knobs first and second")


def _next_block(name: str) -> str:
    """The same layer one block on: the first number in its name, and one."""
    return re.sub(r"\d+", lambda found: str(int(found.group()) + 1), name, count=1)
