"""Pure, approximate and Renyi guarantees under composition, and other accountants beside ours.

Mironov: Renyi Differential Privacy, 2017. Sections V and VI: repeated randomised response, Laplace and Gaussian answers. The
paper draws curves and prints no table, so no cell has a published number; each row states what it claims.
Peers: Opacus 1.6.0, dp-accounting 0.6.0, autodp 0.2, where they are installed.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engram.accounting import (
    Composed,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomisedResponse,
    curve,
    tight,
    to_epsilon,
)
from engram.accounting.composition import optimal, strong
from engram.reproduce.cells import Bench, Cell, Scale

DELTA = 1e-6
TIMES: dict[Scale, tuple[int, ...]] = {
    "smoke": (1, 10, 100, 1000),
    "laptop": (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000),
    "paper": (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000),
}
MANY = ((1.1, 0.0043, 14_063), (20.0, 0.001, 10_000), (2.0, 0.1, 100), (0.7, 0.01, 1000), (100.0, 1e-3, 100_000))
TRAININGS: dict[Scale, tuple[tuple[float, float, int], ...]] = {
    "smoke": ((1.1, 0.0043, 1000), (20.0, 0.001, 10_000), (2.0, 0.1, 100)),
    "laptop": MANY,
    "paper": MANY,
}  # noise multiplier, rate, steps
ROUNDING = 1 + 1e-9
OPACUS_ORDERS: Any = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))  # its accountant's default


@dataclass(frozen=True)
class Mechanism:
    """One answer, and the (epsilon, delta) of it that an analysis without curves composes, so many times."""

    name: str
    event: Event
    approximate: Callable[[int], tuple[float, float]]


def cells(bench: Bench) -> Iterator[Cell]:
    for mechanism in bench.track(MECHANISMS, "composition"):
        for times in TIMES[bench.scale]:
            yield from composed(mechanism, times)
    for noise, rate, steps in bench.track(TRAININGS[bench.scale], "peers"):
        yield from against_peers(noise, rate, steps)


def composed(mechanism: Mechanism, times: int) -> Iterator[Cell]:
    """Epsilon at DELTA of the mechanism so many times, by each kind of guarantee."""
    row, event = f"{mechanism.name}, {times} times", Composed((mechanism.event, times))
    cost = curve(event)
    renyi = to_epsilon(cost, DELTA).epsilon
    if math.isfinite(cost.pure):
        yield Cell(
            row, "pure", None, cost.pure, n=times, holds=renyi <= cost.pure * ROUNDING, note="Renyi is no larger"
        )
    each = mechanism.approximate(times)
    for name, how in (("strong composition", strong), ("Kairouz et al.", optimal)):
        bound = how(*each, times, slack=DELTA / 2)[0]
        yield Cell(row, name, None, bound, n=times, holds=renyi <= bound * ROUNDING, note="Renyi is no larger")
    yield Cell(row, "Renyi, Mironov", None, to_epsilon(cost, DELTA, "mironov").epsilon, n=times)
    yield from _with_tight(row, event, renyi, times)


def _with_tight(row: str, event: Event, renyi: float, times: int) -> Iterator[Cell]:
    try:
        bracket = tight.epsilon(event, DELTA)
    except ImportError as missing:
        yield Cell(row, "Renyi", None, renyi, n=times)
        yield Cell(row, "tight", None, None, n=times, note=str(missing))
        return
    above = renyi >= bracket.lower / ROUNDING
    yield Cell(row, "Renyi", None, renyi, n=times, holds=above, note="not below the tight lower bound")
    yield Cell(row, "tight", None, bracket.upper, bracket.lower, bracket.upper, times)


def figures(table: Sequence[Cell]) -> dict[str, str]:
    """For each mechanism, epsilon against the number of answers by each kind of guarantee, as the text of an SVG file."""
    from engram.report.alone import Series, lines

    drawn = {}
    for mechanism in MECHANISMS:
        found: dict[str, list[tuple[int, float]]] = {}
        for cell in table:
            if cell.row.startswith(f"{mechanism.name}, ") and cell.ours is not None:
                found.setdefault(cell.column, []).append((cell.n, cell.ours))
        series = [Series(name, *zip(*points, strict=True)) for name, points in found.items()]
        says = f"epsilon at delta {DELTA:g}: {mechanism.name}"
        drawn[mechanism.name.split(",")[0].replace(" ", "-").lower()] = lines(series, "answers", says, log=True)
    return drawn


def against_peers(noise: float, rate: float, steps: int) -> Iterator[Cell]:
    """Epsilon at 1e-5 of a private training, ours and each peer's."""
    row = f"training: noise {noise:g}, rate {rate:g}, {steps} steps"
    event, delta = Composed((PoissonSampled(rate, Gaussian(noise)), steps)), 1e-5
    ours = to_epsilon(curve(event), delta).epsilon
    try:
        floor = tight.epsilon(event, delta).lower
    except ImportError:
        floor = 0.0
    yield Cell(
        row, "Renyi", None, ours, n=steps, holds=ours >= floor / ROUNDING, note="not below the tight lower bound"
    )
    for name, (module, ask) in PEERS.items():
        if importlib.util.find_spec(module) is None:
            yield Cell(row, name, None, None, n=steps, note="not installed")
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = float(ask(noise, rate, steps, delta))
        honest = theirs >= floor
        note = "ours is no larger" if honest else "below the tight lower bound: it under-reports"
        yield Cell(row, name, None, theirs, n=steps, holds=ours <= theirs * ROUNDING if honest else None, note=note)


def _opacus(noise: float, rate: float, steps: int, delta: float) -> float:
    from opacus.accountants.analysis import rdp

    epsilon, _ = rdp.get_privacy_spent(orders=OPACUS_ORDERS, rdp=steps * _opacus_step(noise, rate), delta=delta)
    return float(epsilon)


@functools.lru_cache(1)
def _opacus_step(noise: float, rate: float) -> Any:
    """Its curve of one step, which it multiplies by their number."""
    from opacus.accountants.analysis import rdp

    return rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=OPACUS_ORDERS)


def _dp_accounting(noise: float, rate: float, steps: int, delta: float) -> float:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant().compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps)
    return float(accountant.get_epsilon(delta))


def _autodp(noise: float, rate: float, steps: int, delta: float) -> float:
    from autodp.rdp_acct import anaRDPacct
    from autodp.rdp_bank import RDP_gaussian

    accountant = anaRDPacct()
    accountant.compose_poisson_subsampled_mechanisms(
        lambda order: RDP_gaussian({"sigma": noise}, order), rate, coeff=steps
    )
    return float(accountant.get_eps(delta))


def _gaussian_once(times: int) -> tuple[float, float]:
    """The (epsilon, delta) of one Gaussian whose deltas add up to half of DELTA."""
    once = DELTA / 2 / times
    return to_epsilon(curve(Gaussian(20.0)), once).epsilon, once


MECHANISMS = (
    Mechanism("randomised response, truth 0.52", RandomisedResponse(0.52), lambda _: (math.log(0.52 / 0.48), 0.0)),
    Mechanism("Laplace, scale 20", Laplace(20.0), lambda _: (1 / 20, 0.0)),
    Mechanism("Gaussian, noise 20", Gaussian(20.0), _gaussian_once),
)
PEERS: dict[str, tuple[str, Callable[[float, float, int, float], float]]] = {
    "Opacus": ("opacus", _opacus),
    "dp-accounting": ("dp_accounting", _dp_accounting),
    "autodp": ("autodp", _autodp),
}
