"""A network that learns to tell a record from the weights of the model that was trained on it.

Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022. Section IV-B: shadow models and the
one record of each are its training set; its input are standardised weights, its loss is MAE + MSE.
Differs from the paper: weights that are the same in all shadows are left out, and inputs are cut at a few deviations, or a
unit that hardly any record switches on would drown the rest; no perceptual or discriminator loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from engram.data.dataset import Dataset
from engram.models.reconstructors import RecoNN, TransposedCNN, answered
from engram.seed import Seed
from engram.train import Adam, Batches, Given, Recipe, RMSProp, fit
from engram.train.losses import Reconstruction
from engram.train.optimisers import Cosine
from engram.train.stack import Device
from engram.types import Array, Floats, Track, quiet

FAR = 5.0  # deviations; beyond, a unit that hardly any record switches on drowns the rest


@dataclass(frozen=True)
class Study:
    """How a reconstructor learns. One whose weights are `start` is fine-tuned."""

    width: int = 1000
    depth: int = 2
    epochs: int = 100
    rate: float = 1e-3
    batch: int = 128
    kind: str = "mlp"  # or "cnn", with Adam and weight decay, as for CIFAR-10
    start: Mapping[str, Tensor] | None = None
    far: float = FAR  # no input is shown further out than this

    def recipe(self, inputs: int, shape: tuple[int, ...], records: Tensor) -> Recipe:
        mlp = self.kind == "mlp"
        build = RecoNN(inputs, shape, self.width, self.depth) if mlp else TransposedCNN(inputs, shape, self.width)
        falling = Cosine()
        optimiser = RMSProp(self.rate, schedule=falling) if mlp else Adam(self.rate, weight_decay=1e-4)
        recipe = Recipe(
            build, self.epochs, optimiser=optimiser, sampler=Batches(self.batch), loss=Reconstruction(records)
        )  # fmt: skip
        return recipe if self.start is None else Recipe(**{**vars(recipe), "start": Given(self.start)})


@dataclass(frozen=True, eq=False)
class Reconstructing:
    """A reconstructor that has learned: weights [model, parameter] to records [model, ...]."""

    module: nn.Module
    mean: Floats  # [parameter]
    scale: Floats  # [parameter]; infinite where all shadows agree
    kept: Array  # [input] which parameters it is shown
    shape: tuple[int, ...]
    device: Device
    far: float = FAR

    def __call__(self, weights: Floats) -> Floats:
        rows = torch.as_tensor(self.standard(weights), device=self.device)
        return answered(self.module, rows, self.shape).double().cpu().numpy()

    def standard(self, weights: Floats) -> Array:
        """[model, input], each input with mean 0 and deviation 1 over the shadows, and none far out"""
        rows = (weights[:, self.kept] - self.mean[self.kept]) / self.scale[self.kept]
        return np.clip(rows, -self.far, self.far).astype(np.float32)


def learned(
    weights: Floats,  # [shadow, parameter]
    records: Array,  # [shadow, ...]
    study: Study,
    *,
    seed: Seed,
    device: Device = "cpu",
    shown: Array | None = None,  # [parameter] true for those that it may see
    like: Reconstructing
    | None = None,  # one to go on from: its inputs and their scale are kept, about a mean of these shadows
    track: Track = quiet,
) -> Reconstructing:
    """A reconstructor of these shadows."""
    mean, scale = weights.mean(0, dtype=np.float64), weights.std(0, dtype=np.float64)
    told = scale > 1e-7 * np.abs(mean).clip(1e-3) if shown is None else shown & (scale > 1e-7 * np.abs(mean).clip(1e-3))
    made = Reconstructing(nn.Identity(), mean, scale, np.flatnonzero(told), records.shape[1:], device, study.far)
    if like is not None:
        made = replace(like, mean=mean, shape=records.shape[1:], device=device)
    rows = made.standard(weights)
    names = tuple(map(str, range(len(rows))))
    image = torch.as_tensor(records.astype(np.float32), device=device)
    recipe = study.recipe(rows.shape[1], records.shape[1:], image)
    module = fit(recipe, Dataset(rows, np.arange(len(rows)), names), seed=seed, device=device, track=track)
    return replace(made, module=module)
