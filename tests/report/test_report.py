"""The report as a whole: nothing runs, nothing is fetched, nothing of somebody else's text becomes markup."""

from __future__ import annotations

import dataclasses
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from report.fabricated import Fabricated, fabricate

import engram.report
from engram.report import render, write
from engram.report.exposed import percentiles
from engram.report.page import EMPTY
from engram.types import Finding, Scores

HOSTILE = "<script>alert('1')</script><img src=http://x.example/y onerror=\"go()\">&amp;\x00\u202e</style>"
DEFENDED = Fabricated(guards={"l2": 0.3, "top-k-outputs": 0.9}, refused={"rmia": "it asks for Probabilities"})
CASES = {
    "plain": Fabricated(),
    "defended": DEFENDED,
    "hostile": dataclasses.replace(DEFENDED, words=HOSTILE, refused={"rmia": HOSTILE}, target={"duplicates": HOSTILE}),
    "refused only": Fabricated(leaks={}, refused={"lira": "no recipe", "rmia": "no recipe"}),
    "no attack": Fabricated(leaks={}),
    "unfinished": Fabricated(finished=False),
    "few": Fabricated(members=3, non_members=3),
    "two records": Fabricated(members=1, non_members=1),
    "one member": Fabricated(members=1, non_members=40),
    "no pictures": Fabricated(shape=(12,)),
    "colours": Fabricated(shape=(3, 6, 6)),
    "text": Fabricated(records=np.zeros((600, 5), np.int64), shape=(5,)),
}


class Parts(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that do not close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page(tmp_path, made=None, *, redact=False):
    store, run = fabricate(tmp_path / "engram.db", made)
    with store:
        return render(store, run, redact=redact)


@pytest.mark.parametrize("case", CASES)
def test_nothing_runs_and_nothing_is_fetched(tmp_path, case):
    store, run = fabricate(tmp_path / "engram.db", CASES[case])
    with store:
        for redact in (False, True):
            harmless(render(store, run, redact=redact))


def harmless(told: str) -> None:
    parts = Parts(told)
    assert {"html", "head", "body", "main"} <= set(parts.tags)
    assert not set(parts.tags) & {"script", "iframe", "object", "embed", "link", "base", "form", "a", "audio", "video"}
    assert not [a for a in parts.attributes if a[1].startswith("on")]
    places = [v for _, name, v in parts.attributes if name in ("src", "href", "srcset", "action", "data", "xlink:href")]
    assert all(v.startswith("data:image/png;base64,") for v in places)
    assert not re.search(r"url\(|@import|expression\(", told)
    assert told.count("<style>") == told.count("</style>") == 1
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in parts.attributes
    assert "None" not in parts.words
    assert "nan" not in parts.words.split()


def test_hostile_text_is_shown_as_text(tmp_path):
    parts = Parts(page(tmp_path, CASES["hostile"]))
    shown = " ".join(parts.text)
    assert (
        shown.count("<script>alert('1')</script>") >= 8
    )  # name, title, data, notes, command, knowledge, variants, reasons
    assert {"h1", "title"} <= set(parts.tags)
    labels = [v for tag, name, v in parts.attributes if (tag, name) == ("img", "alt")]
    assert labels
    assert all("<script>" in label for label in labels)


def test_the_parts_of_a_report_are_those_of_the_table(tmp_path):
    parts = Parts(page(tmp_path, DEFENDED))
    ids = [v for _, name, v in parts.attributes if name == "id"]
    assert ids == [
        "verdict", "questions", "threat", "findings", "roc", "scores", "defences", "exposed", "control", "untried",
        "limits", "tags", "reproduce",
    ]  # fmt: skip


def test_the_same_store_gives_the_same_text(tmp_path):
    store, run = fabricate(tmp_path / "engram.db", DEFENDED)
    with store:
        assert render(store, run) == render(store, run)


def test_every_defence_is_compared_with_the_model_as_it_is(tmp_path):
    words = Parts(page(tmp_path, DEFENDED)).words
    for guard in ("l2", "top-k-outputs"):
        assert f"with {guard}" in words
        assert f"behind {guard}" in words
    assert "as it is" in words
    assert "strength 0.2" in words


def test_null_findings_carry_their_reason(tmp_path):
    store, run = fabricate(tmp_path / "engram.db", Fabricated(members=40, non_members=40))
    with store:
        reasons = {f.reason for f in store.findings(run) if f.value is None}
        words = Parts(render(store, run)).words
    assert len(reasons) > 2
    for reason in reasons:
        assert " ".join(reason.split()) in words


def test_a_refused_attack_is_told_with_its_reason(tmp_path):
    words = Parts(page(tmp_path, CASES["refused only"])).words
    assert "Nothing can be said: no attack was measured." in words
    assert words.count("could not be tried: no recipe.") == 2
    assert "Every attack of the plan was refused or has not been run" in words


def test_an_unfinished_run_says_so(tmp_path):
    assert "This run has not finished." in Parts(page(tmp_path, CASES["unfinished"])).words
    (tmp_path / "b").mkdir()
    assert "This run has not finished." not in Parts(page(tmp_path / "b")).words


# What --redact leaves out


def test_redacting_hides_pictures_labels_and_record_numbers(tmp_path):
    store, run = fabricate(tmp_path / "engram.db")
    with store:
        ids = store.responses(run)["exposed_ids"]
        whole, redacted = (Parts(render(store, run, redact=redact)) for redact in (False, True))
    assert whole.tags.count("img") == 12
    assert redacted.tags.count("img") == 0
    assert redacted.text.count("hidden") == 12
    numbers = {f"record {i}" for i in ids}
    assert len(numbers & set(whole.text)) == 12
    assert not any(re.fullmatch(r"record \d+", told) for told in redacted.text)
    assert "Redacted." in redacted.words
    assert "Private." in whole.words


def test_redacting_hides_records_that_are_no_pictures(tmp_path):
    whole, redacted = (Parts(page(tmp_path / name, CASES["no pictures"], redact=redact))
                       for name, redact in (("a", False), ("b", True)) if not os.makedirs(tmp_path / name))  # fmt: skip
    assert "Begins with" in whole.text
    assert "Begins with" not in redacted.text
    assert "code" not in [t for t in redacted.tags if t == "td"]
    assert not any(re.fullmatch(r"(record )?\d{1,3}", told) and told.startswith("record") for told in redacted.text)


# The file


def test_only_its_owner_may_read_the_file_whatever_was_there(tmp_path):
    store, run = fabricate(tmp_path / "engram.db")
    path = tmp_path / "report.html"
    path.write_text("old")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        with store:
            assert write(store, run, path) == path
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().startswith("<!doctype html>")


def test_a_write_that_breaks_off_leaves_the_report_that_was_there(tmp_path, monkeypatch):
    store, run = fabricate(tmp_path / "engram.db")
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engram.report.os, "replace", full)
    with (
        store,
        pytest.raises(ValueError, match=r"cannot be written to .* \(No space left on device\); the run is stored"),
    ):
        write(store, run, path)
    assert path.read_text() == "old"
    assert not list(tmp_path.glob("*.part"))


