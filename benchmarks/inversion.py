"""How exactly the missing record comes back from released weights by solving the training run, and when it does not.

    python benchmarks/inversion.py --targets 100 --store inversion.db --rows benchmarks/measured/inversion.jsonl
    python benchmarks/inversion.py --targets 100 --activation relu --case float64 ...
    python benchmarks/inversion.py --pixels 196 --data DATA                 # MNIST at 14 x 14 instead of the digits
    python benchmarks/inversion.py --pixels 784 --fixed 10000 --data DATA --device cuda

The cases: weights trained in float64; in float32 by the training loop itself; and, the control, an adversary who takes the
run to have started from other weights. Each line is one case over all targets. Median errors carry the interval of order
statistics, shares that of Clopper and Pearson; cpu is the processor's time, for others may be using the machine. With a
store, targets are solved in pieces that are kept, so that a run that was ended goes on, and more targets may follow.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import numpy as np
import torch
from rows import asked, finish
from scipy.stats import binom

from engram.attacks.inversion import Inversion, inverted
from engram.chunks.local import Local, Memory
from engram.data import dataset, digits, load
from engram.data.fingerprints import fingerprint
from engram.measure.rates import clopper_pearson
from engram.models import MLP
from engram.seed import Seed
from engram.store import Store
from engram.train import SGD, FullBatch, Given, Recipe, fit_many
from engram.train.feed import Rows
from engram.train.loop import started
from engram.train.unrolled import Unrolled
from engram.types import Piece

TOGETHER = 20  # targets of a piece
CASES = ("float64", "float32", "unknown start")


def records(args, seed: Seed):
    held = digits() if args.pixels == 64 else load(args.data / "mnist-train-images-idx3-ubyte.gz")
    order = seed.child("order").numpy().permutation(len(held))[:20_000]
    x, side = held.x[order], round(args.pixels**0.5)
    step = x.shape[-1] // side
    return dataset(x.reshape(len(x), 1, side, step, side, step).mean((3, 5)), held.y[order])


def recipe(args, start: Seed) -> Recipe:
    build = MLP(args.pixels, 10, args.width, activation=args.activation)
    plain = Recipe(build, args.epochs, SGD(0.2, momentum=0.9), FullBatch())
    return replace(plain, start=Given(started(plain, start).state_dict()))


def released(case: str, known: Recipe, run: Unrolled, held, rows):
    """[target, weight]"""
    if case != "float32":
        return run(torch.as_tensor(held.x[rows]), torch.as_tensor(held.y[rows]))
    ends, fixed = [], np.arange(len(run.x))
    for row in rows:
        models = fit_many(known, held, Rows(np.append(fixed, row)[None]), [Seed(0)])
        ends.append(run.flat({name: w[0] for name, w in models.weights().items()}))
    return torch.stack(ends)


def solved(args, case: str, first: int, seed: Seed):
    """What came of one piece of targets, [target] each."""
    held, known = records(args, seed), recipe(args, seed.child("start"))
    run = Unrolled(known, held.take(range(args.fixed)), device=args.device)
    rows = args.fixed + np.arange(first, min(first + TOGETHER, args.targets))
    ends = released(case, known, run, held, rows)
    if case == "unknown start":
        run = Unrolled(recipe(args, seed.child("another start")), held.take(range(args.fixed)), device=args.device)
    began, used = time.perf_counter(), time.process_time()
    found = inverted(run, ends, (run.x, run.y), seed=seed, search=Inversion(starts=args.starts, kept=args.kept))
    spent = np.array([time.perf_counter() - began, time.process_time() - used])
    x = torch.as_tensor(held.x[rows]).flatten(1).double()
    return {
        "apart": (found.x.cpu().flatten(1) - x).square().mean(1).numpy(),
        "nearest": torch.cdist(x, run.x.cpu().flatten(1)).square().min(1).values.numpy() / x.shape[1],
        "right": found.y.cpu().numpy() == held.y[rows],
        "certificate": found.residuals.cpu().numpy(),
        "spent": spent,
    }


def row(args, case: str, chunks, seed: Seed):
    knobs = {k: v for k, v in vars(args).items() if k not in ("targets", "rows", "store", "data", "case")}
    firsts = range(0, args.targets, TOGETHER)
    told = fingerprint("inversion", knobs, case)
    pieces = [Piece(f"inversion/{told}/{k}-{min(k + TOGETHER, args.targets)}", {"first": k}) for k in firsts]
    parts = list(chunks.run(pieces, lambda piece: solved(args, case, piece.part["first"], seed)))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "spent"}
    seconds, cpu = sum(part["spent"] for part in parts)
    return measured(args, case, **joined) | {"seconds": float(seconds), "cpu": float(cpu)}


def measured(args, case, apart, nearest, right, certificate):
    n, ordered = len(apart), np.sort(apart)
    below = max(1, int(binom.ppf(0.025, n, 0.5)))
    shares = {}
    for name, held in (("below 1e-4", apart < 1e-4), ("below .005", apart < 0.005), ("beats nearest", apart < nearest)):
        shares[name] = float(held.mean())
        shares[f"{name}, low"], shares[f"{name}, high"] = clopper_pearson(int(held.sum()), n, 0.95)
    return {
        "case": case, "activation": args.activation, "pixels": args.pixels, "fixed": args.fixed, "width": args.width,
        "epochs": args.epochs, "starts": args.starts, "kept": args.kept, "n": n,
        "median mse": float(np.median(apart)), "low": float(ordered[below - 1]), "high": float(ordered[n - below]),
        "mean mse": float(apart.mean()), "nearest mse": float(nearest.mean()), **shares,
        "label right": float(right.mean()), "median certificate": float(np.median(certificate)),
    }  # fmt: skip


def main() -> None:
    args = asked(
        __doc__, data=None, store=None, targets=100, activation="elu", pixels=64, fixed=500, width=10, epochs=100, starts=6,
        kept=3, case="all",
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        chunks = Local(stack.enter_context(Store(args.store))) if args.store else Memory()
        cases = CASES if args.case == "all" else (args.case,)
        finish([row(args, case, chunks, Seed(0)) for case in cases], benchmark="inversion", args=args)


if __name__ == "__main__":
    main()
