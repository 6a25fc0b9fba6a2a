"""How near guesses are to the records they stand for, under the best matching of the two.

Kuhn: The Hungarian method for the assignment problem, 1955 (the matching; the order within a batch is free).
Wang, Bovik, Sheikh, Simoncelli: Image quality assessment: from error visibility to structural similarity, 2004. Equation
13 with its Gaussian window of 11 pixels and constants; smaller pictures get a smaller window.
Lin: ROUGE: A package for automatic evaluation of summaries, 2004. ROUGE-L: the longest common subsequence, F1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.ndimage import convolve1d
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom
from scipy.stats import t as student

from engram.measure.judgement import EXACT
from engram.measure.rates import clopper_pearson
from engram.types import Array, Finding, Floats, Ints, Recovered

CLOSE = 1e-3  # mean squared error, of pixels in 0..1, below which a record counts as recovered
CERTAIN = 1e-3  # a residual below which the guess explains the update
WINDOW, SIGMA, K1, K2 = 11, 1.5, 0.01, 0.03  # Wang et al. 2004, section III-B


def judge(said: Recovered, records: Array, labels: Ints, *, close: float = CLOSE, level: float = 0.95) -> list[Finding]:
    """Everything there is to say of these guesses, given the batch that was behind the update."""
    if said.kind == "labels":
        return [_named(said, bag_share(np.asarray(said.guesses), labels, level))]
    if said.kind == "text":
        return [_named(said, f) for f in of_text(np.asarray(said.guesses), records, level)]
    return [_named(said, f) for f in of_records(said, records, labels, close, level)]


def of_records(said: Recovered, records: Array, labels: Ints, close: float, level: float) -> list[Finding]:
    pairs = matched(np.asarray(said.guesses), records)
    guess = np.where(pairs < 0, 0, pairs)
    apart = np.where(pairs < 0, np.inf, error(np.asarray(said.guesses)[guess], records)) if len(said.guesses) else None
    apart = np.full(len(records), np.inf) if apart is None else apart
    span = span_of(records)
    scaled = apart / span**2
    found = [_share(scaled < close, f"recovered@{close:g}", level)]
    if np.isfinite(apart).all():
        found += [_mean(apart, "mse", level), _mean(psnr(apart, span), "psnr", level)]
        if records.ndim >= 3:
            alike = np.array([ssim(np.asarray(said.guesses)[g], r, span) for g, r in zip(guess, records, strict=True)])
            found.append(_mean(alike, "ssim", level))
        if said.labels is not None:
            found.append(_share(np.equal(np.asarray(said.labels)[guess], labels), "labels_right", level))
    certificate = float(np.max(said.certificates)) if len(said.certificates) else None
    told = Finding("certificate", certificate, certificate, certificate, n=len(said.certificates), method="exact")
    if certificate is None or not np.isfinite(certificate):
        told = replace(told, value=None, low=None, high=None, reason="the attack has no certificate for this")
    return [*found, told]


def of_missing(said: Recovered, records: Array, labels: Ints, nearest: Array, level: float = 0.95) -> list[Finding]:
    """Guess k is of record k, the one that released model k was trained on besides known ones.

    `nearest` has for each the nearest record that the adversary held: the oracle that a reconstruction must beat.
    """
    guesses, span = np.asarray(said.guesses), span_of(records)
    apart, oracle = error(guesses, records), error(nearest, records)
    found = [
        _share(apart / span**2 < CLOSE, f"recovered@{CLOSE:g}", level),
        _share(apart < oracle, "beats_nearest", level),
        _share(own_is_nearest(guesses, records), "identified", level),
        _mean(apart, "mse", level),
        _median(apart, "median_mse", level),
        _mean(oracle, "nearest_mse", level),
        _mean(psnr(apart, span), "psnr", level),
    ]
    if records.ndim >= 3:
        found.append(_mean(np.array([ssim(g, r, span) for g, r in zip(guesses, records, strict=True)]), "ssim", level))
    if said.labels is not None:
        found.append(_share(np.equal(np.asarray(said.labels), labels), "labels_right", level))
    return [_named(said, f) for f in (*found, _median(np.asarray(said.certificates), "certificate", level))]


def nearest(records: Array, held: Array) -> Array:
    """For each record the one of `held` with the least squared error."""
    flat = np.asarray(held, float).reshape(len(held), -1)
    rows = [int(((flat - r.reshape(-1)) ** 2).mean(1).argmin()) for r in np.asarray(records, float)]
    return np.asarray(held)[rows]


def own_is_nearest(guesses: Array, records: Array) -> npt.NDArray[np.bool_]:
    """[guess] whether each is nearer to its own record than to any other"""
    flat = np.asarray(records, float).reshape(len(records), -1)
    cost = np.stack([((flat - g.reshape(-1)) ** 2).mean(1) for g in np.asarray(guesses, float)])
    return np.asarray(cost.argmin(1) == np.arange(len(guesses)))


def _median(values: Floats, metric: str, level: float) -> Finding:
    """The median, with the interval that order statistics give."""
    n, ordered = len(values), np.sort(values)
    below = int(binom.ppf((1 - level) / 2, n, 0.5))
    low, high = ordered[max(0, below - 1)], ordered[min(n - 1, n - below)]
    return Finding(
        metric, float(np.median(values)), float(low), float(high), n=n, level=level, method="order statistics"
    )


def of_text(guesses: Array, tokens: Array, level: float = 0.95) -> list[Finding]:
    """Tokens right in their places, whole sentences right, and ROUGE-L, of the best matching."""
    wrong = (guesses[:, None] != tokens[None]).mean(2) if len(guesses) else np.ones((0, len(tokens)))
    pairs = _assigned(wrong, len(tokens))
    right = np.array(
        [guesses[g] == t if g >= 0 else np.zeros(len(t), bool) for g, t in zip(pairs, tokens, strict=True)]
    )
    rouge = [rouge_l(guesses[g].tolist(), t.tolist()) if g >= 0 else 0.0 for g, t in zip(pairs, tokens, strict=True)]
    return [
        _share(right.ravel(), "tokens_right", level),
        _share(right.all(1), "sentences_right", level),
        _mean(np.array(rouge), "rouge_l", level),
    ]


def matched(guesses: Array, records: Array) -> Ints:
    """For each record the guess that stands for it, so that the squared errors add up to the least; -1 for none."""
    if not len(guesses):
        return np.full(len(records), -1)
    flat = np.asarray(records, float).reshape(len(records), -1)
    cost = np.stack([((flat - g) ** 2).mean(1) for g in np.asarray(guesses, float).reshape(len(guesses), -1)])
    return _assigned(cost, len(records))


def _assigned(cost: Floats, records: int) -> Ints:
    """cost[guess, record]"""
    pairs = np.full(records, -1)
    guess, record = linear_sum_assignment(np.nan_to_num(cost, nan=1e300, posinf=1e300))
    pairs[record] = guess
    return pairs


def error(guesses: Array, records: Array) -> Floats:
    """The mean squared error of each pair, in the records' own unit, [record]."""
    off = np.asarray(guesses, float) - np.asarray(records, float)
    return np.asarray((off.reshape(len(off), -1) ** 2).mean(1), float)


