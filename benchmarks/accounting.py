"""Is the budget right, is it smaller than the peers', and how long does it take?

Five parts, each with rows of its own: `precision` against sums in forty digits, `peers` on random private trainings (Opacus
1.6.0, dp-accounting 0.6.0 and autodp 0.2, where installed), `bracket` against the bounds by privacy-loss distributions,
`timing` at 100,000 steps, `traps`.

    python benchmarks/accounting.py [--parts precision,peers,bracket,timing,traps] [--inputs N] [--rows FILE]
"""

from __future__ import annotations

import importlib.util
import logging
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rows import asked, finish

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from oracles import accounting as oracle

from engram import accounting
from engram.accounting import (
    Composed,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomisedResponse,
    Schedule,
    clt,
    curve,
    tight,
)
from engram.accounting.calibration import noise_multiplier, training
from engram.accounting.filters import Filter
from engram.accounting.sampled import sampled_gaussian
from engram.reproduce.renyi import PEERS

Row = dict[str, Any]
Training = tuple[float, float, int, float]  # noise multiplier, rate, steps, delta
SUSPECT = 1 + 1e-9
STEPS = 100_000


def main() -> None:
    args = asked(__doc__ or "", parts=",".join(PARTS), inputs=0)
    for part in args.parts.split(","):
        measure, usual = PARTS[part]
        finish(measure(args.inputs or usual), benchmark=f"accounting {part}", args=args)


def precision(inputs: int) -> Iterator[Row]:
    """The largest error of the sampled Gaussian's divergence over the whole range; 1e-16 absolute is forgiven."""
    import mpmath as mp

    stream = np.random.default_rng(0)
    for kind, order_of, exact in (
        ("whole, 2 to 10,000", lambda: float(int(10 ** stream.uniform(0.31, 4))), oracle.sampled_by_binomial),
        ("any, 1.01 to 10", lambda: 1 + 10 ** stream.uniform(-2, 0.96), oracle.sampled_by_integral),
        ("any, 10 to 10,000", lambda: 10 ** stream.uniform(1, 4), oracle.sampled_by_integral),
    ):
        errors, plain = [], []
        for _ in range(inputs):
            rate, noise, order = 10 ** stream.uniform(-4, 0), 10 ** stream.uniform(-1, 2), order_of()
            reference = exact(rate, noise, int(order) if order.is_integer() else order)
            ours = sampled_gaussian(np.array([noise]), np.array([rate]), np.array([order]))[0, 0]
            errors.append(_error(mp, ours, reference))
            if order.is_integer():
                plain.append(_error(mp, oracle.moments_accountant(rate, noise, [order])[0], reference))
        yield {
            "orders": kind,
            "rates": "1e-4 to 1",
            "noise": "0.1 to 100",
            "largest relative error": max(errors),
            "goal": "<= 1e-10",
            "of plain log-sum-exp": max(plain, default=None),
            "n": inputs,
        }


def _error(mp: Any, ours: float, reference: Any) -> float:
    if not math.isfinite(ours):
        return math.inf
    return float(max(mp.mpf(0), abs(mp.mpf(float(ours)) - reference) - mp.mpf("1e-16")) / reference)


def peers(inputs: int) -> Iterator[Row]:
    """Epsilon on random private trainings: how often and by how much ours is larger, and who under-reports."""
    logging.disable(logging.WARNING)  # dp-accounting tells of every order that it gives up
    for name, (module, ask) in PEERS.items():
        if importlib.util.find_spec(module) is None:
            print(f"{name} is not installed and left out", file=sys.stderr)
            continue
        trainings = random_trainings(min(inputs, MOST.get(name, inputs)), each=10)
        yield {"accountant": name, **_compared(ask, list(trainings))}


