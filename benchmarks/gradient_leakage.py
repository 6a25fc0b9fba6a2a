"""How surely, how exactly and how fast shared gradients are inverted; ours, the papers' and a peer's, side by side.

    python benchmarks/gradient_leakage.py lenet --seeds 100 --data DATA --rows rows.db        # resumable
    python benchmarks/gradient_leakage.py batches --device cuda --data DATA --rows rows.db    # 2, 4, 8 records
    python benchmarks/gradient_leakage.py spear --batch 16                                    # and 20; cuda beyond
    python benchmarks/gradient_leakage.py dager
    python benchmarks/gradient_leakage.py noise                                               # largest that is borne
    python benchmarks/gradient_leakage.py breaching                                           # needs breaching 0.1.2

The last lines are a table: question, ours, paper or peer, ratio. Stored rows are not computed again.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path

import numpy as np
import torch

from engram.access import Gradients, Lab, Unknown
from engram.access.handle import Knowledge
from engram.attacks import attack
from engram.chunks.local import Local, Memory
from engram.data import dataset, digits, from_npz
from engram.data.dataset import Dataset
from engram.data.fingerprints import fingerprint
from engram.defences import defence
from engram.matching import Matcher, counted_labels, squared
from engram.measure.rates import clopper_pearson
from engram.measure.recovery import error, matched, of_text, psnr
from engram.minimise import lbfgs
from engram.models import GPT, MLP, LeNet
from engram.seed import Seed
from engram.store import Store
from engram.train import Recipe, shared
from engram.train.loop import started
from engram.types import Piece

Row = tuple[str, str, str, str]
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
    for name, knobs in (("recursive", {}), ("deep-leakage", {"steps": args.steps, "restarts": 1})):
        if args.attack not in ("", name):
            continue
        told = fingerprint("lenet", name, knobs, records.name, records.x[:1], args.single)
        pieces = [Piece(f"gradient-leakage/{told}/{k}", {"seed": k}) for k in range(args.seeds)]

        def work(piece, name=name, knobs=knobs):
            seed = Seed(piece.part["seed"])
            batch = chosen(records, 1, seed)
            handle = seen(Recipe(LeNet()), batch, seed, args.device, torch.float32 if args.single else torch.float64)
            began = time.perf_counter()
            said = attack(name, knobs)(handle, seed=seed)
            took, right = time.perf_counter() - began, int(said.labels[0] == batch.y[0])
            print(f"{name} seed {piece.part['seed']}: mse {apart(said, batch)[0]:.1e} in {took:.1f} s", flush=True)
            return {"mse": apart(said, batch), "label": np.array(right), "seconds": np.array(took)}

        found = list(chunks.run(pieces, work))
        good = sum(int(one["label"]) == 1 and float(one["mse"][0]) < 1e-6 for one in found)
        low, high = clopper_pearson(good, len(found))
        took = [float(one["seconds"]) for one in found]
        median = float(np.median([one["mse"][0] for one in found]))
        rows += [
            (
                f"LeNet 32x32, {name}: label right and mse < 1e-6",
                f"{good} of {len(found)} [{low:.3f}, {high:.3f}]",
                "-",
                "-",
            ),
            (f"LeNet 32x32, {name}: median mse", f"{median:.1e}", "0.0069 (CIFAR-100)", f"{median / 0.0069:.1e}"),
            (f"LeNet 32x32, {name}: seconds, median and most", f"{np.median(took):.1f}, {max(took):.1f}", "-", "-"),
        ]
    return rows


def batches(args, chunks) -> list[Row]:
    """Batches of 2, 4 and 8: all seeds in one computation, each with a model of its own."""
    records, rows = pictures(args.data), []
    for size in (2, 4, 8):
        told = fingerprint("batches", size, args.steps, args.seeds, args.restarts, records.name, records.x[:1])

        def work(_, size=size):
            began = time.perf_counter()
            worst = together(records, size, args)
            return {"worst": worst, "seconds": np.array(time.perf_counter() - began)}

        (found,) = chunks.run([Piece(f"gradient-leakage/{told}")], work)
        good = int((found["worst"] < 1e-3).sum())
        low, high = clopper_pearson(good, args.seeds)
        took = float(found["seconds"])
        rows.append(
            (
                f"LeNet 32x32, batch {size}: every mse < 1e-3",
                f"{good} of {args.seeds} [{low:.3f}, {high:.3f}]",
                "-",
                f"{took:.0f} s",
            )
        )
    return rows


def together(records: Dataset, size: int, args):
    """The worst error of each seed's batch, [seed]; restarts are chosen by residual."""
    recipe = Recipe(LeNet())
    problems = [(s, r) for s in range(args.seeds) for r in range(args.restarts)]
    handles = [seen(recipe, chosen(records, size, Seed(s)), Seed(s), args.device) for s in range(args.seeds)]
    parts = [h.exact() for h in handles]
    weights = {n: torch.stack([parts[s][1][n] for s, _ in problems]) for n in parts[0][1]}
    told = [torch.stack([parts[s][2][k] for s, _ in problems]) for k in range(len(parts[0][2]))]
    y = [torch.repeat_interleave(counted_labels(h.update, h.model, h.shape, size)) for h in handles]
    y = torch.stack([y[s] for s, _ in problems]).to(args.device)
    scale = sum(t.square().flatten(1).sum(1) for t in told)
    matcher = Matcher(parts[0][0], recipe.loss, weights, stacked=True)
    start = np.stack([Seed(s).child("start", r).numpy().normal(size=size * 3072) for s, r in problems])
    shape = (len(problems), size, 3, 32, 32)
    found = lbfgs(
        lambda z: squared(matcher(z.view(shape), y), told) / scale,
        torch.as_tensor(start).to(args.device), steps=range(args.steps), enough=1e-26,
    )  # fmt: skip
    costs = found.costs.view(args.seeds, args.restarts)
    best = (
        found.z.view(args.seeds, args.restarts, size, 3, 32, 32)[torch.arange(args.seeds), costs.argmin(1)]
        .cpu()
        .numpy()
    )
    worst = []
    for s in range(args.seeds):
        truth = chosen(records, size, Seed(s)).x
        worst.append(error(best[s][matched(best[s], truth)], truth).max())
    return np.array(worst)


