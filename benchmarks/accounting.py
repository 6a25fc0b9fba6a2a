"""Is the budget right, is it smaller than the peers', and how long does it take?

Five parts, each with its rows: `precision` against sums in forty digits, `peers` on random private trainings (Opacus 1.6.0
and dp-accounting 0.6.0, where installed), `bracket` against the bounds by privacy-loss distributions, `timing` at 100,000
steps, `traps`. Run: python benchmarks/accounting.py [precision peers bracket timing traps] [--inputs N] [--rows FILE]

"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

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

Row = dict[str, Any]  # question, ours, other, ratio, ...
SUSPECT = 1 + 1e-9


def precision(inputs: int) -> Iterator[Row]:
    """The largest error of the sampled Gaussian's divergence, over a random grid; 1e-16 absolute is forgiven."""
    import mpmath as mp

    stream = np.random.default_rng(0)
    for kind, order_of, exact in (
        ("whole orders 2 to 10,000", lambda: float(int(10 ** stream.uniform(0.31, 4))), oracle.sampled_by_binomial),
        ("fractional orders 1.01 to 40", lambda: 1 + 10 ** stream.uniform(-2, 1.6), oracle.sampled_by_integral),
    ):
        errors, plain = [], []
        while len(errors) < inputs:
            rate, noise, order = 10 ** stream.uniform(-4, 0), 10 ** stream.uniform(-1, 2), order_of()
            if order / noise > 100 and exact is oracle.sampled_by_integral:
                continue  # the reference would take minutes
            reference = exact(rate, noise, int(order) if order.is_integer() else order)
            ours = sampled_gaussian(np.array([noise]), np.array([rate]), np.array([order]))[0, 0]
            errors.append(_error(mp, ours, reference))
            plain.append(_error(mp, oracle.moments_accountant(rate, noise, [order])[0], reference) if rate < 1 else 0.0)
        yield _row(f"largest error, {kind}", max(errors), max(plain), "plain log-sum-exp", n=inputs)


def _error(mp: Any, ours: float, reference: Any) -> float:
    if not math.isfinite(ours):
        return math.inf
    return float(max(mp.mpf(0), abs(mp.mpf(float(ours)) - reference) - mp.mpf("1e-16")) / reference)


def peers(inputs: int) -> Iterator[Row]:
    """Epsilon on random private trainings: how often and by how much ours is larger, or below the tight lower bound."""
    asked = {name: ask for name, (module, ask) in PEERS.items() if importlib.util.find_spec(module)}
    ratios: dict[str, list[float]] = {name: [] for name in asked}
    worst: dict[str, Row] = {}
    suspects: dict[str, int] = dict.fromkeys(asked, 0)
    seconds = dict.fromkeys([*asked, "ours"], 0.0)
    for noise, rate, steps, delta in random_trainings(inputs):
        event = training(noise, rate, steps)
        ours, took = _timed(lambda e=event, d=delta: accounting.epsilon(e, d))
        seconds["ours"] += took
        for name, ask in asked.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs, took = _timed(lambda a=ask, v=(noise, rate, steps, delta): a(*v))
            seconds[name] += took
            if ours > max(theirs, 0.0) * SUSPECT + 1e-12:
                if theirs < tight.epsilon(event, delta).lower:
                    suspects[name] += 1  # it stands below what is possible: no bound to stay under
                    continue
                worst[name] = {
                    "noise": noise,
                    "rate": rate,
                    "steps": steps,
                    "delta": delta,
                    "ours": ours,
                    "theirs": theirs,
                }
            if theirs > 0:
                ratios[name].append(ours / theirs)
    for name, found in ratios.items():
        more = {"n": inputs, "under_reports": suspects[name], "worst": worst.get(name)}
        yield _row(f"largest ratio of epsilon to {name}", max(found), 1.0, name, **more)
        yield _row(f"median ratio of epsilon to {name}", statistics.median(found), 1.0, name, n=inputs)
        yield _row(f"smallest ratio of epsilon to {name}", min(found), 1.0, name, n=inputs)
        yield _row(
            f"milliseconds for one epsilon, {name}", seconds["ours"] / inputs * 1e3, seconds[name] / inputs * 1e3, name
        )


def bracket(inputs: int) -> Iterator[Row]:
    """Renyi against the tight bounds on random trainings: never below the lower one."""
    below, ratios, upper_seconds = 0, [], []
    for noise, rate, steps, delta in random_trainings(inputs, least_noise=0.6):
        event = training(noise, rate, steps)
        found, took = _timed(lambda e=event, d=delta: tight.epsilon(e, max(d, tight.SMALLEST_DELTA)))
        renyi = accounting.epsilon(event, max(delta, tight.SMALLEST_DELTA))
        below += renyi < found.lower / SUSPECT
        upper_seconds.append(took)
        if found.upper > 0:
            ratios.append(renyi / found.upper)
    yield _row("Renyi below the tight lower bound, of all", below, 0, "count", n=inputs)
    yield _row("median ratio of Renyi to the tight upper bound", statistics.median(ratios), 1.0, "tight", n=inputs)
    yield _row("seconds for both tight bounds, median", statistics.median(upper_seconds), 1.0, "target", n=inputs)
    yield _row("seconds for both tight bounds, worst", max(upper_seconds), 1.0, "target", n=inputs)


def random_trainings(inputs: int, least_noise: float = 0.3) -> Iterator[tuple[float, float, int, float]]:
    stream = np.random.default_rng(1)
    for _ in range(inputs):
        rate, noise = 10 ** stream.uniform(-4, -0.01), 10 ** stream.uniform(math.log10(least_noise), 1.5)
        yield float(noise), float(rate), int(10 ** stream.uniform(0, 5)), float(10 ** stream.uniform(-9, -3))


