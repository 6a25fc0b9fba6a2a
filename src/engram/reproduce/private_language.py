"""Li, Tramer, Liang, Hashimoto: Large Language Models Can Be Strong Differentially Private Learners, 2022, as in a talk.

Tables 1 to 3: sentences judged with and without text infilling, restaurants described by six ways of fine-tuning, dialogue;
beside them model sizes, batch against rate, the clip norm, and under each epsilon what tighter accountants say.
Differs from the paper: models are pre-trained here on local public text, and far smaller below the scale "paper"; batches
are Poisson samples, as the accountant assumes; texts are decoded greedily, not by a beam; every value is a mean over seeds of
fine-tuning (one pre-trained model) with Student's interval, and an order holds where the interval of the paired differences
says so; where it cannot tell, nothing is claimed. The noise is simulated, so that the table can be made again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from engram.accounting import Event, calibration, clt, tight
from engram.reproduce import language_grammar, language_tasks
from engram.reproduce.cells import Bench, Cell
from engram.reproduce.label_only import interval
from engram.reproduce.language_runs import Describing
from engram.reproduce.language_settings import BLEU, DIALOGUE, EPSILONS, JUDGED, ROUGE, RUNS, SIZES
from engram.reproduce.language_table import Table, base
from engram.reproduce.language_training import METHODS, noise_of
from engram.types import Floats

ORDER = (("full", "LoRA"), ("full", "RGP"), ("RGP", "prefix"), ("prefix", "top-2"), ("top-2", "from scratch"),
         ("full", "prefix"), ("full", "top-2"), ("full", "from scratch"))  # fmt: skip
EQUAL_BLEU = 5.0  # points within which two methods are about equal; the talk's two differences are 3.4 and -0.2
EQUAL_LOSS = 0.1  # nats a token
CLOSE = 0.01  # relative: an accountant's epsilon is the talk's
WANTED = {"BLEU": BLEU, "ROUGE-L": ROUGE}


def cells(bench: Bench) -> Iterator[Cell]:
    size = SIZES[bench.scale]
    yield from accounted(bench)
    table = Table(bench, size)
    yield from described(table)
    yield from sizes(table)
    yield from grid(table)
    yield from clip_norms(table)
    yield from sentences(table)
    yield from dialogues(table)


def accounted(bench: Bench) -> Iterator[Cell]:
    """The talk's own runs: the noise that keeps epsilon, and what tighter accountants say of it."""
    for name, (records, batch, epochs, delta, printed) in RUNS.items():
        if bench.scale == "smoke" and name != "SST-2":
            continue
        rate = batch / records
        steps, delta = math.ceil(epochs / rate), delta or 1 / (2 * records)
        for epsilon, (limit, least) in zip(SIZES[bench.scale].private, printed, strict=False):
            noise = calibration.noise_multiplier(epsilon=epsilon, delta=delta, rate=rate, steps=steps)
            event = calibration.training(noise, rate, steps)
            yield from under(f"the talk's {name}", epsilon, event, delta, (limit, least))


def under(row: str, epsilon: float, event: Event, delta: float, printed: tuple[float, float] | None) -> Iterator[Cell]:
    """The two values under an epsilon. The limit is a diagnostic; the tight one is a guarantee."""
    limit, least = printed or (None, None)
    yield Cell(
        row, f"CLT, epsilon {epsilon:g}", limit, clt.epsilon(event, delta), note="Gaussian DP's limit: no guarantee"
    )
    try:
        found = tight.epsilon(event, delta)
    except ImportError as absent:
        yield Cell(row, f"tight, epsilon {epsilon:g}", least, None, note=str(absent))
        return
    close = least is not None and abs(found.upper / least - 1) <= CLOSE
    yield Cell(
        row, f"tight, epsilon {epsilon:g}", least, found.upper, found.lower, found.upper,
        holds=True if close else None, note="privacy-loss distributions, both sides",
    )  # fmt: skip


