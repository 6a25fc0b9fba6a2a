"""Markup, built from small pieces: whatever is not `Safe` is text, and is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Union

from engram.report.style import STYLE

Child = Union["Safe", str, int, float, None, Sequence["Child"]]

EMPTY = {"meta", "img", "br", "col", "hr"}  # elements without content, which HTML does not close
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # a browser then loads nothing and runs nothing


class Safe(str):
    """Markup that was built here. The only way to make it is `tag`, or a style sheet of our own."""

    __slots__ = ()


def escaped(child: Child) -> Safe:
    """Text made harmless, markup as it is, several of them joined, None as nothing."""
    if child is None:
        return Safe()
    if isinstance(child, Safe):
        return child
    if isinstance(child, (str, int, float)):
        return Safe(html.escape(str(child)))
    return Safe("".join(escaped(c) for c in child))


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Safe:
    """One element. `class_` is written class, `stroke_width` stroke-width; an attribute that is None is left out.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    told = "".join(f' {_spelled(key)}="{html.escape(str(v))}"' for key, v in attributes.items() if v is not None)
    if name in EMPTY:
        return Safe(f"<{name}{told}>")
    return Safe(f"<{name}{told}>{escaped(children)}</{name}>")


def _spelled(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def section(name: str, title: str, *children: Child) -> Safe:
    return tag("section", tag("h2", title), *children, id=name)


def figure(drawn: Child, *caption: Child) -> Safe:
    """A picture or a table with the sentence that says how to read it."""
    return tag("figure", drawn, tag("figcaption", *caption))


def table(heads: Sequence[str], rows: Iterable[Sequence[Child]], class_: str | None = None) -> Safe:
    """The first cell of a row names it. On a phone each row becomes a card, so every cell carries its heading."""
    top = tag("tr", [tag("th", head, scope="col") for head in heads])
    body = [_row(heads, row) for row in rows]
    return tag("div", tag("table", tag("thead", top), tag("tbody", body), class_=class_), class_="wide")


def _row(heads: Sequence[str], row: Sequence[Child]) -> Safe:
    first, *rest = row
    cells = [tag("td", cell, data_label=head) for head, cell in zip(heads[1:], rest, strict=True)]
    return tag("tr", tag("th", first, scope="row"), cells)


def terms(pairs: Iterable[tuple[str, Child]], class_: str | None = None) -> Safe:
    """Names and what they stand for. A pair whose second half is None is left out."""
    told = [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value is not None]
    return tag("dl", told, class_=class_)


def bullets(items: Iterable[Child]) -> Safe:
    return tag("ul", [tag("li", item) for item in items if item is not None])


def document(title: str, *body: Child) -> str:
    """The whole file: no script, no font, no picture from anywhere else."""
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Safe(STYLE)),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', tag('main', *body)), lang='en')}\n"