def _compared(ask: Callable[[float, float, int, float], float], trainings: list[Training]) -> Row:
    ratios, above, under, refused = [], 0, 0, 0
    for noise, rate, steps, delta in trainings:
        event, said = training(noise, rate, steps), f"noise {noise:g}, rate {rate:g}, {steps} steps, delta {delta:g}"
        ours = accounting.epsilon(event, delta)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs = ask(noise, rate, steps, delta)
        except (ArithmeticError, ValueError) as reason:
            refused += 1
            print(f"{said}: {reason!r}", file=sys.stderr)
            continue
        if ours > max(theirs, 0.0) * SUSPECT + 1e-12:
            if theirs < tight.epsilon(event, max(delta, tight.SMALLEST_DELTA)).lower:
                under += 1  # it stands below what is possible: no bound to stay under
                continue
            above += 1
            print(f"{said}: {ours} > {theirs}", file=sys.stderr)
        if theirs > 0:
            ratios.append(ours / theirs)
    return {
        "ours above it": above,
        "goal": 0,
        "it is below the tight lower bound": under,
        "it fails": refused,
        "ours over it, largest": max(ratios),
        "median": statistics.median(ratios),
        "smallest": min(ratios),
        "trainings": len(trainings),
    }


def bracket(inputs: int) -> Iterator[Row]:
    """Renyi against the tight bounds on random trainings: never below the lower one."""
    for kind, least_noise, most_noise in (("0.3 to 0.6", 0.3, 0.6), ("0.6 to 30", 0.6, 30.0)):
        n = inputs // 10 if most_noise < 1 else inputs
        below, ratios, gaps, seconds = 0, [], [], []
        for noise, rate, steps, delta in random_trainings(n, least_noise, most_noise):
            event = training(noise, rate, steps)
            found, took = _timed(lambda e=event, d=delta: tight.epsilon(e, d))
            renyi = accounting.epsilon(event, delta)
            below += renyi < found.lower / SUSPECT
            seconds.append(took)
            if found.upper > 0:
                ratios.append(renyi / found.upper)
                gaps.append(found.lower / found.upper)
        yield {
            "noise": kind,
            "Renyi below the lower bound": below,
            "goal": 0,
            "Renyi over the upper bound, median": statistics.median(ratios),
            "largest": max(ratios),
            "lower over upper, median": statistics.median(gaps),
            "s for both, median": statistics.median(seconds),
            "worst": max(seconds),
            "n": n,
        }