def described(table: Table) -> Iterator[Cell]:
    """Table 2."""
    public = table.decoder(base(table.size.decoders))
    task = table.restaurants
    for epsilon in table.size.private:
        how = table.tuning("full", epsilon)
        noise = noise_of(how, len(task.ids), task.delta)
        event = calibration.training(noise, how.batch / len(task.ids), how.steps)
        yield from under(f"here, {task.task.name}", epsilon, event, task.delta, None)
    found = {
        (method, epsilon): table.described(public, table.tuning(method, epsilon))
        for method in METHODS for epsilon in table.size.epsilons
    }  # fmt: skip
    for (method, kept), scores in found.items():
        for metric, printed in WANTED.items():
            published = printed[method][EPSILONS.index(kept)]
            yield Cell(method, f"{metric}, {at(kept)}", published, *interval(scores[metric]), len(scores[metric]))
        yield Cell(
            method, f"loss, {at(kept)}", None, *interval(scores["loss"]), len(scores["loss"]), note="nats a token"
        )
    yield from orders(table, found)
    for epsilon in table.size.private:
        gap = found["full", None]["BLEU"] - found["full", epsilon]["BLEU"]
        published = BLEU["full"][2] - BLEU["full"][EPSILONS.index(epsilon)]
        yield Cell("gap to no privacy, full", f"difference in BLEU, {at(epsilon)}", published, *interval(gap), len(gap))


def orders(table: Table, found: Mapping[tuple[str, float | None], Mapping[str, Floats]]) -> Iterator[Cell]:
    """Which method is above which, at each epsilon: paired differences. The loss varies less than BLEU, so it tells more."""
    for epsilon, (first, second) in itertools.product(table.size.private, ORDER):
        bleu, loss = (found[first, epsilon][metric] - found[second, epsilon][metric] for metric in ("BLEU", "loss"))
        printed = [BLEU[method][EPSILONS.index(epsilon)] for method in (first, second)]
        equal, row = (first, second) == ("full", "LoRA"), f"{first} - {second}"
        within = (EQUAL_BLEU, EQUAL_LOSS) if equal else (None, None)
        yield table.claim(row, f"difference in BLEU, {at(epsilon)}", bleu, printed[0] - printed[1], within[0])
        yield table.claim(row, f"less loss, {at(epsilon)}", -loss, within=within[1])


def sizes(table: Table) -> Iterator[Cell]:
    """Larger models are better at the same epsilon."""
    found = {}
    for name in table.size.decoders:
        public = table.decoder(name)
        found[name] = table.described(public, table.tuning("full", 3.0))["BLEU"]
        count = sum(w.size for w in public.weights.values())
        yield Cell(f"decoder, {name}", "size: BLEU, epsilon 3", None, *interval(found[name]), len(found[name]),
                   note=f"{count:,} parameters")  # fmt: skip
    for small, large in itertools.pairwise(found):
        yield table.claim(
            f"decoder, {large} - {small}", "size: difference in BLEU, epsilon 3", found[large] - found[small]
        )


def grid(table: Table) -> Iterator[Cell]:
    """Batch against rate, as many records read in every cell: large with large is best."""
    size, public = table.size, table.decoder(base(table.size.decoders))
    plain, found = table.tuning("full", 3.0), {}
    for batch, times in itertools.product(size.batches, size.faster):
        steps = max(1, round(plain.batch * plain.steps / batch))
        how = replace(plain, batch=batch, steps=steps, rate=times * plain.rate)
        found[batch, times] = table.described(public, how, seeds=size.extra_seeds)["BLEU"]
        values = found[batch, times]
        yield Cell(
            f"batch {batch}",
            f"grid: BLEU, rate {how.rate:g}",
            None,
            *interval(values),
            len(values),
            note=f"{steps} steps",
        )
    corners = [
        (size.batches[0], size.faster[0]),
        (size.batches[0], size.faster[-1]),
        (size.batches[-1], size.faster[0]),
    ]
    best = (size.batches[-1], size.faster[-1])
    for batch, times in dict.fromkeys(c for c in corners if c != best):
        row = f"batch {best[0]}, rate {best[1] * plain.rate:g} - batch {batch}, rate {times * plain.rate:g}"
        yield table.claim(row, "grid: difference in BLEU", found[best] - found[batch, times])


