"""What README and docs show is what the code and the stored rows say."""

from __future__ import annotations

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
