"""What a command has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """`answer` is printed as one object under --json, `text` otherwise."""

    answer: Mapping[str, Any]
    text: str
    code: int = 0