def random_trainings(
    inputs: int, least_noise: float = 0.3, most_noise: float = 30.0, each: int = 1
) -> Iterator[Training]:
    """At random over wide ranges; `each` numbers of steps and deltas for every noise and rate."""
    stream = np.random.default_rng(1)
    low, high = math.log10(least_noise), math.log10(most_noise)
    for _ in range(inputs // each):
        rate, noise = 10 ** stream.uniform(-4, -0.01), 10 ** stream.uniform(low, high)
        for _ in range(each):
            yield float(noise), float(rate), int(10 ** stream.uniform(0, 5)), float(10 ** stream.uniform(-9, -3))


def timing(inputs: int) -> Iterator[Row]:
    """Milliseconds at 100,000 steps, medians of several calls; events are made anew in each."""
    yield from _of_epsilon(inputs)
    yield from _of_schedules(inputs)
    yield from _of_tight(max(1, inputs // 5))
    took = _median(lambda: noise_multiplier(epsilon=3.0, delta=1e-5, rate=0.01, steps=STEPS), max(1, inputs // 5))
    yield _took("noise from a budget", took, None)
    budget, step = Filter(8.0, 1e-5), PoissonSampled(0.001, Gaussian(1.1))
    budget.spend(step)
    took = _median(lambda: [budget.spend(step) for _ in range(100)], inputs) / 100
    yield _took("one step of a filter", took, None)


def _of_epsilon(inputs: int) -> Iterator[Row]:
    for noise, rate in ((1.1, 0.004), (0.3, 0.01), (20.0, 0.001), (0.051, 0.5)):
        epsilon = accounting.epsilon(training(noise, rate, STEPS), 1e-5)
        took = _median(lambda s=noise, q=rate: accounting.epsilon(training(s, q, STEPS), 1e-5), inputs)
        yield _took(f"Renyi, noise {noise:g}, rate {rate:g}", took, 5.0, epsilon=epsilon)
    random = [
        _median(lambda s=noise, q=rate, d=delta: accounting.epsilon(training(s, q, STEPS), d), 3)
        for noise, rate, _, delta in random_trainings(20 * inputs)
    ]
    yield _took(f"Renyi, {len(random)} at random, median", statistics.median(random), 5.0)
    yield _took(f"Renyi, {len(random)} at random, worst", max(random), 5.0)


def _of_schedules(inputs: int) -> Iterator[Row]:
    stream, orders = np.random.default_rng(2), 1 + np.geomspace(1e-2, 1e3, 32)
    wide = 10 ** stream.uniform(-0.5, 1, STEPS), 10 ** stream.uniform(-3, -1, STEPS)
    for name, (noises, rates) in {
        "noise along a line": (np.linspace(2, 0.8, STEPS), np.full(STEPS, 0.01)),
        "100 different": (np.repeat(np.linspace(0.8, 2, 100), STEPS // 100), np.full(STEPS, 0.01)),
        "all different": (stream.uniform(0.8, 2, STEPS), stream.uniform(0.005, 0.02, STEPS)),
        "worst: noise 0.3 to 10, rate 0.001 to 0.1": wide,
    }.items():
        took = _median(lambda s=noises, q=rates: curve(Schedule(s, q)).at(orders), inputs)
        loose = _loose(noises[:: STEPS // 256][:256], rates[:: STEPS // 256][:256])
        yield _took(f"curve of unequal steps at 32 orders, {name}", took, 50.0, loose=loose)


def _of_tight(inputs: int) -> Iterator[Row]:
    for noise, rate in ((1.1, 0.004), (20.0, 0.001), (5.0, 0.01), (5.0, 0.2), (0.4, 0.01), (0.3, 0.3)):
        event = training(noise, rate, STEPS)
        took = _median(lambda e=event: _upper(e), inputs)
        yield _took(f"tight from above, noise {noise:g}, rate {rate:g}", took, 500.0, epsilon=_upper(event))


def _took(
    question: str, seconds: float, goal: float | None, epsilon: float | None = None, loose: float | None = None
) -> Row:
    return {
        "100,000 steps": question, "ms": seconds * 1e3, "goal": goal, "epsilon": epsilon, "over the exact": loose,
    }  # fmt: skip


def _upper(event: Any) -> float:
    found = tight._steps(event)
    composed = tight._composed(found, tight._interval(found), pessimistic=True)
    return float(composed.get_epsilon_for_delta(1e-5))


def _loose(noise: Any, rate: Any) -> float:
    """The bound of many different steps over their exact sum, at the best order of the exact one, 100,000 steps in all."""
    from engram.accounting.conversion import balle
    from engram.accounting.schedules import _added, _bounded
    from engram.accounting.search import least

    counts = np.full(len(noise), 100_000 / len(noise))
    exact, _ = least(lambda a: _added(noise, rate, counts, a) + balle(a, 1e-5))
    above, _ = least(lambda a: _bounded(noise, rate, counts)(a) + balle(a, 1e-5))
    return above / exact


def traps(inputs: int) -> Iterator[Row]:  # noqa: ARG001  the same call for every part
    """Where known accountants go wrong: ours beside the central limit of Gaussian privacy, which is no guarantee."""
    few, ten = training(0.6, 0.01, 10), Composed((Laplace(2.0), 10))
    twenty = Composed((RandomisedResponse(0.75), 20))
    for question, ours, other, name in (
        ("10 steps at noise 0.6, from below", tight.epsilon(few, 1e-5).lower, clt.epsilon(few, 1e-5), "Gaussian limit"),
        ("randomised response 20 times, from above", tight.epsilon(twenty, 1e-5).upper, 20 * math.log(3), "pure"),
        ("Laplace of scale 2, 10 times", accounting.epsilon(ten, 1e-5), 5.0, "pure"),
    ):
        yield {"question": question, "ours": ours, "other": other, "which is": name}


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _median(work: Callable[[], Any], times: int) -> float:
    work()
    return statistics.median(_timed(work)[1] for _ in range(times))


MOST = {"dp-accounting": 500, "autodp": 50}  # trainings; Opacus, which is in the claim, has them all
PARTS: dict[str, tuple[Callable[[int], Iterator[Row]], int]] = {
    "precision": (precision, 100),
    "peers": (peers, 10_000),
    "bracket": (bracket, 100),
    "timing": (timing, 15),
    "traps": (traps, 1),
}


if __name__ == "__main__":
    main()
