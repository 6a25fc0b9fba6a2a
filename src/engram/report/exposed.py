"""The members that the attacks are surest of: averages hide them, and each is somebody's record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engram.report import pictures, words
from engram.report.dossier import Dossier, Name
from engram.report.page import Child, Safe, figure, section, table, tag
from engram.types import Array, Bools, Floats, Ints, Scores

SHOWN = 12  # records
WITNESSES = 4  # attacks, the best variant of each
FIELDS = 8  # numbers shown of a record that is no picture


@dataclass(frozen=True, eq=False)
class Exposed:
    """Members by how sure the strongest attack is of them, and where each attack ranks them."""

    rows: Ints  # [shown] their place among the stored records
    ids: Ints  # [shown]
    witnesses: Sequence[Name]
    ranks: Floats  # [attack, shown] share of non-members that score lower
    stored: int


def percentiles(scores: Scores, member: Bools, ids: Ints) -> Floats:
    """For each of these records, the share of non-members that the attack scores lower; equal scores count half.

    Not a number where the attack says nothing of the record.
    """
    others = np.sort(scores.values[~member[scores.ids]])
    own = told_of(scores, ids)
    below, up_to = np.searchsorted(others, own, "left"), np.searchsorted(others, own, "right")
    return np.where(np.isnan(own), np.nan, (below + up_to) / 2 / max(1, len(others)))


def told_of(scores: Scores, ids: Ints) -> Floats:
    """What the attack scores each of these records; not a number where it says nothing of one."""
    order = np.argsort(scores.ids)
    at = order[np.searchsorted(scores.ids, ids, sorter=order).clip(max=len(order) - 1)]
    return np.where(scores.ids[at] == ids, scores.values[at], np.nan)


def chosen(told: Dossier) -> Exposed | None:
    """The records to show, most exposed first."""
    member, ids = told.member, np.asarray(told.responses.get("exposed_ids", ()), np.int64)
    witnesses = told.leaders()[:WITNESSES]
    found = [s for name in witnesses if (s := told.scores(name)) is not None]
    if member is None or not len(ids) or not found:
        return None
    ranks = np.stack([percentiles(s, member, ids) for s in found])  # [attack, stored]
    strongest = told_of(found[0], ids)
    rows = np.lexsort((ids, -strongest, -ranks[0]))[:SHOWN]
    rows = rows[~np.isnan(strongest[rows])]
    return Exposed(rows, ids[rows], witnesses, ranks[:, rows], len(ids))


def exposed(told: Dossier) -> Safe | None:
    """Pictures where the records are pictures, else the beginning of each record."""
    found = chosen(told)
    if found is None:
        return None
    seen = None if told.redact else pictures.images(np.asarray(told.responses["exposed_records"])[found.rows])
    drawn = _rows(told, found) if seen is None and not told.redact else _cards(told, found, seen)
    return section(
        "exposed",
        "The most exposed records",
        tag(
            "p",
            f"Of {words.count(told.target.get('members', 0), 'member')}, the {len(found.ids)} that the strongest attack, "
            f"{words.named(found.witnesses[0])}, is surest of. An average can be harmless and these not.",
        ),
        figure(
            drawn,
            "Beside each attack the share of non-members that it scores lower than this record. At 100",
            words.THIN,
            "% it can name this member without accusing a single non-member. They were picked after the fact, so a few would "
            "stand out by luck alone; the findings above say how many more there are than that.",
        ),
    )


def _cards(told: Dossier, found: Exposed, seen: Array | None) -> Safe:
    cards = [
        tag("li", _picture(told, found, seen, k), _label(told, int(record), k + 1), _bars(found, k))
        for k, record in enumerate(found.ids)
    ]
    return tag("ul", cards, class_="cards")


def _picture(told: Dossier, found: Exposed, seen: Array | None, k: int) -> Safe:
    if seen is None:
        return tag("div", "hidden", class_="hidden")
    return tag("img", src=pictures.address(seen[k]), alt=f"record {found.ids[k]}{_as(told, int(found.ids[k]))}")


def _label(told: Dossier, record: int, nth: int) -> Safe:
    if told.redact:
        return tag("p", tag("small", f"no. {nth}"))
    name = label(told, record)
    return tag("p", tag("b", name) if name else None, tag("small", f"record {record}"))


def _as(told: Dossier, record: int) -> str:
    return f", labelled {name}" if (name := label(told, record)) else ""


def label(told: Dossier, record: int) -> str | None:
    """The class of a record by its name, where labels were stored."""
    if "labels" not in told.responses:
        return None
    which, names = int(told.responses["labels"][record]), told.responses.get("classes")
    return str(names[which]) if names is not None and which < len(names) else str(which)


def _bars(found: Exposed, k: int) -> Safe:
    told = [(name[0], float(found.ranks[i, k])) for i, name in enumerate(found.witnesses)]
    return tag("dl", [[tag("dt", attack), tag("dd", _bar(share), _share(share))] for attack, share in told])


def _share(share: float) -> str:
    return words.NULL if np.isnan(share) else words.percent(share)


def _bar(share: float) -> Safe:
    share = float(np.nan_to_num(share))
    return tag("span", tag("i", style=f"width:{100 * share:.1f}%"), class_="bar")


def _rows(told: Dossier, found: Exposed) -> Safe:
    records = np.asarray(told.responses["exposed_records"])[found.rows].reshape(len(found.rows), -1)
    heads = ["Record", "Label", "Begins with", *(attack for attack, _ in found.witnesses)]
    rows: list[list[Child]] = [
        [str(record), label(told, int(record)), _begins(records[k]), *map(_share, map(float, found.ranks[:, k]))]
        for k, record in enumerate(found.ids)
    ]
    return table(heads, rows, class_="figures")


def _begins(record: Array) -> Child:
    shown = " ".join(f"{v:.3g}" for v in record[:FIELDS].tolist())
    more = f" … {len(record)} in all" if len(record) > FIELDS else ""
    return [tag("code", shown), tag("small", more) if more else None]
