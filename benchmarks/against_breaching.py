"""The same picture, network, cost and number of steps here and in breaching 0.1.2: seconds a step, and PSNR.

    python benchmarks/against_breaching.py --steps 300 --data DATA      # needs: pip install breaching==0.1.2

Both arms run in turns in one process with one thread, and seconds are of the processor, so other work does not count.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from gradient_leakage import apart, chosen, pictures, seen
from rows import asked, finish

from engram.attacks import attack
from engram.measure.recovery import error, psnr
from engram.models import LeNet
from engram.seed import Seed
from engram.train import Recipe

OPERATORS = ["nms", "qnms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"]
SETUP = {"device": torch.device("cpu"), "dtype": torch.float32}


def main() -> None:
    args = asked(__doc__, data=None, steps=300, repeats=3)
    peer = loaded()
    rows = [row for k in range(args.repeats) for row in compared(k, peer, args)]
    finish(rows, benchmark="gradient leakage against breaching", args=args)


def compared(k: int, peer, args) -> list[dict[str, object]]:
    """Both arms on picture k."""
    seed = Seed(k)
    batch = chosen(pictures(args.data), 1, seed)
    handle = seen(Recipe(LeNet()), batch, seed, "cpu", torch.float32)
    began = time.process_time()
    said = attack("inverting-gradients", {"steps": args.steps, "restarts": 1})(handle, seed=seed)
    ours = time.process_time() - began, psnr(apart(said, batch))[0]
    began = time.process_time()
    guess = by_peer(peer, handle, batch, args.steps)
    theirs = time.process_time() - began, psnr(error(guess, batch.x))[0]
    case = f"inverting gradients, {args.steps} steps"
    rows = [
        row(k, case, "engram", *ours, ours[0] / args.steps),
        row(k, case, "breaching 0.1.2", *theirs, theirs[0] / args.steps),
    ]
    if k == 0:
        began = time.process_time()
        said = attack("deep-leakage")(handle, seed=seed)
        rows.append(
            row(k, "deep leakage, to its end", "engram", time.process_time() - began, psnr(apart(said, batch))[0], None)
        )
    return rows


def row(k: int, case: str, who: str, took: float, decibels: float, each: float | None) -> dict[str, object]:
    return {"picture": k, "attack": case, "who": who, "PSNR, dB": float(decibels), "CPU s": took, "CPU s a step": each}


def loaded():
    """Its torchvision wants operators of another build: declared, never called."""
    library = torch.library.Library("torchvision", "DEF")
    backward = [f"_{name}_backward" for name in OPERATORS[2:]]
    for name in (*OPERATORS, *backward):
        library.define(name + "(Tensor a) -> Tensor")
    import breaching

    breaching.operators = library  # lives as long as the module
    return breaching


class About(dict):
    __getattr__ = dict.__getitem__


def by_peer(peer, handle, batch, steps: int) -> np.ndarray:
    about = About(
        modality="vision", task="classification", classes=10, shape=batch.x.shape[1:], mean=[0.0] * 3, std=[1.0] * 3
    )
    config = peer.get_attack_config("invertinggradients")
    config.optim.max_iterations = steps
    attacker = peer.attacks.prepare_attack(handle.model, torch.nn.CrossEntropyLoss(), config, SETUP)
    payload = [{"parameters": [p.detach() for p in handle.model.parameters()], "buffers": [], "metadata": about}]
    meta = {"num_data_points": 1, "labels": torch.as_tensor(batch.y), "local_hyperparams": None}
    told = [{"gradients": [t.float() for t in handle.update.tensors], "buffers": None, "metadata": meta}]
    found, _ = attacker.reconstruct(payload, told, {})
    return found["data"].detach().numpy()


if __name__ == "__main__":
    main()
