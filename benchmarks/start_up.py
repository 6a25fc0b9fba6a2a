"""How long a newcomer waits: the import, the help, the demo and the audit, each in a fresh process.

python benchmarks/start_up.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rows import asked, finish

ENGRAM = str(Path(sys.executable).with_name("engram"))


def main() -> None:
    args = asked(__doc__ or "", repeats=5)
    bare = "import sys, engram; sys.exit('torch' in sys.modules)"
    with tempfile.TemporaryDirectory() as folder:
        long = ["--store", f"{folder}/engram.db", "--report", f"{folder}/report.html"]
        rows = [
            row("import engram, without torch", [sys.executable, "-c", bare], 0.5, args.repeats),
            row("engram --help", [ENGRAM, "--help"], 0.5, args.repeats),
            row("engram attacks", [ENGRAM, "attacks"], None, args.repeats),
            row("engram audit", [ENGRAM, "audit", *long], 60.0, 1),
            row("engram demo", [ENGRAM, "demo", "--seed", "1", *long], 60.0, 1),
        ]
    finish(rows, benchmark="start-up", args=args)


def row(what: str, command: list[str], goal: float | None, repeats: int) -> dict[str, Any]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return {
        "what": what,
        "median s": statistics.median(seconds),
        "worst s": max(seconds),
        "goal s": goal,
        "runs": repeats,
    }


if __name__ == "__main__":
    main()
