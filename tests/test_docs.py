"""What README and docs show is what the code and the stored rows say."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engram.attacks import ATTACKS
from engram.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]


def test_tables_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "render.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_that_pages_show_exist(page):
    for command in re.findall(r"^engram (\w+)", page.read_text(), re.MULTILINE):
        assert command in COMMANDS, command


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_attacks_that_pages_set_exist(page):
    for name in re.findall(r"--set ([\w-]+)\.", page.read_text()):
        assert name in ATTACKS or name == "yours", name
    for names in re.findall(r"--attacks ([\w,-]+)", page.read_text()):
        assert set(names.split(",")) <= set(ATTACKS), names


def test_a_typed_figure_is_seen(tmp_path):
    page = ROOT / "docs" / "measured.md"
    before = page.read_text()
    spec = importlib.util.spec_from_file_location("render", ROOT / "docs" / "render.py")
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)
    figure = re.search(r"\| (0\.\d{3,}) \|", before)[1]
    typed = tmp_path / "page.md"
    typed.write_text(before.replace(figure, "0.123456"))
    assert render.rendered(typed.read_text()) == before
