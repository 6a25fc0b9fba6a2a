"""The one training loop. It plays a recipe on one model, or on many at once, and does not know which."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from engram.data.dataset import Dataset
from engram.seed import Seed
from engram.train.feed import Feed, Rows
from engram.train.recipe import Given, Patience, Recipe
from engram.train.sampling import FullBatch
from engram.train.stack import Device, Models, Single, Stack
from engram.train.steps import Batch, Plain, Training
from engram.types import Arrays, Ints, Track, quiet


def fit(
    recipe: Recipe,
    data: Dataset,
    *,
    seed: Seed,
    device: Device = "cpu",
    track: Track = quiet,
    release: bool = False,
) -> nn.Module:
    """A model trained on all of `data`, in evaluation mode.

    `recipe.after` is not part of the module: it is applied where the model answers (`engram.signals.released`).
    With `release` the noise of a private recipe comes from the operating system; else it is simulated from the seed, and
    the model carries no guarantee.
    """
    rows = np.arange(len(data))[None]
    models = fit_many(recipe, data, rows, [seed], stacked=False, device=device, track=track, release=release)
    assert isinstance(models, Single)
    return models.module.eval()


def fit_many(
    recipe: Recipe,
    data: Dataset,
    rows: Ints | Rows,  # [model, record] which records each model is given
    seeds: Sequence[Seed],  # [model]
    *,
    stacked: bool = True,
    device: Device = "cpu",
    track: Track = quiet,
    release: bool = False,
) -> Models:
    """One model for each line of `rows`, in evaluation mode; `stacked=False` takes exactly one."""
    rows = rows if isinstance(rows, Rows) else Rows(rows)
    if not rows.records:
        raise ValueError("a model needs at least one training record, got none")
    modules = (started(recipe, seed) for seed in seeds)
    models = Stack(modules, len(seeds), device) if stacked else Single(next(modules), device)
    with seeded(seeds[0].child("noise"), device):
        x, y = torch.as_tensor(data.x, device=device), torch.as_tensor(data.y, device=device)
        _play(recipe, models, Feed(x, y, rows if parts(recipe, models) else rows.whole()), seeds, track, release)
    models.train(False)
    return models


def _play(
    recipe: Recipe, models: Models, feed: Feed, seeds: Sequence[Seed], track: Track, release: bool = False
) -> None:
    streams = [seed.child("batches").numpy() for seed in seeds]
    optimiser = recipe.optimiser(models.flat.values)
    feed, watch = _watched(recipe, models, feed, seeds)
    feed, beside = feed.cut(recipe.step.beside, [seed.child("beside").numpy() for seed in seeds])
    held = beside.all() if beside.records else None
    take = recipe.step(Training(recipe.loss, models, optimiser, seeds, feed.records, release, held))
    models.train(True)
    for epoch in track(range(recipe.epochs), "training"):
        if schedule := recipe.optimiser.schedule:
            optimiser.param_groups[0]["lr"] = recipe.optimiser.rate * schedule(epoch / recipe.epochs)
        for positions in recipe.sampler(streams, feed.records):
            x, y, shared, present = feed(positions)
            if recipe.before and shared and models.count > 1:  # each model draws its own changes
                x, shared = x.expand(models.count, *x.shape), False
            for change in recipe.before:
                x = change(x)
            take(Batch(x, y.expand(models.count, -1), shared, epoch, present, feed.own))
        if watch and watch.enough(models, recipe):
            break
    if watch:
        watch.restore(models)


def parts(recipe: Recipe, models: Models) -> bool:
    """Whether records that all models share may be answered apart from each model's own."""
    mixing = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in models.template.modules())
    plain = isinstance(recipe.step, Plain) and isinstance(recipe.sampler, FullBatch)
    return plain and not (mixing or recipe.before or recipe.stop)


def _watched(recipe: Recipe, models: Models, feed: Feed, seeds: Sequence[Seed]) -> tuple[Feed, _Watch | None]:
    """What is left to train on, and who decides when it is enough."""
    if recipe.stop is None:
        return feed, None
    feed, held = feed.cut(recipe.stop.held_out, [seed.child("held out").numpy() for seed in seeds])
    return feed, _Watch(recipe.stop, held, models)


class _Watch:
    """Keeps the best weights of each model by its loss on held-out records. A stopped model's later steps are dropped."""

    def __init__(self, rule: Patience, held: Feed, models: Models) -> None:
        self.patience, self.held = rule.epochs, held
        self.best = torch.full((models.count,), torch.inf)
        self.bad = torch.zeros(models.count, dtype=torch.int64)
        self.kept = {name: w.clone() for name, w in models.weights().items()}

    def enough(self, models: Models, recipe: Recipe) -> bool:
        """True once no model has improved for longer than the patience."""
        loss = self._loss(models, recipe)
        better = (loss < self.best) & (self.bad <= self.patience)
        self.best = torch.where(better, loss, self.best)
        self.bad = torch.where(better, 0, self.bad + 1)
        for name, w in models.weights().items():
            mask = better.to(w.device).view(-1, *[1] * (w.ndim - 1))
            self.kept[name].copy_(torch.where(mask, w, self.kept[name]))
        return bool((self.bad > self.patience).all())

    def restore(self, models: Models) -> None:
        for name, w in models.weights().items():
            w.copy_(self.kept[name])

    def _loss(self, models: Models, recipe: Recipe) -> Tensor:
        models.train(False)
        x, y, shared = self.held.all()
        with torch.no_grad():
            loss = recipe.loss(models(x, shared=shared), y.expand(models.count, -1)).mean(1).cpu()
        models.train(True)
        return loss


def started(recipe: Recipe, seed: Seed) -> nn.Module:
    """The network before its first step; the global random state is left as it was."""
    with seeded(seed.child("start"), "cpu"):
        module = recipe.build()
    if isinstance(recipe.start, Given):
        module.load_state_dict(dict(recipe.start.weights), strict=not recipe.start.partly)
    return module


def rebuilt(recipe: Recipe, weights: Arrays, device: Device = "cpu") -> nn.Module:
    """The network of a recipe with these weights and buffers, in evaluation mode."""
    module = started(recipe, Seed(0)).to(device)
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with torch.no_grad():
        for name, value in weights.items():
            held[name].copy_(torch.as_tensor(np.array(value)))
    return module.eval()


@contextlib.contextmanager
def seeded(seed: Seed, device: Device) -> Iterator[None]:
    """Torch layers draw weights and dropout masks from the global streams: borrow them, give them back as they were."""
    device = torch.device(device)
    streams = [torch.default_generator]
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        streams.append(torch.cuda.default_generators[device.index or 0])
    before = [stream.get_state() for stream in streams]
    try:
        for stream in streams:
            stream.manual_seed(seed.number)
        yield
    finally:
        for stream, state in zip(streams, before, strict=True):
            stream.set_state(state)
