"""The tasks: restaurants to describe, sentences to judge, dialogue to go on with. And the public text to begin from.

Novikova, Dusek, Rieser: The E2E Dataset, 2017. Socher et al.: SST-2, 2013. Files as they lie in the folder given by --data.
E2E's training texts were stored as tokens ("£ 20 ."): they are put together again before use, and slots have one name in all
parts. Restaurants are called XNAME and XNEAR where a task is delexicalised, and by their names again before scoring.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engram.data.files import present
from engram.seed import Seed

SLOTS = ("name", "eatType", "food", "priceRange", "customer rating", "area", "familyFriendly", "near")
NAMED = {"name": "XNAME", "near": "XNEAR"}
MARKERS = (*(f"[{slot}]" for slot in SLOTS), *NAMED.values())
JUDGED = (
    ("terrible", "great"),
    ("bad", "good"),
)  # what may stand for the classes of a sentence; the first that are tokens
TEMPLATE = " It was<mask>."


@dataclass(frozen=True)
class Asked:
    """A prompt, and what may be answered."""

    prompt: str
    answers: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)  # what the placeholders stand for


@dataclass(frozen=True)
class Written:
    """A task whose answers are texts."""

    name: str
    train: tuple[tuple[str, str], ...]  # private: prompt and answer
    tuning: tuple[Asked, ...]
    test: tuple[Asked, ...]


@dataclass(frozen=True)
class Judged:
    """A task whose answers are classes."""

    name: str
    train: tuple[tuple[str, int], ...]  # private
    tuning: tuple[tuple[str, int], ...]
    test: tuple[tuple[str, int], ...]


def restaurants(folder: Path, *, delexicalised: bool = True) -> Written:
    rows = list(lines(folder / "e2e_nlg.jsonl.gz"))
    train = [r for r in rows if r["split"] == "train"]
    return Written(
        "E2E",
        tuple((one.prompt, one.answers[0]) for one in (described(r, delexicalised) for r in train)),
        asked(described(r, delexicalised) for r in rows if r["split"] == "dev"),
        asked(described(r, delexicalised) for r in rows if r["split"] == "test"),
    )


def described(row: Mapping[str, Any], delexicalised: bool) -> Asked:
    """One row of E2E as a prompt with its text."""
    held = slots(row["mr"])
    text = detokenised(row["ref"]) if row["tokenized"] else row["ref"]
    names = {NAMED[slot]: value for slot, value in held.items() if delexicalised and slot in NAMED}
    shown = {slot: NAMED[slot] if NAMED.get(slot) in names else value for slot, value in held.items()}
    return Asked(prompt(shown), (hidden(text, names),), names)


def asked(rows: Iterable[Asked]) -> tuple[Asked, ...]:
    """Rows of one meaning together, with the texts as they were written."""
    held: dict[str, list[Asked]] = {}
    for row in rows:
        held.setdefault(f"{row.prompt} {sorted(row.names.items())}", []).append(row)
    return tuple(
        Asked(several[0].prompt, tuple(named(one.answers[0], one.names) for one in several), several[0].names)
        for several in held.values()
    )


def slots(mr: str) -> dict[str, str]:
    """The slots of a meaning under their common names, in their order."""
    held = {name.strip(): detokenised(value) for name, value in re.findall(r"([^,\[\]]+)\[([^\]]*)\]", mr)}
    held = {"customer rating" if name == "customerrating" else name: value for name, value in held.items()}
    return {slot: held[slot] for slot in SLOTS if slot in held}


def prompt(held: Mapping[str, str]) -> str:
    return "".join(f"[{slot}] {value}" for slot, value in held.items()) + "<text>"


def hidden(text: str, names: Mapping[str, str]) -> str:
    for place, value in names.items():
        text = re.sub(re.escape(value), place, text, flags=re.IGNORECASE)
    return text


def named(text: str, names: Mapping[str, str]) -> str:
    """The placeholders filled again, each set off from the word before."""
    for place, value in names.items():
        text = re.sub(rf"(?<=[\w,.;:]){place}", f" {place}", text).replace(place, value)
    return text


JOINED = (
    (r"``\s*|\s*''", '"'),
    (r"-LRB-", "("),
    (r"-RRB-", ")"),
    (r"\s+([.,;:!?%)\]])", r"\1"),
    (r"([(\[£$])\s+", r"\1"),
    (r"\s+(n't|'(?:s|t|re|ll|ve|m|d))\b", r"\1"),
    (r"\s*-\s+|\s+-\s*", "-"),
    (r"\s+", " "),
)


def detokenised(text: str) -> str:
    """Tokens put together again: "it 's £ 20 ." becomes "it's £20."."""
    for found, put in JOINED:
        text = re.sub(found, put, text)
    return text.strip()


def sentences(folder: Path) -> Judged:
    """SST-2; its texts are tokens in lower case, and stay so: they are read, never written."""
    held: dict[str, list[tuple[str, int]]] = {"train": [], "dev": [], "test": []}
    for row in lines(folder / "sst2.jsonl.gz"):
        held[row["split"]].append((detokenised(row["text"]), int(row["label"])))
    return Judged("SST-2", tuple(held["train"]), tuple(held["dev"]), tuple(held["test"]))


def dialogue(folder: Path) -> Written:
    """Rows of {split, context, reply}, such as PersonaChat's, in dialogue.jsonl.gz."""
    rows = list(lines(folder / "dialogue.jsonl.gz"))
    parts = {split: [r for r in rows if r["split"] == split] for split in ("train", "dev", "test")}
    each = {split: tuple(Asked(f"{r['context']}<text>", (r["reply"],)) for r in part) for split, part in parts.items()}
    return Written("dialogue", tuple((a.prompt, a.answers[0]) for a in each["train"]), each["dev"], each["test"])