def clip_norms(table: Table) -> Iterator[Cell]:
    """A clip norm that clips nearly everything is better than one that clips nothing."""
    size, public = table.size, table.decoder(base(table.size.decoders))
    found = {}
    for clip in size.clips:
        how = replace(table.tuning("full", 3.0), clip_norm=clip)
        found[clip] = table.described(public, how, seeds=size.extra_seeds)["BLEU"]
        yield Cell(f"clip norm {clip:g}", "clipping: BLEU, epsilon 3", None, *interval(found[clip]), len(found[clip]))
    small, large = min(size.clips, key=lambda c: abs(c - 0.1)), max(size.clips)
    yield table.claim(f"clip norm {small:g} - {large:g}", "clipping: difference in BLEU", found[small] - found[large])


def sentences(table: Table) -> Iterator[Cell]:
    """Table 1: with a fresh head, and by filling in a word."""
    found: dict[tuple[str, str, float | None], Floats] = {}
    largest = base(table.size.encoders)
    for name in table.size.encoders:
        public = table.encoder(name)
        ways = [("head", "full"), ("infilling", "full"), *([("RGP", "RGP")] if name == largest else [])]
        for (way, method), epsilon in itertools.product(ways, table.size.epsilons):
            how = table.judging(way, method, epsilon)
            values = found[way, name, epsilon] = table.accuracy(public, how, way != "head")
            printed = JUDGED.get((way, name), ())[EPSILONS.index(epsilon) :][:1]
            yield Cell(
                f"{way}, {name}",
                f"accuracy, {at(epsilon)}",
                printed[0] if printed else None,
                *interval(values),
                len(values),
            )
    for epsilon in table.size.private:
        column = f"difference in accuracy, {at(epsilon)}"
        for name in table.size.encoders:
            values = found["infilling", name, epsilon] - found["head", name, epsilon]
            yield table.claim(f"infilling - head, {name}", column, values)
        for small, large in itertools.pairwise(table.size.encoders):
            values = found["infilling", large, epsilon] - found["infilling", small, epsilon]
            yield table.claim(f"encoder, {large} - {small}", column, values)
        values = found["infilling", largest, epsilon] - found["RGP", largest, epsilon]
        yield table.claim("infilling, full - RGP", column, values)


def dialogues(table: Table) -> Iterator[Cell]:
    """Table 3, where there is dialogue."""
    bench = table.bench
    try:
        task = language_grammar.dialogue(table.size.records, bench.seed) if bench.data is None else None
        task = task or language_tasks.dialogue(bench.data or Path())
    except FileNotFoundError as absent:
        for (row, epsilon), (score, _) in DIALOGUE.items():
            yield Cell(row, f"F1, {at(epsilon)}", score, None, note=f"{absent}; rows of split, context, reply")
        return
    held = Describing(bench, table.size, task, table.tokens)
    for epsilon in table.size.epsilons:
        public = table.decoder(base(table.size.decoders))
        scores = table.described(public, table.tuning("full", epsilon), held)
        f1, perplexity = DIALOGUE["GPT-2", epsilon]
        yield Cell("GPT-2", f"F1, {at(epsilon)}", f1, *interval(scores["F1"]), len(scores["F1"]), note=task.name)
        yield Cell(
            "GPT-2", f"perplexity, {at(epsilon)}", perplexity, *interval(np.exp(scores["loss"])), len(scores["loss"])
        )


def at(epsilon: float | None) -> str:
    return "no privacy" if epsilon is None else f"epsilon {epsilon:g}"
