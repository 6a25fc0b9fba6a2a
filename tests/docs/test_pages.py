"""Tables in the documentation are what their stored rows say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def render():
    spec = importlib.util.spec_from_file_location("render", DOCS / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted(p.name for p in DOCS.glob("*.md")))
def test_its_tables_are_as_rendered(page, render):
    text = (DOCS / page).read_text()
    assert render.rendered(text) == text


def test_a_typed_figure_is_seen(render):
    text = (DOCS / "sharing-gradients.md").read_text()
    assert render.rendered(text.replace("1.00 [", "0.00 [")) == text
    assert "| half precision | yes |" in text
