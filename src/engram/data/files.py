"""What is on the disk, and what is installed: asked before it is read."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

PACKAGES = {"PIL": "pillow", "rouge_score": "rouge-score", "sklearn": "scikit-learn"}


def present(path: str | Path) -> Path:
    """The path, if there is a file."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"expected a file of records, found none at {path}; check the name and the folder")
    return path


def installed(module: str, reads: str, extra: str = "data") -> Any:
    """An optional module, imported where it is used."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = PACKAGES.get(root := module.partition(".")[0], root)
        raise ImportError(f"{reads} need {package}; install it with: pip install 'engram[{extra}]'") from None
