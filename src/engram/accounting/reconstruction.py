"""How often anybody can reconstruct a record from private training: an upper bound, given how often one guesses it blindly.

Hayes, Mahloujifar, Balle: Bounding Training Data Reconstruction in DP-SGD, 2023. The bound is the blow-up function of the
pair that dominates DP-SGD,

    B_k(mu, nu) = sup of mu(S) over events S with nu(S) <= k,

nu the noise of all steps, N(0, s^2)^T, and mu the same with a clipped record in each step with probability q,
((1 - q) N(0, s^2) + q N(1, s^2))^T. Kaissis, Hayes, Ziller, Rueckert: Bounding data reconstruction attacks with the
hypothesis testing interpretation of differential privacy, 2023: it is the power of the best test of size k.
Differs from the paper: it estimates the blow-up from samples and gives the estimate. Here, with L = log(mu/nu), duality says

    B_k <= e^t k + E_mu[(1 - e^(t - L))+]    for every t,                                                            (1)

with equality at the best t. t is chosen on one half of the samples; the mean, of numbers in 0..1, is bounded above on the
other (Maurer, Pontil: Empirical Bernstein Bounds and Sample Variance Penalization, 2009, theorem 4). So the answer is a
true bound with a stated confidence whatever the samples; where the Renyi curve proves less, that is the answer.

The adversary knows everything but the record: the other records, all noisy gradients, the prior. Neighbours: one record
added or removed. The prior is the largest share of records that a single guess stands for: 1/n for one of n equally likely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from engram import check
from engram.accounting.consequences import bad_outcome
from engram.accounting.curves import curve
from engram.accounting.events import Composed, Gaussian, PoissonSampled
from engram.seed import Seed
from engram.types import Floats

SAMPLES = 100_000
DOUBT = 1e-6  # how probable it may be that a sampled bound is too low


@dataclass(frozen=True)
class Success:
    """No reconstruction succeeds more often than `most`; `doubt` is how probable it is that this is wrong."""

    most: float
    doubt: float  # 0: proved
    samples: int
    method: str


def success(
    noise_multiplier: float,
    rate: float,
    steps: int,
    prior: float,
    *,
    samples: int = SAMPLES,
    doubt: float = DOUBT,
    seed: Seed | None = None,
) -> Success:
    """The share of records that any adversary can reconstruct from a run of DP-SGD. Rounds up.

    >>> round(success(10.0, 1.0, 100, prior=0.1).most, 4)
    0.3891
    """
    check.at_least("noise_multiplier", noise_multiplier, 0.0)
    check.fraction("rate", rate, zero=True, one=True)
    check.whole("steps", steps, 0)
    check.fraction("prior", prior, zero=True, one=True)
    check.fraction("doubt", doubt)
    check.whole("samples", samples, 1000)
    if noise_multiplier == 0:
        return _hidden(rate, steps, prior)
    if rate == 0 or steps == 0 or math.isinf(noise_multiplier) or prior in (0, 1):
        return Success(prior, 0.0, 0, "nothing is learned")
    if rate == 1:
        return Success(gaussian(math.sqrt(steps) / noise_multiplier, prior), 0.0, 0, "closed form")
    event = Composed((PoissonSampled(rate, Gaussian(noise_multiplier)), steps))
    whole = gaussian(math.sqrt(steps) / noise_multiplier, prior)  # sampling reveals no more than being in every batch
    proved = min(bad_outcome(curve(event), prior)[1], whole)
    draw = (seed or Seed(0)).child("reconstruction bound").numpy()
    sampled = blown_up(log_ratios(noise_multiplier, rate, steps, samples, draw), prior, doubt)
    if proved <= sampled:
        return Success(proved, 0.0, 0, "Renyi curve" if proved < whole else "closed form of the full batch")
    return Success(sampled, doubt, samples, "empirical Bernstein, over samples")


def gaussian(shift: float, prior: float) -> float:
    """Phi(Phi^-1(k) + shift): one Gaussian observation of a record that moves it by so many deviations."""
    return float(ndtr(ndtri(prior) + shift))


def blown_up(ratios: Floats, prior: float, doubt: float) -> float:
    """(1) with the best t of the first half of log(mu/nu) under mu, bounded above on the second."""
    half = len(ratios) // 2
    t = best_threshold(ratios[:half], prior)
    if not math.isfinite(t):
        return 1.0
    gain = -np.expm1(np.minimum(t - ratios[half:], 0.0))  # (1 - e^(t - L))+
    n, told = len(gain), math.log(2 / doubt)
    above = math.sqrt(2 * float(gain.var(ddof=1)) * told / n) + 7 * told / (3 * (n - 1))
    return min(1.0, math.exp(t) * prior + float(gain.mean()) + above)


def best_threshold(ratios: Floats, prior: float) -> float:
    """The t among these at which (1) is least, its mean taken over them; infinite where nothing is below 1."""
    down = np.sort(ratios)[::-1]
    n = np.arange(1, len(down) + 1)
    log_sum = np.logaddexp.accumulate(-down)  # of e^-L over those above t
    with np.errstate(over="ignore"):
        value = np.exp(down) * prior + (n - np.exp(down + log_sum)) / len(down)
    k = int(np.argmin(value))
    return float(down[k]) if value[k] < 1 else math.inf


def log_ratios(noise: float, rate: float, steps: int, samples: int, draw: np.random.Generator) -> Floats:
    """log(mu/nu) of all steps together, drawn from mu, [sample]."""
    total = np.zeros(samples)
    for _ in range(steps):
        x = draw.standard_normal(samples) + (draw.random(samples) < rate) / noise  # in deviations
        total += np.logaddexp(math.log1p(-rate), math.log(rate) + x / noise - 0.5 / noise**2)
    return total


def _hidden(rate: float, steps: int, prior: float) -> Success:
    """Without noise the record is told unless no batch has it, and then the guess is blind."""
    unseen = (1 - rate) ** steps
    return Success(1 - unseen * (1 - prior), 0.0, 0, "no noise")
