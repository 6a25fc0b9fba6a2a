"""engram budget: epsilon from noise, and noise from epsilon."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram import check
from engram.cli import tables
from engram.cli.outcome import Outcome

if TYPE_CHECKING:
    from engram.accounting import Event

KNOBS: dict[
    str, dict[str, float | None]
] = {  # as they are spelled on the command line, with their default where they have one
    "gaussian": {"noise": None},
    "laplace": {"scale": None},
    "randomised-response": {"truth": None, "answers": 2},
    "sampled-gaussian": {"rate": None, "noise": None},
    "fixed-batch-gaussian": {"batch": None, "records": None, "noise": None},
}
Asked = tuple[str, int]  # an event as it was written, and how often
POINTS = 60
WANTED = ("noise", "rate", "steps")


class _Times(argparse.Action):
    """How often the event before it happened."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _: Any = None
    ) -> None:
        if not namespace.event:
            parser.error("--times says how often the --event before it happened; write --event first")
        namespace.event[-1] = (namespace.event[-1][0], values)


class _Event(argparse.Action):
    def __call__(self, _: Any, namespace: argparse.Namespace, values: Any, __: Any = None) -> None:
        namespace.event = [*(namespace.event or []), (values, 1)]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Give --noise, --rate and --steps of a private training for its epsilon; give --epsilon and all but one of them for "
        f"the one that is missing; or list events: {'; '.join(_written(kind) for kind in KNOBS)}."
    )
    parser.add_argument("--delta", type=float, required=True, metavar="D", help="the delta of (epsilon, delta)")
    parser.add_argument("--noise", type=float, metavar="S", help="noise multiplier: its deviation over the clip norm")
    parser.add_argument("--rate", type=float, metavar="Q", help="probability of each record to be in a batch")
    parser.add_argument("--steps", type=int, metavar="T", help="steps of the training")
    parser.add_argument("--epsilon", type=float, metavar="E", help="the budget, to find what it allows")
    parser.add_argument("--group", type=int, default=1, metavar="K", help="protect groups of K records (default: 1)")
    parser.add_argument("--event", action=_Event, metavar="EVENT", help="another event, as laplace:scale=2; repeatable")
    parser.add_argument("--times", action=_Times, type=int, metavar="N", help="how often the event before happened")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw epsilon against steps, as an SVG file")


def run(args: argparse.Namespace) -> Outcome:
    found = _found(args) if args.epsilon is not None else {}
    event = _event(args, found)
    budget = {**told(event, args.delta, args.group), **found}
    if args.plot:
        args.plot.write_text(_plot(args, found), encoding="utf-8")
    return Outcome({"budget": budget}, _words(budget, args.group))


def told(event: Event, delta: float, group: int = 1) -> dict[str, Any]:
    """What every accountant says of the events."""
    from engram.accounting import clt, curve, to_epsilon

    cost = curve(event, group=group)
    best, loose = to_epsilon(cost, delta), to_epsilon(cost, delta, "mironov")
    return {
        "delta": delta,
        "group": group,
        "renyi": {"epsilon": best.epsilon, "order": best.order},
        "mironov": {"epsilon": loose.epsilon, "order": loose.order},
        "pure": {"epsilon": cost.pure},
        "tight": _tight(event, delta, group),
        "gdp": {"epsilon": clt.epsilon(event, delta) if group == 1 else None, "guarantee": False},
    }


def _tight(event: Event, delta: float, group: int) -> dict[str, Any]:
    from engram.accounting import NoGuarantee, UnknownEvent, tight

    if group > 1:
        return {"upper": None, "lower": None, "reason": "privacy-loss distributions are not computed for groups"}
    try:
        bracket = tight.epsilon(event, delta)
    except (NoGuarantee, UnknownEvent, ImportError) as reason:
        return {"upper": None, "lower": None, "reason": str(reason)}
    return {"upper": bracket.upper, "lower": bracket.lower}


def _found(args: argparse.Namespace) -> dict[str, Any]:
    """The one of noise, rate and steps that was not given."""
    from engram.accounting import calibration

    given = {name: value for name in WANTED if (value := getattr(args, name)) is not None}
    missing = set(WANTED) - set(given)
    if args.event or len(missing) != 1:
        raise ValueError(
            "--epsilon finds one of --noise, --rate and --steps from the two others, without --event; "
            f"got {', '.join(f'--{name}' for name in given) or 'none of them'}{' and --event' if args.event else ''}"
        )
    known = {"noise_multiplier" if name == "noise" else name: value for name, value in given.items()}
    (name,) = missing
    finds: dict[str, Any] = {
        "noise": calibration.noise_multiplier,
        "rate": calibration.rate,
        "steps": calibration.steps,
    }
    answer = finds[name](epsilon=args.epsilon, delta=args.delta, group=args.group, **known)
    return {**given, name: answer}


def _event(args: argparse.Namespace, found: Mapping[str, Any]) -> Event:
    from engram.accounting import Composed

    parts = [(event(written), times) for written, times in args.event or []]
    if found or not parts or any(v is not None for v in (args.noise, args.rate, args.steps)):
        parts.append((_training(args, found), 1))
    return Composed(*parts)