def spear(args, chunks) -> list[Row]:
    """Width 200, 3,072 inputs: normal records, and pictures normalised as networks are given them."""
    rows, limit = [], {16: 60, 20: 600}.get(args.batch)
    for kind in ("normal", "pictures"):
        told = fingerprint("spear", kind, args.batch, args.draws, args.device, args.block)

        def work(_, kind=kind):
            seed = Seed(0).child(kind, args.batch)
            x = seed.numpy().normal(size=(args.batch, 3072))
            if kind == "pictures":
                held = np.moveaxis(chosen(pictures(args.data), args.batch, seed).x, 1, -1)
                x = ((held - NORMAL[0]) / NORMAL[1]).reshape(args.batch, -1)
            batch = dataset(x, seed.numpy().integers(0, 10, args.batch), classes=tuple("0123456789"))
            handle = seen(Recipe(MLP(inputs=3072, width=200)), batch, seed, args.device)
            began = time.perf_counter()
            try:
                said = attack("spear", {"draws": args.draws, "block": args.block})(handle, seed=seed)
            except Unknown as reason:
                print(reason)
                return {
                    "worst": np.array(np.inf),
                    "seconds": np.array(time.perf_counter() - began),
                    "certificate": np.ones(1),
                }
            took = time.perf_counter() - began
            worst = np.abs(np.asarray(said.guesses)[matched(said.guesses, batch.x)] - batch.x).max()
            return {"worst": np.array(worst), "seconds": np.array(took), "certificate": said.certificates}

        (one,) = chunks.run([Piece(f"gradient-leakage/{told}")], work)
        took, name = float(one["seconds"]), f"SPEAR width 200, batch {args.batch}, {kind}"
        certificate = float(one["certificate"].max())
        rows.append(
            (f"{name}: largest error", f"{float(one['worst']):.1e}", "1e-10 asked", f"certificate {certificate:.2g}")
        )
        rows.append(
            (f"{name}: seconds", f"{took:.1f}", f"{limit or '-'} asked", f"{took / limit:.2f}" if limit else "-")
        )
    return rows


def dager(args, chunks) -> list[Row]:
    """Two layers, 50,000 tokens, 16 sentences of 16."""

    def work(_):
        seed = Seed(0).child("dager")
        recipe = Recipe(GPT(vocabulary=50_000, length=16, classes=2, width=320))
        batch = dataset(seed.numpy().integers(0, 50_000, (16, 16)), seed.numpy().integers(0, 2, 16), classes=("a", "b"))
        handle = seen(recipe, batch, seed, args.device)
        began = time.perf_counter()
        said = attack("dager")(handle, seed=seed)
        took = time.perf_counter() - began
        return {"right": np.array(of_text(said.guesses, batch.x)[0].value), "seconds": np.array(took)}

    (one,) = chunks.run([Piece(f"gradient-leakage/dager/{args.device}")], work)
    took = float(one["seconds"])
    return [
        ("DAGER 50,000 tokens, 16 x 16: tokens right", f"{float(one['right']):.4f}", "1 asked", "-"),
        ("DAGER 50,000 tokens, 16 x 16: seconds", f"{took:.1f}", "300 asked", f"{took / 300:.2f}"),
    ]


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
        rows.append(
            (f"largest relative noise borne on {args.seeds} of {args.seeds} seeds, {name}", f"{worst:.0e}", "-", "-")
        )
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


