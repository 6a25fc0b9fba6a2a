"""How surely, how exactly and how fast shared gradients are inverted, beside what the papers print.

    python benchmarks/gradient_leakage.py lenet --seeds 100 --data DATA --keep done.db        # resumable, hours in all
    python benchmarks/gradient_leakage.py batches --seeds 20 --device cuda --data DATA --keep done.db
    python benchmarks/gradient_leakage.py spear --batch 16                                    # and 20; cuda beyond
    python benchmarks/gradient_leakage.py dager
    python benchmarks/gradient_leakage.py noise                                               # the largest that is borne

What is in the file given by --keep is not computed again. Seconds are of the processor, in one thread, so that other work
on the machine does not count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rows import finish

from engram.access import Gradients, Lab, Unknown
from engram.access.handle import Knowledge
from engram.attacks import attack
from engram.attacks.deep_leakage import DeepLeakage
from engram.chunks.local import Local, Memory
from engram.data import dataset, digits, from_npz
from engram.data.dataset import Dataset
from engram.data.fingerprints import fingerprint
from engram.defences import defence
from engram.measure.rates import clopper_pearson
from engram.measure.recovery import error, matched, of_text
from engram.models import GPT, MLP, LeNet
from engram.seed import Seed
from engram.store import Store
from engram.train import Recipe, shared
from engram.train.loop import started
from engram.types import Piece

Row = dict[str, object]
NORMAL = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def pictures(data: Path | None) -> Dataset:
    """CIFAR-10's test pictures where they are at hand, else the digits, enlarged to 32 x 32 in three channels."""
    if data and (data / "cifar10_20k_5k.npz").is_file():
        return from_npz(data / "cifar10_20k_5k.npz", x="x_test", y="y_test", images=True)
    held = digits()
    return dataset(np.kron(held.x, np.ones((1, 3, 4, 4))), held.y, classes=held.classes, name="digits, enlarged")


def seen(recipe: Recipe, records: Dataset, seed: Seed, device: str, dtype: torch.dtype = torch.float64) -> Gradients:
    model = started(recipe, seed).to(device)
    return Gradients(
        model, recipe.loss, shared(recipe, model, records, seed=seed, dtype=dtype), shape=records.x.shape[1:],
        classes=len(records.classes), knowledge=Knowledge(recipe), lab=Lab(seed, Memory(), device),
    )  # fmt: skip


def apart(said, records: Dataset):
    """Mean squared errors under the best matching, [record]."""
    guesses = np.asarray(said.guesses)
    pairs = matched(guesses, records.x)
    return np.where(pairs < 0, np.inf, error(guesses[np.maximum(pairs, 0)], records.x))


def chosen(records: Dataset, count: int, seed: Seed) -> Dataset:
    return records.take(seed.child("batch").numpy().choice(len(records), count, replace=False))


def lenet(args, chunks) -> list[Row]:
    """LeNet of the paper, one record: label, error and time of each seed."""
    records, rows = pictures(args.data), []
    for name in ("recursive", "deep-leakage"):
        if args.attack in ("", name):
            found = inverted(args, chunks, "lenet", name, {}, Recipe(LeNet()), records, 1)
            good = [int(one["label"]) == 1 and float(one["worst"]) < 1e-6 for one in found]
            rows.append(
                {"attack": name, **share("label right, mse < 1e-6", good), "published mse": 0.0069, **told(found)}
            )
    return rows


def batches(args, chunks) -> list[Row]:
    """Batches of 2, 4 and 8. The paper's network has 12 channels, and its gradient fewer numbers than 4 colour pictures."""
    colour = pictures(args.data)
    grey, small = replace(colour, x=colour.x.mean(1, keepdims=True), name=f"{colour.name}, grey"), digits()
    cases = {
        "digits": (LeNet(channels=1, size=8), small),
        "grey": (LeNet(channels=1), grey),
        "colour": (LeNet(), colour),
    }
    rows = []
    for kind, (build, records) in cases.items():
        for size in (2, 4, 8) if args.kind in ("", kind) else ():
            found = inverted(args, chunks, f"batches {kind}", "deep-leakage", {}, Recipe(build), records, size)
            good = [float(one["worst"]) < 1e-3 for one in found]
            rows.append({"pictures": records.name, "side": records.x.shape[-1], "batch": size,
                         **share("all mse < 1e-3", good),
                         **told(found), "note": refusal(build, records, size)})  # fmt: skip
    return rows


