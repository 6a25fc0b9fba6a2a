"""What a private step is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from engram import check
from engram.clipping.coefficients import CLIPPINGS, Clipping
from engram.clipping.routes import CHOICES, Choice

Mode = Literal["book-keeping", "ghost", "layer by layer", "micro-batch"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Settings:
    """What a private step is. All of it may be published."""

    noise_multiplier: float  # standard deviation of the noise over clip_norm
    clip_norm: float
    expected_batch: float  # the divisor: rate times the number of records one expects, and nothing that was counted
    rate: float | None = None  # of the Poisson sample; None claims no amplification by sampling
    mode: Mode = "book-keeping"
    clipping: Clipping = "flat"
    routes: Choice = "measured"

    def __post_init__(self) -> None:
        check.at_least("noise_multiplier", self.noise_multiplier, 0.0, "0 is no noise at all")
        if not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be positive, got {self.clip_norm}; use float('inf') for no clipping")
        if math.isinf(self.clip_norm) and (self.noise_multiplier or self.clipping != "flat"):
            raise ValueError(
                "clip_norm=inf must come with noise_multiplier=0 and clipping='flat'; state a finite clip_norm"
            )
        check.positive("expected_batch", self.expected_batch)
        if self.rate is not None:
            check.fraction("rate", self.rate, one=True)
        check.known("mode", self.mode, MODES)
        check.known("clipping", self.clipping, CLIPPINGS)
        check.known("choice of routes", self.routes, CHOICES)