def breaching(args, chunks) -> list[Row]:  # noqa: ARG001  timings are not stored
    """The same picture, network, cost and number of steps in breaching 0.1.2: seconds a step and PSNR."""
    seed, records = Seed(0), pictures(args.data)
    batch, recipe = chosen(records, 1, seed), Recipe(LeNet())
    handle = seen(recipe, batch, seed, "cpu", torch.float32)
    began = time.perf_counter()
    said = attack("inverting-gradients", {"steps": args.steps, "restarts": 1})(handle, seed=seed)
    ours = (time.perf_counter() - began) / args.steps, float(psnr(apart(said, batch))[0])
    began = time.perf_counter()
    guess = by_breaching(handle, batch, args.steps)
    peer = (time.perf_counter() - began) / args.steps, float(psnr(error(guess, batch.x))[0])
    name, decibels = f"inverting gradients, {args.steps} steps", f"{ours[1] - peer[1]:+.1f} dB"
    return [
        (f"{name}: seconds a step", f"{ours[0]:.4f}", f"{peer[0]:.4f}", f"{ours[0] / peer[0]:.2f}"),
        (f"{name}: PSNR", f"{ours[1]:.1f}", f"{peer[1]:.1f}", decibels),
    ]


def by_breaching(handle: Gradients, batch: Dataset, steps: int):
    """Its torchvision wants operators of another build: declared, never called."""
    library = torch.library.Library("torchvision", "DEF")
    names = "nms qnms roi_align roi_pool ps_roi_align ps_roi_pool deform_conv2d"
    backward = (
        " _roi_align_backward _roi_pool_backward _ps_roi_align_backward _ps_roi_pool_backward _deform_conv2d_backward"
    )
    for name in (names + backward).split():
        library.define(name + "(Tensor a) -> Tensor")
    import breaching as peer

    class About(dict):
        __getattr__ = dict.__getitem__

    about = About(
        modality="vision", task="classification", classes=10, shape=batch.x.shape[1:], mean=[0.0] * 3, std=[1.0] * 3
    )
    setup = {"device": torch.device("cpu"), "dtype": torch.float32}
    config = peer.get_attack_config("invertinggradients")
    config.optim.max_iterations = steps
    model, loss = handle.model, torch.nn.CrossEntropyLoss()
    attacker = peer.attacks.prepare_attack(model, loss, config, setup)
    payload = [{"parameters": [p.detach() for p in model.parameters()], "buffers": [], "metadata": about}]
    labels = torch.as_tensor(batch.y)
    meta = {"num_data_points": 1, "labels": labels, "local_hyperparams": None}
    told = [{"gradients": list(handle.update.tensors), "buffers": None, "metadata": meta}]
    told[0]["gradients"] = [t.float() for t in told[0]["gradients"]]
    found, _ = attacker.reconstruct(payload, told, {})
    return found["data"].detach().numpy()


QUESTIONS = {f.__name__: f for f in (lenet, batches, spear, dager, noise, breaching)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--draws", type=int, default=2**18)
    parser.add_argument("--block", type=int, default=2**10)
    parser.add_argument("--attack", default="", help="of lenet: recursive or deep-leakage; default both")
    parser.add_argument("--single", action="store_true", help="of lenet: the gradient in single precision")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=Path, help="a store that keeps what is done")
    args = parser.parse_args()
    if args.rows:
        with Store(args.rows) as store:
            rows = QUESTIONS[args.question](args, Local(store))
    else:
        rows = QUESTIONS[args.question](args, Memory())
    card = torch.cuda.get_device_name() if args.device.startswith("cuda") else f"{torch.get_num_threads()} threads"
    print(f"\n{platform.machine()}, {card}, torch {torch.__version__}")
    for row in [("question", "ours", "paper or peer", "ratio"), *rows]:
        print(" | ".join(row))


if __name__ == "__main__":
    main()
