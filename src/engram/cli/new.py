"""engram new: a commented template of a target file."""

from __future__ import annotations

import argparse
from pathlib import Path

from engram.cli.outcome import Outcome

TEMPLATE = '''"""A target: the model to audit, candidate records, and the truth about which of them it was trained on.

Run it with: engram audit {name} --report report.html
"""

import numpy as np
import torch

import engram
from engram.data import load
from engram.models import load_weights

# 1. The records: members and non-members, drawn from the same source. An .npz with arrays x and y, a CSV, a Parquet
#    file, a folder of images with one folder a class, or engram.dataset(x, y) from two arrays.
records = load("records.npz")
member = np.load("member.npy")  # [record] true where the model was trained on it

# 2. How it was trained. The adversary is taken to know this, and trains shadow models by it; defences change it. Without
#    a recipe only attacks that need no shadows are tried.
recipe = engram.Recipe(
    build=engram.models.MLP(inputs=records.x[0].size, classes=len(records.classes), width=512),
    epochs=30,
    optimiser=engram.train.Adam(rate=1e-3),
    sampler=engram.train.Batches(32),
)

# 3. The model: a module that returns logits. Weights are read without running code from the file: .safetensors, or what
#    torch.save wrote of a state dict.
model = recipe.build()
model.load_state_dict(load_weights("weights.safetensors"))

# 4. What the adversary may ask: engram.Probabilities, or engram.Labels where the model answers with a label only.
target = engram.Target(model, records, member, recipe, name="my model", access=engram.Probabilities)
'''


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="where to write it, such as target.py")


def run(args: argparse.Namespace) -> Outcome:
    if args.file.suffix != ".py":
        raise ValueError(f"a target file is a Python file, got {args.file}; name one such as target.py")
    if args.file.exists():
        raise ValueError(f"{args.file} is there already and was left as it is; name another file")
    try:
        args.file.write_text(TEMPLATE.format(name=args.file.name))
    except OSError as error:
        raise ValueError(
            f"{args.file} cannot be written ({error.strerror}); name a file in a folder that can"
        ) from None
    return Outcome({"new": str(args.file)}, f"wrote {args.file}; fill it in, then: engram audit {args.file}")