def inverted(args, chunks, case, name, knobs, recipe, records, size) -> list[Mapping[str, np.ndarray]]:
    """For each seed another network and batch."""
    print_of = fingerprint(case, name, knobs, records.name, records.x[:1], size, args.single)
    pieces = [Piece(f"gradient-leakage/{print_of}/{k}", {"seed": k}) for k in range(args.seeds)]

    def work(piece):
        k, seed = piece.part["seed"], Seed(piece.part["seed"])
        batch = chosen(records, size, seed)
        handle = seen(recipe, batch, seed, args.device, torch.float32 if args.single else torch.float64)
        began = time.process_time()
        try:
            said = attack(name, knobs)(handle, seed=seed)
        except Unknown:
            return {
                "worst": np.array(np.inf),
                "label": np.array(0),
                "seconds": np.array(0.0),
                "certificate": np.array(1.0),
            }
        took, right = time.process_time() - began, int(sorted(said.labels) == sorted(batch.y))
        worst, certificate = apart(said, batch).max(), said.certificates.max()
        print(f"{case}, {name}, seed {k}: mse {worst:.1e}, certificate {certificate:.1e}, {took:.1f} s", flush=True)
        return {"worst": worst, "label": np.array(right), "seconds": np.array(took), "certificate": certificate}

    return list(chunks.run(pieces, work))


def refusal(build, records: Dataset, size: int) -> str:
    """Why such a batch is not answered, if it is not."""
    try:
        handle = seen(Recipe(build), chosen(records, size, Seed(0)), Seed(0), "cpu")
        DeepLeakage(steps=1, restarts=1)(handle, seed=Seed(0))
    except Unknown as reason:
        return str(reason)
    return ""


def share(name: str, good: Sequence[bool]) -> Row:
    low, high = clopper_pearson(sum(good), len(good))
    return {name: f"{sum(good)} of {len(good)}", "low": low, "high": high}


def told(found: Sequence[Mapping[str, np.ndarray]]) -> Row:
    worst, took = ([float(one[key]) for one in found] for key in ("worst", "seconds"))
    return {
        "median mse": float(np.median(worst)),
        "worst mse": max(worst),
        "CPU s": float(np.median(took)),
        "most CPU s": max(took),
    }


def spear(args, chunks) -> list[Row]:
    """Width 200, 3,072 inputs: normal records, and pictures normalised as networks are given them."""
    rows, limit = [], {16: 60.0, 20: 600.0}.get(args.batch)
    for kind in ("normal", "pictures"):
        name = fingerprint("spear", kind, args.batch, args.draws, args.device, args.block)
        (one,) = chunks.run([Piece(f"gradient-leakage/{name}")], lambda _, kind=kind: speared(kind, args))
        rows.append({
            "records": kind, "batch": args.batch, "largest error": float(one["worst"]), "asked": 1e-10,
            "certificate": float(one["certificate"].max()), "CPU s": float(one["seconds"]), "asked s": limit,
        })  # fmt: skip
    return rows


def speared(kind: str, args) -> dict[str, np.ndarray]:
    seed = Seed(0).child(kind, args.batch)
    x = seed.numpy().normal(size=(args.batch, 3072))
    if kind == "pictures":
        held = np.moveaxis(chosen(pictures(args.data), args.batch, seed).x, 1, -1)
        x = ((held - NORMAL[0]) / NORMAL[1]).reshape(args.batch, -1)
    batch = dataset(x, seed.numpy().integers(0, 10, args.batch), classes=tuple("0123456789"))
    handle = seen(Recipe(MLP(inputs=3072, width=200)), batch, seed, args.device)
    began = time.process_time()
    try:
        said = attack("spear", {"draws": args.draws, "block": args.block})(handle, seed=seed)
    except Unknown as reason:
        print(reason)
        took = time.process_time() - began
        return {"worst": np.array(np.inf), "seconds": np.array(took), "certificate": np.ones(1)}
    took = time.process_time() - began
    worst = np.abs(np.asarray(said.guesses)[matched(said.guesses, batch.x)] - batch.x).max()
    return {"worst": np.array(worst), "seconds": np.array(took), "certificate": said.certificates}