def timing(inputs: int) -> Iterator[Row]:
    """Milliseconds at 100,000 steps, medians of several calls; events are made anew in each."""
    steps, stream, orders = 100_000, np.random.default_rng(2), 1 + np.geomspace(1e-2, 1e3, 32)
    for name, noise, rate in (
        ("usual", 1.1, 0.004),
        ("little noise", 0.3, 0.01),
        ("much noise", 20.0, 0.001),
        ("worst", 0.051, 0.5),
    ):
        took = _median(lambda s=noise, q=rate: accounting.epsilon(training(s, q, steps), 1e-5), inputs)
        yield _row(f"epsilon of 100,000 equal steps, {name} (ms)", took * 1e3, 5.0, "target")
    for name, noises, rates in (
        ("along a line", np.linspace(2, 0.8, steps), np.full(steps, 0.01)),
        ("100 different", np.repeat(np.linspace(0.8, 2, 100), steps // 100), np.full(steps, 0.01)),
        ("all different", stream.uniform(0.8, 2, steps), stream.uniform(0.005, 0.02, steps)),
        ("worst", 10 ** stream.uniform(-0.5, 1, steps), 10 ** stream.uniform(-3, -1, steps)),
    ):
        took = _median(lambda s=noises, q=rates: curve(Schedule(s, q)).at(orders), inputs)
        yield _row(f"32 orders of 100,000 steps, {name} (ms)", took * 1e3, 50.0, "target")
        pairs = noises[:: steps // 256][:256], rates[:: steps // 256][:256]
        yield _row(f"the same, how loose at the best order, {name}", _loose(*pairs), 1.0, "exact")
    for name, noise, rate in (
        ("usual", 1.1, 0.004),
        ("much noise", 20.0, 0.001),
        ("little noise", 0.4, 0.01),
        ("large rate", 5.0, 0.2),
    ):
        event = training(noise, rate, steps)
        took = _median(lambda e=event: _upper(e), max(1, inputs // 5))
        yield _row(f"tight upper bound of 100,000 steps, {name} (ms)", took * 1e3, 500.0, "target")
    took = _median(lambda: noise_multiplier(epsilon=3.0, delta=1e-5, rate=0.01, steps=steps), max(1, inputs // 5))
    yield _row("noise from a budget (ms)", took * 1e3, math.nan, "")
    budget, step = Filter(8.0, 1e-5), PoissonSampled(0.001, Gaussian(1.1))
    budget.spend(step)
    took = _median(lambda: [budget.spend(step) for _ in range(100)], inputs) / 100
    yield _row("one step of a filter (microseconds)", took * 1e6, math.nan, "")


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


def _opacus(noise: float, rate: float, steps: int, delta: float) -> float:
    from opacus.accountants.analysis import rdp

    orders = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    spent = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=orders)
    return float(rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)[0])


def _dp_accounting(noise: float, rate: float, steps: int, delta: float) -> float:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    return float(RdpAccountant().compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps).get_epsilon(delta))


PEERS = {"Opacus": ("opacus", _opacus), "dp-accounting": ("dp_accounting", _dp_accounting)}


def traps(inputs: int) -> Iterator[Row]:  # noqa: ARG001  the same call for every part
    """Where known accountants go wrong: ours beside the central limit of Gaussian privacy, which is no guarantee."""
    few = training(0.6, 0.01, 10)
    yield _row(
        "10 steps at noise 0.6: tight lower bound against the Gaussian-DP limit",
        tight.epsilon(few, 1e-5).lower,
        clt.epsilon(few, 1e-5),
        "limit",
    )
    twenty = Composed((RandomisedResponse(0.75), 20))
    yield _row(
        "randomised response 20 times, tight upper bound", tight.epsilon(twenty, 1e-5).upper, 20 * math.log(3), "pure"
    )
    yield _row("Laplace scale 2, 10 times", accounting.epsilon(Composed((Laplace(2.0), 10)), 1e-5), 5.0, "pure")


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _median(work: Callable[[], Any], times: int) -> float:
    work()
    return statistics.median(_timed(work)[1] for _ in range(times))


def _row(question: str, ours: float, other: float, peer: str, **more: Any) -> Row:
    return {
        "question": question,
        "ours": ours,
        "other": other,
        "ratio": ours / other if other else math.nan,
        "peer": peer,
        **more,
    }


PARTS = {
    "precision": (precision, 300),
    "peers": (peers, 10_000),
    "bracket": (bracket, 200),
    "timing": (timing, 15),
    "traps": (traps, 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--inputs", type=int, help="how many random inputs (default: 300, 10,000, 200, 15)")
    parser.add_argument("--rows", type=Path, help="add the rows to this file, as JSON lines")
    args = parser.parse_args()
    rows = []
    for part in args.parts:
        measure, usual = PARTS[part]
        began = time.perf_counter()
        rows += [{"part": part, **row} for row in measure(args.inputs or usual)]
        print(f"{part}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    hardware = f"{platform.machine()}, numpy {np.__version__}, Python {platform.python_version()}"
    if args.rows:
        with args.rows.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({**row, "hardware": hardware}) + "\n" for row in rows)
    width = max(len(row["question"]) for row in rows)
    print(f"{'question':{width}}  {'ours':>11}  {'other':>11}  {'ratio':>11}  peer   ({hardware})")
    for row in rows:
        print(
            f"{row['question']:{width}}  {row['ours']:11.5g}  {row['other']:11.5g}  {row['ratio']:11.5g}  {row['peer']}"
        )


if __name__ == "__main__":
    main()