def span_of(records: Array) -> float:
    """What peak means for these records: 1 for pixels in 0..1, 255 for bytes, else the range that they cover."""
    low, high = float(np.min(records)), float(np.max(records))
    if low >= 0 and high <= 1:
        return 1.0
    return 255.0 if low >= 0 and 2 < high <= 255 else max(high - low, 1e-12)


def psnr(mse: Floats, span: float = 1.0) -> Floats:
    """Decibels; equal pictures have those of the smallest error that float64 can tell."""
    return np.asarray(10 * np.log10(span**2 / np.maximum(mse, span**2 * np.finfo(float).eps ** 2)), float)


def ssim(a: Array, b: Array, span: float = 1.0) -> float:
    """The mean over channels and places of Wang et al.'s index; pictures are [channel, row, column] or [row, column]."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    c1, c2 = (K1 * span) ** 2, (K2 * span) ** 2
    mu_a, mu_b = _blurred(a), _blurred(b)
    var_a, var_b = _blurred(a * a) - mu_a**2, _blurred(b * b) - mu_b**2
    both = _blurred(a * b) - mu_a * mu_b
    index = (2 * mu_a * mu_b + c1) * (2 * both + c2) / ((mu_a**2 + mu_b**2 + c1) * (var_a + var_b + c2))  # equation 13
    return float(index.mean())


def _blurred(image: Floats) -> Floats:
    size = min(WINDOW, *(side if side % 2 else side - 1 for side in image.shape[-2:]))
    far = np.arange(size) - size // 2
    window = np.exp(-0.5 * (far / SIGMA) ** 2)
    for axis in (-2, -1):
        image = convolve1d(image, window / window.sum(), axis=axis, mode="reflect")
    inner = slice(size // 2, -(size // 2) or None)
    return np.asarray(image[..., inner, inner], float)


def rouge_l(guess: Sequence[object], truth: Sequence[object]) -> float:
    """F1 of the longest common subsequence.

    >>> rouge_l("the cat sat".split(), "the dog sat".split())
    0.6666666666666666
    """
    rows = np.zeros((len(guess) + 1, len(truth) + 1), int)
    for i, a in enumerate(guess):
        for j, b in enumerate(truth):
            rows[i + 1, j + 1] = rows[i, j] + 1 if a == b else max(rows[i, j + 1], rows[i + 1, j])
    return float(2 * rows[-1, -1] / max(1, len(guess) + len(truth)))


def bag_share(guesses: Ints, labels: Ints, level: float) -> Finding:
    """How many of the batch's labels are in the guessed bag, each as often as it is there."""
    both = sum((Counter(guesses.tolist()) & Counter(np.asarray(labels).tolist())).values())
    return _share(np.arange(len(labels)) < both, "labels_right", level)


def _share(right: npt.ArrayLike, metric: str, level: float) -> Finding:
    right = np.asarray(right, bool)
    low, high = clopper_pearson(int(right.sum()), len(right), level)
    return Finding(metric, float(right.mean()), low, high, n=len(right), level=level, method=EXACT)


def _mean(values: Floats, metric: str, level: float) -> Finding:
    """The mean over records, with Student's interval; of one record there is none."""
    value, n = float(values.mean()), len(values)
    if n < 2:
        return Finding(metric, value, value, value, n=n, level=level, method="one record: no interval")
    half = float(student.ppf((1 + level) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n))
    return Finding(metric, value, value - half, value + half, n=n, level=level, method="Student, over records")


def _named(said: Recovered, finding: Finding) -> Finding:
    return replace(finding, variant=said.variant)