def _training(args: argparse.Namespace, found: Mapping[str, Any], steps: int | None = None) -> Event:
    from engram.accounting.calibration import training

    values = {name: found.get(name, getattr(args, name)) for name in WANTED}
    if missing := [f"--{name}" for name, value in values.items() if value is None]:
        raise ValueError(f"a training has --noise, --rate and --steps, and here {' and '.join(missing)} lacks; add it")
    return training(values["noise"], values["rate"], values["steps"] if steps is None else steps)


def event(written: str) -> Event:
    """An event from the way it is written on the command line.

    >>> event("laplace:scale=2")
    Laplace(scale=2.0)
    """
    from engram import accounting as a

    kind, _, rest = written.partition(":")
    check.known("event", kind, KNOBS)
    given = dict(_pair(part, written) for part in rest.split(",") if part)
    for name in given:
        check.known(f"knob of {kind}", name, KNOBS[kind])
    knobs = {name: given.get(name, default) for name, default in KNOBS[kind].items()}
    values = {name: value for name, value in knobs.items() if value is not None}
    if missing := [name for name in knobs if name not in values]:
        raise ValueError(f"{kind} needs {' and '.join(missing)}, as in {_written(kind)}; got {written!r}")
    match kind:
        case "gaussian":
            return a.Gaussian(values["noise"])
        case "laplace":
            return a.Laplace(values["scale"])
        case "randomised-response":
            return a.RandomisedResponse(values["truth"], _whole(values["answers"]))
        case "sampled-gaussian":
            return a.PoissonSampled(values["rate"], a.Gaussian(values["noise"]))
        case _:
            batch, records = _whole(values["batch"]), _whole(values["records"])
            return a.SampledWithoutReplacement(batch, records, a.Gaussian(values["noise"]))


def _pair(part: str, written: str) -> tuple[str, float]:
    name, _, value = part.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise ValueError(f"an event is KIND:KNOB=NUMBER,..., as laplace:scale=2, got {written!r}") from None


def _whole(value: float) -> Any:
    return int(value) if float(value).is_integer() else value  # what is not whole is refused by the event


def _written(kind: str) -> str:
    examples = {
        "noise": "2",
        "scale": "2",
        "truth": "0.75",
        "answers": "2",
        "rate": "0.01",
        "batch": "64",
        "records": "6400",
    }
    return f"{kind}:{','.join(f'{name}={examples[name]}' for name in KNOBS[kind])}"


def _words(budget: Mapping[str, Any], group: int) -> str:
    tight = budget["tight"]
    no_tight = tight.get("reason", "")
    rows = [
        ("Renyi, converted by Balle et al. = Canonne et al.", _number(budget["renyi"]), _order(budget["renyi"])),
        ("Renyi, converted by Mironov", _number(budget["mironov"]), _order(budget["mironov"])),
        (
            "pure",
            _number(budget["pure"]),
            "guarantee, at delta 0" if math.isfinite(budget["pure"]["epsilon"]) else "none",
        ),
        ("privacy-loss distribution, from above", _plain(tight["upper"]), no_tight or "guarantee"),
        (
            "privacy-loss distribution, from below",
            _plain(tight["lower"], down=True),
            no_tight or "no accountant can go below",
        ),
        ("Gaussian-DP limit", _number(budget["gdp"]), "no guarantee: a diagnostic"),
    ]
    head = f"delta {budget['delta']:g}" + (f", for groups of {group} records" if group > 1 else "")
    asked = [f"{name} {_rounded(budget[name], 6, ROUND_CEILING if name == 'noise' else ROUND_FLOOR)}" for name in WANTED
             if name in budget]  # fmt: skip
    return "\n".join([", ".join([head, *asked]), "", tables.columns(rows, ("accountant", "epsilon", ""))])


def _number(said: Mapping[str, Any]) -> str:
    return _plain(said["epsilon"])


def _plain(value: float | None, down: bool = False) -> str:
    if value is None:
        return "-"
    return _rounded(value, 4, ROUND_FLOOR if down else ROUND_CEILING) if math.isfinite(value) else "unbounded"


def _rounded(value: float, digits: int, way: str) -> str:
    """So many significant digits; a guarantee is rounded up, what bounds it from below is rounded down."""
    exact = Decimal(value)
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() + 1 - digits), way)) if exact else 0:.{digits}g}"


def _order(said: Mapping[str, Any]) -> str:
    return "guarantee" if said["order"] is None else f"guarantee, at order {said['order']:.4g}"


def _plot(args: argparse.Namespace, found: Mapping[str, Any]) -> str:
    import numpy as np

    from engram.accounting import curve, to_epsilon
    from engram.report.alone import Series, lines

    if args.event:
        raise ValueError("--plot draws epsilon against the steps of a training; leave --event out")
    last = found.get("steps", args.steps)
    if not last:
        raise ValueError(f"--plot draws epsilon against steps, and needs at least one step, got {last}")
    steps = np.unique((last * np.linspace(0, 1, POINTS + 1) ** 3).astype(int))  # the first steps cost most
    drawn: Sequence[tuple[str, str]] = (("Renyi, Balle et al.", "balle"), ("Renyi, Mironov", "mironov"))
    curves = [curve(_training(args, found, int(n)), group=args.group) for n in steps]
    series = [
        Series(name, steps.tolist(), [to_epsilon(c, args.delta, how).epsilon for c in curves]) for name, how in drawn
    ]
    return lines(series, "steps", f"epsilon at delta {args.delta:g}")
