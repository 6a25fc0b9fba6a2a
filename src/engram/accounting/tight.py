"""The (epsilon, delta) of events from both sides, by privacy-loss distributions: what no accountant could improve on.

Koskela, Jalko, Honkela: Computing Tight Differential Privacy Guarantees Using FFT, 2020.
Doroshenko, Ghazi, Kamath, Kumar, Manurangsi: Connect the Dots, 2022.
The distributions are those of dp-accounting (an optional package). Differs from its accountant: the interval follows the
loss of one step and the number of steps, for its error grows with both; the lower side of a sampled Gaussian loses no more
than the upper (see `below`); randomised response is composed as often as it happened; and what double precision cannot tell
is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram import check
from engram.accounting import below
from engram.accounting.conversion import NoGuarantee, to_epsilon
from engram.accounting.curves import curve, of, pairs
from engram.accounting.events import (
    Event,
    Gaussian,
    Laplace,
    Leaf,
    PoissonSampled,
    RandomisedResponse,
    Relation,
    Schedule,
    UnknownEvent,
    leaves,
    relation,
)
from engram.types import Floats

SMALLEST_DELTA = 1e-10  # below, the rounding of the Fourier transform is as large as what it computes
CLOSE = 0.05  # the interval, in standard deviations of the loss of one step
SINGLE = 200_000  # intervals that one event may take
COMPOSED = 4_000_000  # intervals that all may take
CLOSE_ENOUGH = 0.98
DIFFERENT = 64  # events that are computed apart


@dataclass(frozen=True)
class Bracket:
    """The least epsilon at this delta lies in [lower, upper]. Only `upper` is a guarantee."""

    lower: float
    upper: float
    delta: float
    interval: float  # of the losses, in nats


def epsilon(event: Event, delta: float, *, neighbours: Relation | None = None) -> Bracket:
    """Both sides of the least epsilon at this delta. Costs tenths of a second; with noise below 0.5, many seconds."""
    relation(event, neighbours)
    if 0 < check.fraction("delta", delta, zero=True) < SMALLEST_DELTA:
        raise NoGuarantee(
            f"delta must be at least {SMALLEST_DELTA:g} for privacy-loss distributions in double precision, got {delta:g}; "
            "the Renyi accountant answers there: engram.accounting.epsilon"
        )
    if delta == 0:
        raise NoGuarantee(
            "delta 0 is pure differential privacy; the Renyi accountant answers it: engram.accounting.epsilon"
        )
    steps = _steps(event)
    renyi = to_epsilon(curve(event), delta).epsilon
    if not steps or not math.isfinite(renyi):
        return Bracket(renyi, renyi, delta, 0.0)
    interval = _interval(steps)
    upper = _composed(steps, interval, pessimistic=True).get_epsilon_for_delta(delta)
    lower = _lower(steps, interval, delta)
    if lower < CLOSE_ENOUGH * upper:  # an interval too coarse for the tests between its points
        lower = max(lower, _composed(steps, interval, pessimistic=False).get_epsilon_for_delta(delta))
    return Bracket(max(0.0, float(lower)), min(float(upper), renyi), delta, interval)


def _steps(event: Event) -> dict[Leaf, int]:
    """The events to compose. Gaussians without sampling are one Gaussian; a schedule is its different steps."""
    found: dict[Leaf, int] = {}
    precision = 0.0
    for leaf, count in leaves(event).items():
        parts = [(leaf, count)]
        if isinstance(leaf, Schedule):
            parts = [(PoissonSampled(q, Gaussian(s)), int(n) * count) for s, q, n in zip(*pairs(leaf), strict=True)]
        for part, n in parts:
            plain = _unsampled(part)
            if plain is None:
                found[part] = found.get(part, 0) + n
            elif plain.noise_multiplier == 0:
                return {plain: 1}
            else:
                precision += n / plain.noise_multiplier**2
    if precision > 0:
        found[Gaussian(precision**-0.5)] = 1
    free = [leaf for leaf in found if isinstance(leaf, PoissonSampled) and _free(leaf)]
    found = {leaf: n for leaf, n in found.items() if leaf not in free}
    if len(found) > DIFFERENT:
        raise NoGuarantee(
            f"privacy-loss distributions are computed for at most {DIFFERENT} different events, got {len(found)}; "
            "the Renyi accountant answers there: engram.accounting.epsilon"
        )
    return found


def _unsampled(leaf: Leaf) -> Gaussian | None:
    if isinstance(leaf, Gaussian):
        return leaf
    return leaf.event if isinstance(leaf, PoissonSampled) and leaf.rate == 1 else None


def _free(leaf: PoissonSampled) -> bool:
    return leaf.rate == 0 or math.isinf(leaf.event.noise_multiplier)


def _interval(steps: dict[Leaf, int]) -> float:
    """Fine against the loss of one step, coarse enough for the memory that all of them take."""
    mean = {leaf: float(of(leaf)(np.ones(1))[0]) for leaf in steps}
    n, total = sum(steps.values()), sum(mean[leaf] * count for leaf, count in steps.items())
    wanted = CLOSE * math.sqrt(2 * total / n)
    widest = max(_width(leaf) for leaf in steps)
    reach = min(4 * total + 20 * math.sqrt(2 * total), sum(_width(leaf) * count for leaf, count in steps.items()))
    return max(min(wanted, 1e-4), widest / SINGLE, reach / COMPOSED, 1e-12)


def _width(leaf: Leaf) -> float:
    """How far apart the losses of one event are, but for e^-50 of them."""
    match leaf:
        case Gaussian(noise):
            return 20 / noise
        case Laplace(scale):
            return 2 / scale
        case PoissonSampled(rate, Gaussian(noise)):
            top = 10 / noise + 0.5 / noise**2
            return float(np.logaddexp(math.log1p(-rate), math.log(rate) + top)) - math.log1p(-rate)
        case RandomisedResponse():
            return 2 * float(of(leaf)(np.array([np.inf]))[0])
        case _:
            return math.inf


def _lower(steps: dict[Leaf, int], interval: float, delta: float) -> float:
    """With what rounding may have added to delta taken away."""
    composed, added = None, 1e-13
    for leaf, count in steps.items():
        if isinstance(leaf, PoissonSampled):
            first, mass, excess = below.sampled_gaussian(leaf.event.noise_multiplier, leaf.rate, interval)
            once = _pld(interval, first, mass)
            added += count * excess
        else:
            once = _distribution(leaf, interval, pessimistic=False)
        several = once.self_compose(count) if count > 1 else once
        composed = several if composed is None else composed.compose(several)
    if delta + added >= 1 or composed is None:
        return 0.0
    return float(composed.get_epsilon_for_delta(delta * (1 + 1e-6) + added))


def _pld(interval: float, first: int, mass: Floats) -> Any:
    from dp_accounting.pld import pld_pmf

    losses = _losses()
    return losses.PrivacyLossDistribution(pld_pmf.DensePLDPmf(interval, first, mass, 0.0, False))


def _composed(steps: dict[Leaf, int], interval: float, *, pessimistic: bool) -> Any:
    composed = None
    for leaf, count in steps.items():
        once = _distribution(leaf, interval, pessimistic)
        several = once.self_compose(count) if count > 1 else once
        composed = several if composed is None else composed.compose(several)
    return composed


def _distribution(leaf: Leaf, interval: float, pessimistic: bool) -> Any:
    losses = _losses()
    how = {"value_discretization_interval": interval, "pessimistic_estimate": pessimistic}
    dots = {"use_connect_dots": pessimistic}
    match leaf:
        case Gaussian(noise):
            return losses.from_gaussian_mechanism(noise, **how, **dots)
        case Laplace(scale):
            return losses.from_laplace_mechanism(scale, **how, **dots)
        case PoissonSampled(rate, Gaussian(noise)):
            return losses.from_gaussian_mechanism(noise, sampling_prob=rate, **how, **dots)
        case RandomisedResponse():
            truth, answers = _truthful(leaf)
            return losses.from_randomized_response((1 - truth) * answers / (answers - 1), answers, **how)
        case _:
            raise UnknownEvent(
                f"no privacy-loss distribution is known for {leaf!r}; "
                "the Renyi accountant bounds it: engram.accounting.epsilon"
            )


def _truthful(leaf: RandomisedResponse) -> tuple[float, int]:
    """Of two answers, lying is telling the truth about the other."""
    if leaf.gap >= 0:
        return leaf.truth, leaf.answers
    if leaf.answers == 2:
        return 1 - leaf.truth, 2
    raise UnknownEvent(
        f"no privacy-loss distribution is known for {leaf!r}, in which the truth is the least likely answer; "
        "the Renyi accountant bounds it: engram.accounting.epsilon"
    )


def _losses() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise ImportError(
            "the tight accountant needs dp-accounting; install it with: pip install 'engram[tight]'"
        ) from error
    return privacy_loss_distribution
