"""How exactly the missing record comes back from released weights by solving the training run, and when it does not.

    python benchmarks/inversion.py --targets 100 --activation elu --rows benchmarks/measured/inversion.jsonl
    python benchmarks/inversion.py --targets 100 --activation relu --rows ...
    python benchmarks/inversion.py --pixels 196 --data DATA                 # MNIST at 14 x 14 instead of the digits
    python benchmarks/inversion.py --pixels 784 --fixed 10000 --data DATA --device cuda

The cases: weights trained in float64; in float32 by the training loop itself; and, the control, an adversary who takes the
run to have started from other weights. Each line is one case over all targets. Median errors carry the interval of order
statistics, shares that of Clopper and Pearson; cpu is the processor's time, for others may be using the machine.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from rows import asked, finish
from scipy.stats import binom

from engram.attacks.inversion import Inversion, inverted
from engram.data import dataset, digits, load
from engram.measure.rates import clopper_pearson
from engram.models import MLP
from engram.seed import Seed
from engram.train import SGD, FullBatch, Given, Recipe, fit_many
from engram.train.loop import started
from engram.train.unrolled import Unrolled


def records(pixels: int, data, seed: Seed):
    held = digits() if pixels == 64 else load(data / "mnist-train-images-idx3-ubyte.gz")
    order = seed.child("order").numpy().permutation(len(held))[:20_000]
    x, side = held.x[order], round(pixels**0.5)
    step = x.shape[-1] // side
    x = x.reshape(len(x), 1, side, step, side, step).mean((3, 5))
    return dataset(x, held.y[order])


def recipe(args, start: Seed) -> Recipe:
    build = MLP(args.pixels, 10, args.width, activation=args.activation)
    plain = Recipe(build, args.epochs, SGD(0.2, momentum=0.9), FullBatch())
    return replace(plain, start=Given(started(plain, start).state_dict()))


def released(case: str, known: Recipe, run: Unrolled, held, targets: int):
    """[target, weight]"""
    fixed, rows = len(run.x), np.arange(len(run.x), len(run.x) + targets)
    if case != "float32":
        x, y = torch.as_tensor(held.x[rows]), torch.as_tensor(held.y[rows])
        return torch.cat([run(x[k : k + 20], y[k : k + 20]) for k in range(0, targets, 20)])
    ends = []
    for row in rows:
        models = fit_many(known, held.take([*range(fixed), row]), np.arange(fixed + 1)[None], [Seed(0)])
        ends.append(run.flat({name: w[0] for name, w in models.weights().items()}))
    return torch.stack(ends)


def row(args, case: str, seed: Seed):
    held = records(args.pixels, args.data, seed)
    known = recipe(args, seed.child("start"))
    run = Unrolled(known, held.take(range(args.fixed)), device=args.device)
    ends = released(case, known, run, held, args.targets)
    if case == "unknown start":
        run = Unrolled(recipe(args, seed.child("another start")), held.take(range(args.fixed)), device=args.device)
    began, used = time.perf_counter(), time.process_time()
    found = inverted(run, ends, (run.x, run.y), seed=seed, search=Inversion(starts=args.starts, kept=args.kept))
    told = held.take(range(args.fixed, args.fixed + args.targets))
    return measured(args, case, found, told, run) | {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - used,
    }


def measured(args, case, found, told, run):
    x = torch.as_tensor(told.x).flatten(1).double()
    apart = (found.x.cpu().flatten(1) - x).square().mean(1).numpy()
    nearest = torch.cdist(x, run.x.cpu().flatten(1)).square().min(1).values.numpy() / x.shape[1]
    n, ordered = len(apart), np.sort(apart)
    below = max(1, int(binom.ppf(0.025, n, 0.5)))
    share = {}
    for name, right in (("below 1e-4", apart < 1e-4), ("beats nearest", apart < nearest)):
        share[name] = float(right.mean())
        share[f"{name}, low"], share[f"{name}, high"] = clopper_pearson(int(right.sum()), n, 0.95)
    return {
        "case": case, "activation": args.activation, "pixels": args.pixels, "fixed": args.fixed, "width": args.width,
        "epochs": args.epochs, "starts": args.starts, "kept": args.kept, "n": n,
        "median mse": float(np.median(apart)), "low": float(ordered[below - 1]), "high": float(ordered[n - below]),
        "mean mse": float(apart.mean()), "nearest mse": float(nearest.mean()), **share,
        "label right": float((found.y.cpu().numpy() == told.y).mean()),
        "median certificate": float(found.residuals.median()),
    }  # fmt: skip


def main() -> None:
    args = asked(
        __doc__, data=None, targets=100, activation="elu", pixels=64, fixed=500, width=10, epochs=100, starts=6, kept=3,
        case="all",
    )  # fmt: skip
    cases = ("float64", "float32", "unknown start") if args.case == "all" else (args.case,)
    finish([row(args, case, Seed(0)) for case in cases], benchmark="inversion", args=args)


if __name__ == "__main__":
    main()
