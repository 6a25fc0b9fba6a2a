"""Stand-ins of the same shape as the real tasks, written by a grammar, so that everything runs where no data is given.

Public sentences speak of towns, private ones of restaurants and films: none of the one is among the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engram.reproduce.language_tasks import SLOTS, Asked, Judged, Written, asked, described
from engram.seed import Seed

VALUES: Mapping[str, tuple[str, ...]] = {
    "name": ("The Mill", "Blue Spice", "The Eagle", "Zizzi", "Cotto", "The Olive Grove"),
    "eatType": ("pub", "coffee shop", "restaurant"),
    "food": ("French", "Italian", "Japanese", "Indian", "English"),
    "priceRange": ("cheap", "moderate", "high", "less than £20", "more than £30"),
    "customer rating": ("low", "average", "high", "5 out of 5", "1 out of 5"),
    "area": ("riverside", "city centre"),
    "familyFriendly": ("yes", "no"),
    "near": ("Burger King", "The Bakers", "Café Rouge"),
}
FAMILIES = {"yes": ("is family friendly", "welcomes children"), "no": ("is not family friendly", "is for adults")}
GOOD = ("great", "good", "wonderful", "charming", "clever", "moving")
BAD = ("terrible", "bad", "dull", "boring", "clumsy", "awful")
ABOUT = ("film", "story", "cast", "script", "ending", "acting")
PLACES = ("town", "harbour", "garden", "market", "museum", "bridge", "park", "school", "castle", "station")


def restaurants(records: int, seed: Seed, *, delexicalised: bool = True) -> Written:
    """As E2E, with `records` private texts."""
    stream = seed.child("restaurants").numpy()
    train = [described(_row(stream), delexicalised) for _ in range(records)]
    tuning, test = ([described(row, delexicalised) for row in _several(stream, 3)] for _ in range(2))
    return Written("generated E2E", tuple((one.prompt, one.answers[0]) for one in train), asked(tuning), asked(test))


def _several(stream: np.random.Generator, texts: int, meanings: int = 24) -> list[dict[str, object]]:
    held = [_meaning(stream) for _ in range(meanings)]
    return [_told(stream, meaning) for meaning in held for _ in range(texts)]


def _row(stream: np.random.Generator) -> dict[str, object]:
    return _told(stream, _meaning(stream))


def _meaning(stream: np.random.Generator) -> dict[str, str]:
    chosen = {"name", *(slot for slot in SLOTS[1:] if stream.random() < 0.6)}
    return {slot: _one(stream, VALUES[slot]) for slot in SLOTS if slot in chosen}


def _told(stream: np.random.Generator, held: Mapping[str, str]) -> dict[str, object]:
    first = f"{held['name']} is a {held.get('food', '')} {held.get('eatType', 'place')}"
    first += f" near {held['near']}" if "near" in held else ""
    first += _one(stream, (f" in the {held['area']}", f" by the {held['area']}")) if "area" in held else ""
    more = []
    if "priceRange" in held:
        more.append(_one(stream, (f"Prices are {held['priceRange']}", f"It costs {held['priceRange']}")))
    if "customer rating" in held:
        more.append(
            _one(stream, (f"It is rated {held['customer rating']}", f"Its rating is {held['customer rating']}"))
        )
    if "familyFriendly" in held:
        more.append(f"It {_one(stream, FAMILIES[held['familyFriendly']])}")
    mr = ", ".join(f"{slot}[{value}]" for slot, value in held.items())
    return {"mr": mr, "ref": ". ".join([" ".join(first.split()), *more]) + ".", "tokenized": False}


def sentences(records: int, seed: Seed) -> Judged:
    """As SST-2: what is said of films."""
    stream = seed.child("sentences").numpy()
    return Judged("generated SST-2", *(tuple(_opinion(stream) for _ in range(n)) for n in (records, 100, 200)))


def _opinion(stream: np.random.Generator) -> tuple[str, int]:
    label = int(stream.integers(2))
    words = GOOD if label else BAD
    text = f"the {_one(stream, ABOUT)} is {_one(stream, words)} and the {_one(stream, ABOUT)} {_one(stream, words)}"
    return text, label


def dialogue(records: int, seed: Seed) -> Written:
    """Questions about places, and answers."""
    stream = seed.child("dialogue").numpy()

    def one() -> Asked:
        about = _one(stream, ABOUT)
        return Asked(f"How was the {about}?<text>", (f"I thought the {about} was {_one(stream, GOOD + BAD)}.",))

    train, tuning, test = (tuple(one() for _ in range(n)) for n in (records, 10, 10))
    return Written("generated dialogue", tuple((a.prompt, a.answers[0]) for a in train), tuning, test)


def public_text(sentences: int, seed: Seed) -> list[str]:
    """What there is to begin from: towns, with the words that opinions are made of."""
    stream = seed.child("public").numpy()
    return [_town(stream) for _ in range(sentences)]


def _town(stream: np.random.Generator) -> str:
    first, second = _one(stream, PLACES), _one(stream, PLACES)
    good = bool(stream.integers(2))
    shown = _one(stream, GOOD if good else BAD)
    end = _one(stream, ("great", "good") if good else ("terrible", "bad"))
    return _one(stream, (
        f"The {first} is near the {second}. It was {end}, and the {second} is {shown}.",
        f"It costs less than £{stream.integers(10, 40)} to see the {first} in the city centre. It was {end}.",
        f"The {first} by the riverside is {shown}. It was {end} for children and adults.",
    ))  # fmt: skip


def _one(stream: np.random.Generator, among: Sequence[str]) -> str:
    return among[int(stream.integers(len(among)))]
