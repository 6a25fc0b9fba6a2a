"""The command line: parsing and printing, nothing else. Each command is a module here and a line in the table.

A command module has `arguments(parser)` and `run(args) -> Outcome`. What it raises about wrong use becomes one sentence
and exit code 2. Only the command that was asked for is imported, so help comes at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import engram
from engram.cli.outcome import Outcome

COMMANDS = {
    "demo": "the whole story on a small real model, in about a minute, with a report",
    "new": "write a commented template of a target file",
    "audit": "what a model gives away, measured and stored, with a report",
    "attacks": "the attacks there are, what each asks for, its paper",
    "defences": "the defences there are and their knobs",
    "budget": "epsilon from noise, and noise from epsilon",
    "reproduce": "a paper's table, ours beside it",
    "runs": "the runs in a store",
    "show": "the findings of a run",
    "compare": "two runs side by side",
    "report": "the report of a stored run, again",
}
FINE, HELD, WRONG, INTERRUPTED = 0, 1, 2, 130


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    as_json = _asked_for_json(words)
    try:
        outcome = _run(_parser(words).parse_args(words, argparse.Namespace(words=words)), as_json)
    except KeyboardInterrupt:
        return _complain("stopped; what was finished is stored, and the same command goes on from there", INTERRUPTED)
    except (ValueError, TypeError, OSError, ImportError, _store_error()) as wrong:
        return _complain(str(wrong) or type(wrong).__name__, WRONG)
    except (RuntimeError, MemoryError) as broke:  # torch says so of a model's own code, and of memory
        told = (str(broke).splitlines() or [""])[0] or type(broke).__name__
        return _complain(f"the computation broke off: {told}; what was finished is stored", WRONG)
    return _said(outcome, as_json)


def _run(args: argparse.Namespace, as_json: bool) -> Outcome:
    """What a target file prints goes to the errors where the answer must be one object and nothing else."""
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        ran: Outcome = _module(args.command).run(args)
    return ran


def _said(outcome: Outcome, as_json: bool) -> int:
    """Print it; the exit code. What cannot be printed must not be tried again when Python ends."""
    try:
        _say(outcome.answer, outcome.text, as_json)
    except BrokenPipeError:
        _hush()
        return INTERRUPTED
    except OSError as wrong:
        _hush()
        return _complain(f"the answer could not be written: {wrong.strerror}; what was measured is stored", WRONG)
    return outcome.code


def _hush() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _module(command: str) -> Any:
    return importlib.import_module(f"engram.cli.{command}")


class _Parser(argparse.ArgumentParser):
    """Wrong use is one sentence."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_complain(f"{message}; see: {self.prog} --help", WRONG))


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser("engram", description=engram.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"engram {engram.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for name, what in COMMANDS.items():
        command = commands.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".", allow_abbrev=False)
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        if words[:1] == [name]:
            _module(name).arguments(command)
    return parser


def _asked_for_json(words: Sequence[str]) -> bool:
    return "--json" in words


def _say(answer: Mapping[str, Any], text: str, as_json: bool) -> None:
    told = {"engram": engram.__version__, **answer}
    print(json.dumps(_plain(told), indent=2, allow_nan=False) if as_json else text, flush=True)


def _plain(value: Any) -> Any:
    """JSON has no infinity: what is unbounded is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _complain(sentence: str, code: int) -> int:
    start = "\r\x1b[K" if sys.stderr.isatty() else ""  # over a progress bar that was broken off
    print(f"{start}engram: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _store_error() -> type[Exception]:
    from engram.blocks import StoreError

    return StoreError
