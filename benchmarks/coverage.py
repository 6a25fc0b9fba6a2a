"""Do the intervals keep their word? Targets that have seen nothing, many times over: how often does an interval miss 0.5?

Every attack is tried on an untrained model and on a shuffled membership, for each of many seeds. An interval of level 95 %
may miss in 5 % of them, and a table of simultaneous intervals in 5 % of the seeds; the last column says whether the count
is one that honest intervals produce with a probability above 0.1 %.

    python benchmarks/coverage.py --seeds 200
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rows import asked, finish
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from contract.targets import lab, tight

from engram.attacks import ATTACKS, attack, kind
from engram.measure import judge, shuffled, simultaneous
from engram.seed import Seed
from engram.types import Finding, Scores

SHADOWS, LEVEL = 12, 0.95


def main() -> None:
    args = asked(__doc__ or "", seeds=200)
    names = [name for name in ATTACKS if kind(name).question == "membership" and kind(name).asks.__name__ != "Labels"]
    missed: dict[str, list[bool]] = {}
    for seed in range(args.seeds):
        for what, misses in tried(names, seed):
            missed.setdefault(what, []).append(misses)
    finish([row(what, misses) for what, misses in missed.items()], benchmark="coverage", args=args)


def tried(names: Sequence[str], seed: int) -> Iterator[tuple[str, bool]]:
    target, here = tight(seed), lab(seed)
    every: list[Scores] = []
    for name in names:
        knobs = {"shadows": SHADOWS} if hasattr(kind(name), "shadows") else {}
        one = attack(name, knobs)
        told = one(target.handle(one.asks, here), seed=Seed(seed))
        listed = told if isinstance(told, Sequence) else [told]
        every += listed
        for scores in listed:
            area = judge(scores, target.member, seed=Seed(seed))[0]
            yield f"{name}, {scores.variant}", misses(area)
    level = simultaneous(LEVEL, len(every))
    areas = [judge(scores, target.member, seed=Seed(seed), level=level)[0] for scores in every]
    controls = [shuffled(s, target.member, seed=Seed(seed).child(str(i)), level=level) for i, s in enumerate(every)]
    yield "the table of all attacks, simultaneous", any(map(misses, areas))
    yield "the table of all shuffled controls, simultaneous", any(map(misses, controls))


def misses(area: Finding) -> bool:
    assert area.low is not None
    assert area.high is not None
    return not area.low <= 0.5 <= area.high


def row(what: str, misses: Sequence[bool]) -> dict[str, Any]:
    count, n = sum(misses), len(misses)
    likely = float(binom.sf(count - 1, n, 1 - LEVEL))  # of so many misses or more, if the intervals are honest
    return {"interval": what, "missed": count, "of": n, "coverage": 1 - count / n, "honest": likely > 0.001}


if __name__ == "__main__":
    main()
