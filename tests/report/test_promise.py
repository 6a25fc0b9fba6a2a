from __future__ import annotations

from report.fabricated import Fabricated, fabricate

from engram.report.curves import roc
from engram.report.dossier import dossier


def drawn(path, **target):
    store, run = fabricate(path, Fabricated(target=target))
    with store:
        return str(roc(dossier(store, run)))


def test_a_promised_budget_is_drawn_beside_the_measured_curve(tmp_path):
    page = drawn(tmp_path / "a.db", claim=[1.0, 1e-5])
    assert page.count('class="limit"') == 1
    assert "promises epsilon 1 at delta 1e-05" in page


def test_without_a_promise_there_is_no_limit(tmp_path):
    assert "limit" not in drawn(tmp_path / "a.db")


def test_a_stronger_promise_lies_lower(tmp_path):
    import re

    def first_height(epsilon):
        path = re.search(
            r'<path d="M[\d.]+ ([\d.]+)L[^"]*" class="limit"', drawn(tmp_path / f"{epsilon}.db", claim=[epsilon, 0.0])
        )
        return float(path.group(1))

    assert first_height(0.5) > first_height(2.0) > first_height(4.0)  # larger is lower on the page
