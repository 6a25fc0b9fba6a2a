"""How near a text is to its references: BLEU (sacrebleu), ROUGE-L (rouge-score), F1 of words.

Papineni et al.: BLEU, 2002. Lin: ROUGE, 2004. F1 as in ConvAI2: precision and recall of words, without order.
Per cent; larger = nearer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from engram.data.files import installed


def bleu(said: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Of the whole corpus; texts may differ in how many references they have."""
    streams = [
        list(stream) for stream in zip_longest(*references)
    ]  # sacrebleu: one list a rank, None where there is none
    library = installed("sacrebleu", "BLEU scores", "text")
    return float(library.corpus_bleu(list(said), streams).score)


def rouge_l(said: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean over texts of the best F over the references."""
    scorer = installed("rouge_score.rouge_scorer", "ROUGE scores", "text").RougeScorer(["rougeL"])
    return 100 * float(
        np.mean([scorer.score_multi(r, s)["rougeL"].fmeasure for s, r in zip(said, references, strict=True)])
    )


def f1(said: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean over texts of the best F1 over the references."""
    return 100 * float(np.mean([max(_f1(s, r) for r in several) for s, several in zip(said, references, strict=True)]))


def _f1(said: str, reference: str) -> float:
    ours, theirs = Counter(_words(said)), Counter(_words(reference))
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