def dager(args, chunks) -> list[Row]:
    """Two layers, 50,000 tokens, 16 sentences of 16."""

    def work(_):
        seed = Seed(0).child("dager")
        recipe = Recipe(GPT(vocabulary=50_000, length=16, classes=2, width=320))
        batch = dataset(seed.numpy().integers(0, 50_000, (16, 16)), seed.numpy().integers(0, 2, 16), classes=("a", "b"))
        handle = seen(recipe, batch, seed, args.device)
        began = time.process_time()
        said = attack("dager")(handle, seed=seed)
        took = time.process_time() - began
        right = of_text(said.guesses, batch.x)[0]
        return {"right": np.array([right.value, right.low, right.high]), "seconds": np.array(took)}

    (one,) = chunks.run([Piece(f"gradient-leakage/dager, with its interval/{args.device}")], work)
    right, low, high = (float(v) for v in one["right"])
    return [{
        "model": "GPT, 2 layers, width 320", "vocabulary": 50_000, "batch": "16 x 16", "tokens right": right, "low": low,
        "high": high, "CPU s": float(one["seconds"]), "asked s": 300.0,
    }]  # fmt: skip


def noise(args, chunks) -> list[Row]:
    """The largest Gaussian noise, relative to the gradient's own deviation, at which each attack recovers every record."""
    cases = {
        "recursive": (Recipe(LeNet(channels=1, size=8)), digits(), 1, {}),
        "linear-layer": (Recipe(MLP()), digits(), 1, {}),
        "deep-leakage": (Recipe(LeNet(channels=1, size=8)), digits(), 1, {"steps": 1000}),
        "spear": (Recipe(MLP(inputs=60, classes=10, width=80)), centred(60), 4, {"draws": 4096, "block": 512}),
        "dager": (Recipe(GPT(vocabulary=500, length=8, classes=10, width=64)), tokens(500, 8), 4, {}),
    }
    rows = []
    for name, (recipe, records, size, knobs) in cases.items():
        worst = 0.0
        for power in range(-14, 1):
            (one,) = chunks.run(
                [Piece(f"gradient-leakage/noise/{name}/{power}/{args.seeds}")],
                lambda _, p=power, c=(name, recipe, records, size, knobs): {"good": np.array(borne(*c, 10.0**p, args))},
            )
            if int(one["good"]) < args.seeds:
                break
            worst = 10.0**power
        rows.append({"attack": name, "batch": size, "largest relative noise borne": worst, "seeds": args.seeds})
    return rows


def borne(name, recipe, records, size, knobs, relative, args) -> int:
    """On how many seeds every record is recovered."""
    good = 0
    for k in range(args.seeds):
        seed = Seed(k)
        batch = chosen(records, size, seed)
        plain = seen(recipe, batch, seed, args.device)
        deviation = relative * float(torch.cat([t.flatten() for t in plain.update.tensors]).std())
        guarded = defence("gaussian-sharing", {"deviation": deviation})(recipe)
        try:
            said = attack(name, knobs)(seen(guarded, batch, seed, args.device), seed=seed)
        except Unknown:
            continue
        right = (
            of_text(said.guesses, batch.x)[1].value == 1 if said.kind == "text" else (apart(said, batch) < 1e-3).all()
        )
        good += int(right)
    return good


def centred(inputs: int) -> Dataset:
    stream = Seed(0).child("centred").numpy()
    return dataset(stream.normal(size=(200, inputs)), stream.integers(0, 10, 200), classes=tuple("0123456789"))


def tokens(vocabulary: int, length: int) -> Dataset:
    stream = Seed(0).child("tokens").numpy()
    x = stream.integers(0, vocabulary, (200, length))
    return dataset(x, stream.integers(0, 10, 200), classes=tuple("0123456789"))


QUESTIONS = {f.__name__: f for f in (lenet, batches, spear, dager, noise)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--draws", type=int, default=2**18)
    parser.add_argument("--block", type=int, default=2**10)
    parser.add_argument("--attack", default="", help="of lenet: recursive or deep-leakage; default both")
    parser.add_argument("--kind", default="", help="of batches: digits, grey or colour; default all")
    parser.add_argument("--single", action="store_true", help="of lenet: the gradient in single precision")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--keep", type=Path, help="a store of what is done")
    parser.add_argument("--rows", type=Path, help="append the rows to this file of JSON lines")
    args = parser.parse_args()
    if args.keep:
        with Store(args.keep) as store:
            rows = QUESTIONS[args.question](args, Local(store))
    else:
        rows = QUESTIONS[args.question](args, Memory())
    finish(
        rows, benchmark=" ".join(filter(None, ("gradient leakage", args.question, args.attack, args.kind))), args=args
    )


if __name__ == "__main__":
    main()
