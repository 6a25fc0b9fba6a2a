"""Everything that determines a trained model, in one frozen value.

A defence is a function from recipe to recipe, so whoever copies the recipe copies the defence with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from torch import Tensor, nn

from engram import check
from engram.train.losses import CrossEntropy
from engram.train.optimisers import SGD, Adam, RMSProp
from engram.train.sampling import Batches, FullBatch, Poisson
from engram.train.steps import Plain, Step

Build = Callable[[], nn.Module]
Loss = Callable[[Tensor, Tensor], Tensor]
Share = Callable[[list[Tensor]], list[Tensor]]
Optimiser = Adam | RMSProp | SGD
Sampler = Batches | FullBatch | Poisson


@dataclass(frozen=True)
class Fresh:
    """Start from the network's own initialisation, drawn anew for each model."""


@dataclass(frozen=True, eq=False)
class Given:
    """Start from these weights: fine-tuning, or an initialisation that the adversary knows.

    `partly` leaves what they do not name as the network draws it, anew for each model.
    """

    weights: Mapping[str, Tensor]
    partly: bool = False


@dataclass(frozen=True)
class Patience:
    """Hold out a share of the training records; stop when their loss has not improved for `epochs`, and keep the best."""

    epochs: int = 5
    held_out: float = 0.1

    def __post_init__(self) -> None:
        check.at_least("patience", self.epochs, 1)
        check.fraction("held_out", self.held_out)


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. A field answers one question; a defence replaces exactly the one that it is about.

    >>> from engram.models import MLP
    >>> Recipe(MLP(inputs=64, classes=10), epochs=30).sampler
    Batches(size=32)
    """

    build: Build  # which network
    epochs: int = 30
    optimiser: Optimiser = field(default_factory=Adam)
    sampler: Sampler = field(default_factory=Batches)  # which records, in which batches
    loss: Loss = field(default_factory=CrossEntropy)  # per record
    step: Step = field(default_factory=Plain)  # what one batch does to the model
    start: Fresh | Given = field(default_factory=Fresh)
    before: tuple[Callable[..., Tensor], ...] = ()  # what is done to the records of a batch, anew each time
    stop: Patience | None = None
    after: tuple[Callable[[Tensor], Tensor], ...] = ()  # what is done to the probabilities before anybody sees them
    share: tuple[Share, ...] = ()  # what is done to an update before it leaves a participant

    def __post_init__(self) -> None:
        if not callable(self.build):
            raise TypeError(f"build must be callable and make the network, got {type(self.build).__name__}")
        check.at_least("epochs", self.epochs, 0)

    def __str__(self) -> str:
        return "\n".join(f"{f.name:10} {getattr(self, f.name)}" for f in fields(self))
