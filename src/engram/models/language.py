"""Small decoders and encoders of text, of the architectures that transformers has. Nothing is downloaded.

Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask Learners, 2019 (GPT-2).
Liu et al.: RoBERTa, 2019. Differs from the papers: no dropout; the decoder's head is not tied to its embedding.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engram.data.files import installed
from engram.models.layers import whole

PAD = 0


@dataclass(frozen=True)
class Shape:
    """How large a language model is."""

    vocabulary: int
    length: int
    width: int
    depth: int
    heads: int

    def __post_init__(self) -> None:
        whole(**asdict(self))
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width} and {self.heads}")


@dataclass(frozen=True)
class Writes:
    """A decoder: calling it builds one."""

    shape: Shape

    def __call__(self) -> Writer:
        return Writer(self.shape)


@dataclass(frozen=True)
class Reads:
    """An encoder that fills in masked words; with `classes`, one with a fresh head for them beside it."""

    shape: Shape
    classes: int = 0

    def __call__(self) -> Reader:
        return Reader(self.shape, self.classes)


class Writer(nn.Module):
    """Tokens [record, position] to logits of the next one, from position `first` on."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        library = installed("transformers", "language models", "text")
        config = library.GPT2Config(
            vocab_size=shape.vocabulary, n_positions=shape.length, n_embd=shape.width, n_layer=shape.depth,
            n_head=shape.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        self.shape, self.net = shape, library.GPT2LMHeadModel(config)
        self.prefix: nn.Module | None = None  # what stands before every text; see `engram.models.adapters`

    def forward(self, ids: Tensor, first: int = 0) -> Tensor:
        logits: Tensor = self.net.lm_head(self._hidden(ids, self._begun(len(ids)))[:, first:])
        return logits

    def continued(self, ids: Tensor, steps: int, end: int) -> Tensor:
        """[record, at most steps] the likeliest continuation, word by word; what follows `end` means nothing."""
        cache = self._begun(len(ids)) or installed("transformers", "language models", "text").DynamicCache()
        start = 0
        told: list[Tensor] = []
        done = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        while len(told) < steps and not done.all():
            with torch.no_grad():
                best = self.net.lm_head(self._hidden(ids, cache, start)[:, -1:]).argmax(-1)  # [record, 1]
            start, ids = start + ids.shape[1], best
            told.append(best)
            done |= best[:, 0] == end
        return torch.cat(told, 1)

    def blocks(self) -> list[nn.Module]:
        return list(self.net.transformer.h)

    def _begun(self, records: int) -> Any:
        return None if self.prefix is None else self.prefix(records)

    def _hidden(self, ids: Tensor, cache: Any, start: int = 0) -> Tensor:
        places = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
        hidden: Tensor = self.net.transformer(
            input_ids=ids, position_ids=places, past_key_values=cache, use_cache=cache is not None
        ).last_hidden_state
        return hidden


class Reader(nn.Module):
    """Tokens [record, position] to logits: of each class, or of the words that may stand at `mask`."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        library = installed("transformers", "language models", "text")
        config = library.RobertaConfig(
            vocab_size=shape.vocabulary, max_position_embeddings=shape.length + PAD + 1, hidden_size=shape.width,
            num_hidden_layers=shape.depth, num_attention_heads=shape.heads, intermediate_size=4 * shape.width,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, type_vocab_size=1,
            pad_token_id=PAD, bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        self.shape, self.net = shape, library.RobertaForMaskedLM(config)
        self.classes = nn.Sequential(
            nn.Linear(shape.width, shape.width), nn.Tanh(), nn.Linear(shape.width, classes)
        ) if classes else None  # fmt: skip

    def forward(self, ids: Tensor, places: Tensor) -> Tensor:
        """`places` [record, masked]: which positions are read; for classes, the first of them."""
        hidden = self.net.roberta(input_ids=ids, attention_mask=(ids != PAD).long()).last_hidden_state
        read = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))  # [record, masked, width]
        logits: Tensor = self.net.lm_head(read) if self.classes is None else self.classes(read[:, 0])
        return logits

    def blocks(self) -> list[nn.Module]:
        return list(self.net.roberta.encoder.layer)
