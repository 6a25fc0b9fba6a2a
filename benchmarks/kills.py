"""Whether a run that was killed at any moment ends with the numbers of one that was not.

The same audit, from the command line: once in peace, then again and again in a store of its own, with `kill -9` at moments
drawn anew, until it ends. What each attack said and every finding must equal, byte for byte, those of the first.

python benchmarks/kills.py --runs 20
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rows import asked, finish

from engram.blocks import StoreError
from engram.seed import Seed
from engram.store import Store

WORDS = (
    "audit", "--attacks", "gap,lira,rmia", "--set", "lira.shadows=16", "--set", "rmia.shadows=16",
    "--defences", "early-stopping",
)  # fmt: skip
COMMAND = (sys.executable, "-c", "import sys; from engram.cli import main; sys.exit(main())", *WORDS)


def main() -> None:
    args = asked(__doc__ or "", runs=20, kills=3)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole.db")
        seconds = ended(whole)
        expected = digest(whole)
        stream = Seed(0).child("kills").numpy()
        told = [broken(Path(folder, f"{k}.db"), seconds, args.kills, stream) for k in range(args.runs)]
        same = [digest(Path(folder, f"{k}.db")) == expected for k in range(args.runs)]
    finish([row(told, same, seconds)], benchmark="kills", args=args)
    sys.exit(not all(same))


def ended(store: Path) -> float:
    """The seconds it takes."""
    began = time.perf_counter()
    subprocess.run([*COMMAND, "--store", store], check=True, capture_output=True)
    return time.perf_counter() - began


def broken(store: Path, seconds: float, kills: int, stream: np.random.Generator) -> list[str]:
    """Killed at so many moments, then left alone. What was there after each kill."""
    left = []
    for moment in stream.uniform(0, seconds, kills):
        with subprocess.Popen([*COMMAND, "--store", store], stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.kill()
        left.append(state(store))
        if left[-1] == "finished":
            return left
    ended(store)
    return left


def state(path: Path) -> str:
    try:
        with Store(path, write=False) as store:
            runs = store.runs()
            return "nothing" if not runs else "finished" if runs[0].finished else "evidence" if store.told(1) else "run"
    except StoreError:
        return "nothing"


def digest(path: Path) -> str:
    """Of all that the first run of a store holds, but for the seconds."""
    with Store(path, write=False) as store:
        return hashlib.sha256("".join(parts(store)).encode()).hexdigest()


def parts(store: Store) -> Iterator[str]:
    yield json.dumps([dataclasses.asdict(f) for f in store.findings(1)])
    for told in store.told(1):
        yield from (told.attack, told.defence)
        yield from (hashlib.sha256(np.ascontiguousarray(a)).hexdigest() for a in arrays(told.evidence))


def arrays(evidence: Any) -> Iterator[np.ndarray]:
    yield from (value for value in vars(evidence).values() if isinstance(value, np.ndarray))


def row(told: list[list[str]], same: list[bool], seconds: float) -> dict[str, Any]:
    found = Counter(state for run in told for state in run)
    return {
        "runs": len(same),
        "kills": sum(found.values()) - found["finished"],
        **{f"after a kill: {what}": found[what] for what in ("nothing", "run", "evidence")},
        "seconds in peace": seconds,
        "identical": sum(same),
    }


if __name__ == "__main__":
    main()