def test_an_attack_that_scores_some_records_only(tmp_path):
    """An exposed record that one attack is sure of, and of which another says nothing."""
    store, run = fabricate(tmp_path / "engram.db", Fabricated(leaks={"lira": 1.2}))
    with store:
        some = np.flatnonzero(~np.isin(np.arange(600), store.responses(run)["exposed_ids"][::2]))
        told = dataclasses.replace(store.told(run)[0], attack="rmia", evidence=Scores(some * 1.0, some, variant="part"))
        store.tell(run, told)
        area = Finding("auc", 0.5, 0.4, 0.6, n=len(some), non_members=300, attack="rmia", variant="part")
        store.judge(run, [area])
        ids = store.responses(run)["exposed_ids"]
        ranks = percentiles(told.evidence, store.responses(run)["truth"], ids)
        parts = Parts(render(store, run))
    assert np.isnan(ranks).tolist() == [k % 2 == 0 for k in range(len(ids))]
    assert parts.text.count("–") >= len(ids) // 2
    assert parts.tags.count("img") == len(ids)


def test_the_head_of_a_column_is_not_broken_inside_a_word(tmp_path):
    """The page breaks long words anywhere, which also lets a column become narrower than its head."""
    style = page(tmp_path).partition("<style>")[2].partition("</style>")[0]
    rules = dict(re.findall(r"([^{}]+)\{([^{}]*)\}", style))
    heads = [told for where, told in rules.items() if where.strip() == "thead th"]
    assert any("overflow-wrap: break-word" in told for told in heads)
