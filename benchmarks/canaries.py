"""Does private training keep its claim? One training, many canaries, a lower bound on epsilon from each of several seeds.

A small decoder is trained by `engram.private` on sentences and canaries (tests/clipping/canaries.py says which, and what the
two observers see). The bound of Steinke, Nasr, Jagielski 2023 holds with 95 % confidence and must stay below the claim; with
the noise switched off the same claim must be refuted; with a tenth of it an observer may or may not be able to. Noise is
drawn from seeds, so that an audit can be repeated.

    python benchmarks/canaries.py [--seeds 5] [--canaries 1000] [--rows FILE]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rows import asked, finish

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from clipping.canaries import Canaries

from engram.accounting.calibration import noise_multiplier

DELTA = 1e-5
ARMS = ((1.0, 1.0), (3.0, 1.0), (1.0, 0.1), (3.0, 0.1), (1.0, 0.0), (3.0, 0.0))  # claim, and the share of its noise
GOALS = {1.0: 0, 0.1: None}  # seeds above the claim


def main() -> None:
    args = asked(__doc__ or "", seeds=5, canaries=1000)
    finish(arms(args), benchmark="canaries", args=args)


def arms(args: Any) -> Iterator[dict[str, Any]]:
    world = Canaries(canaries=args.canaries, sentences=args.canaries // 3)
    for claim, share in ARMS:
        noise = share * noise_multiplier(epsilon=claim, delta=DELTA, rate=world.rate, steps=world.steps)
        found = [_bounds(world, noise, seed) for seed in range(args.seeds)]
        for observer in found[0]:
            bounds = [bound[observer] for bound in found]
            yield {
                "claimed epsilon": claim,
                "of its noise": share,
                "observer": observer,
                "measured, mean": sum(bounds) / len(bounds),
                "least": min(bounds),
                "largest": max(bounds),
                "above the claim": sum(bound > claim for bound in bounds),
                "should be": GOALS[share] if share else len(bounds),
                "canaries": args.canaries,
                "seeds": args.seeds,
            }


@functools.cache
def _bounds(world: Canaries, noise: float, seed: int) -> dict[str, float]:
    return world.lower_bounds(noise, DELTA, seed)


if __name__ == "__main__":
    main()