def public_text(folder: Path, characters: int) -> list[str]:
    """Encyclopaedia and film reviews, half and half as far as they reach; no record of any task is taken from them."""
    articles = [plain(line) for part in ("valid", "test") for line in _text(folder / f"wikitext2-{part}.txt.gz")]
    stored = [row["text"] for row in lines(folder / "imdb_20k.jsonl.gz")]  # in the order of their ratings
    reviews = [text for k in range(97) for text in stored[k::97]]
    found: list[str] = []
    for source in ([a for a in articles if len(a) > 100], reviews):
        left = characters // 2
        for text in source:
            if left <= 0:
                break
            found.append(text[:left])
            left -= len(text)
    return found


def exercises(public: Iterable[str], count: int, seed: Seed) -> list[tuple[str, str]]:
    """Public sentences behind some of their own words, in the format of a table: what a small model learns to copy from.

    A large model of much text can do that already. Some words are hidden as names are.
    """
    stream = seed.child("exercises").numpy()
    found = [s for text in public for s in re.split(r"(?<=[.!?])\s+", text) if 5 <= len(s.split()) <= 25]
    return [_exercise(found[int(k)], stream) for k in stream.integers(0, len(found), count)]


def _exercise(sentence: str, stream: np.random.Generator) -> tuple[str, str]:
    words = list(dict.fromkeys(re.findall(r"\b[^\W\d_]{4,}\b", sentence)))
    chosen = [words[k] for k in stream.permutation(len(words))[: int(stream.integers(2, 6))]]
    shown: dict[str, str] = {}
    for slot, place in NAMED.items():
        if len(chosen) > 1 and stream.random() < 0.5:
            sentence, shown[slot] = re.sub(rf"\b{chosen.pop()}\b", place, sentence), place
    return prompt(dict(_slotted(chosen, shown, stream))), sentence


def _slotted(words: list[str], shown: Mapping[str, str], stream: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Slots in their order: those of names, and others for the words."""
    free = [slot for slot in SLOTS if slot not in NAMED]
    held = {**shown, **dict(zip((free[k] for k in stream.permutation(len(free))), words, strict=False))}
    yield from ((slot, held[slot]) for slot in SLOTS if slot in held)


def plain(line: str) -> str:
    """WikiText put together again."""
    return detokenised(re.sub(r" @(.)@ ", r"\1", line).replace("<unk>", ""))


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(present(path), "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _text(path: Path) -> Iterator[str]:
    with gzip.open(present(path), "rt", encoding="utf-8") as file:
        yield from file
