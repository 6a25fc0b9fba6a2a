"""Numbers as they are printed, and the plain words for what an audit speaks of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from engram.report.dossier import Name
from engram.types import Finding

THIN = "\u202f"  # a narrow space that does not break
NULL = "–"

METRICS = {
    "auc": "AUC",
    "auc_shuffled": "AUC, shuffled",
    "balanced_accuracy": "Balanced accuracy",
    "broken_claim": "Epsilon above the claim, at least",
    "epsilon": "Epsilon, at least",
    "accuracy_members": "Accuracy on members",
    "accuracy_non_members": "Accuracy on non-members",
    "labels_right": "Labels right",
    "tokens_right": "Tokens right",
    "beats_nearest": "Beats the nearest held",
    "identified": "Identified",
    "mse": "Mean squared error",
    "median_mse": "Median squared error",
    "nearest_mse": "Error of the nearest held",
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "certificate": "Certificate",
}
PLAIN = {
    "auc",
    "auc_shuffled",
    "broken_claim",
    "epsilon",
    "mse",
    "median_mse",
    "nearest_mse",
    "psnr",
    "ssim",
    "certificate",
}  # numbers that are not shares of something

ACCESS = {
    "Labels": "The model answers each query with a label, and with nothing else.",
    "Probabilities": "The model answers each query with a probability for every class.",
    "Values": "The model answers each query with its raw outputs.",
    "Gradients": "Nothing is asked: the adversary holds the model and one update that a participant shared.",
    "Weights": "The adversary holds the weights.",
    "Informed": "Nothing is asked: the adversary holds released weights and all training records but one of each model.",
    "Tokens": "The model continues text and tells the probability of each token.",
    "Records": "The adversary searches the training data itself.",
}


@dataclass(frozen=True)
class Question:
    """One of the things a model can give away, and what taxonomies call it."""

    name: str  # as attacks spell it
    asks: str
    leaks: str
    tags: tuple[tuple[str, str, str], ...]  # taxonomy, number, title


QUESTIONS = (
    Question(
        "membership",
        "Who was in it?",
        "membership",
        (
            ("NIST AI 100-2 E2025", "NISTAML.033", "Membership inference"),
            ("MITRE ATLAS", "AML.T0024.000", "Infer training data membership"),
            ("OWASP Machine Learning Top 10", "ML04", "Membership inference"),
        ),
    ),
    Question(
        "records",
        "What did they look like?",
        "training records",
        (
            ("NIST AI 100-2 E2025", "NISTAML.032", "Data reconstruction"),
            ("MITRE ATLAS", "AML.T0024.001", "Invert model"),
            ("OWASP Machine Learning Top 10", "ML03", "Model inversion"),
        ),
    ),
    Question(
        "text",
        "What can it recite?",
        "training text",
        (
            ("NIST AI 100-2 E2025", "NISTAML.038", "Data extraction"),
            ("MITRE ATLAS", "AML.T0057", "LLM data leakage"),
        ),
    ),
    Question(
        "weights",
        "What is it made of?",
        "the weights themselves",
        (
            ("NIST AI 100-2 E2025", "NISTAML.031", "Model extraction"),
            ("MITRE ATLAS", "AML.T0024.002", "Extract model"),
            ("OWASP Machine Learning Top 10", "ML05", "Model theft"),
        ),
    ),
    Question(
        "planted",
        "What was planted in it?",
        "trojans and poisons",
        (("MITRE ATLAS", "AML.T0020", "Poison training data"),),
    ),
)


def metric(name: str) -> str:
    """The heading of a metric: "tpr@0.01" is "TPR at 1 % FPR".

    >>> metric("ppv@0.1")
    'Precision at 10\\u202f% prior'
    """
    kind, _, at = name.partition("@")
    if kind == "tpr":
        return f"TPR at {percent(float(at))} FPR"
    if kind == "ppv":
        return f"Precision at {percent(float(at))} prior"
    return METRICS.get(name, name)


def named(name: Name) -> str:
    """An attack and its variant in one line."""
    attack, variant = name
    return f"{attack} ({variant})" if variant else attack or "the model"


def of(finding: Finding) -> str:
    return named((finding.attack, finding.variant))


def percent(share: float) -> str:
    return f"{_hundredths(share)}{THIN}%"


def value(finding: Finding) -> str:
    """The value alone."""
    if finding.value is None:
        return NULL
    return _digits(finding.metric, finding.value) + ("" if _plain(finding) else f"{THIN}%")


def ends(finding: Finding) -> str:
    """The interval alone, in the unit of the value."""
    if finding.low is None or finding.high is None:
        return ""
    if math.isinf(finding.high):
        return "lower bound"
    return f"[{_digits(finding.metric, finding.low)}, {_digits(finding.metric, finding.high)}]"


def interval(finding: Finding | None) -> str:
    """value [low, high]"""
    return NULL if finding is None else f"{value(finding)} {ends(finding)}".strip()


def count(number: int, one: str, many: str = "") -> str:
    """
    >>> count(1, "record"), count(2000, "record")
    ('1 record', '2,000 records')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["gap", "lira", "rmia"])
    'gap, lira and rmia'
    """
    *most, last = names or [NULL]
    return f"{', '.join(most)} and {last}" if most else last


def seconds(number: float) -> str:
    if number < 60:
        return f"{number:.1f}{THIN}s"
    minutes, rest = divmod(round(number), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{THIN}h {minutes}{THIN}min" if hours else f"{minutes}{THIN}min {rest}{THIN}s"


def moment(time: float) -> str:
    """The same everywhere: in universal time."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


def knobs(told: object) -> str:
    """The knobs of an attack or a defence in one line."""
    if not isinstance(told, dict):
        return ""
    return ", ".join(f"{name} {_knob(v)}" for name, v in told.items())


def _knob(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _plain(finding: Finding) -> bool:
    return finding.metric in PLAIN


def _digits(metric: str, number: float) -> str:
    return f"{number:.{2 if metric == 'epsilon' else 3}f}" if metric in PLAIN else _hundredths(number)


def _hundredths(share: float) -> str:
    """A share as a number of hundredths: one decimal, below one hundredth two, none that says nothing.

    What is not all is not rounded to all, nor what is something to nothing.
    """
    for decimals in range(1 if abs(share) >= 0.01 else 2, 17):
        told = f"{100 * share:.{decimals}f}"
        if float(told) == 100 * share or float(told) not in (0, 100):
            break
    return told.rstrip("0").rstrip(".")
