"""The record that a model was trained on besides known ones, by solving the known training run for it.

Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022 (the threat model of section II: the
algorithm, the start and all training records but one are known; unknown is that one).
Differs from the paper: no shadow models, and no network that learns from them. The run is a function A(z) of the missing
record, so

    minimise |A(z) - released|^2 over records z and labels.                                                          (1)

A(z) is replaced by its linear response around the run with the mean record in the missing one's place, which costs next to
nothing a guess (`engram.train.response`). Every known record is tried in the gap, and the search starts from those whose
weights would be nearest, with several labels. What the response finds is then made exact: Gauss-Newton on (1) with the slopes
of the response, which secants correct. The certificate is |A(z) - released| / |A(mean record) - released|: 0 but for rounding
where all is explained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engram import check
from engram.access import Informed, Unknown
from engram.minimise import least_squares
from engram.reconstruction import Study, learned
from engram.seed import Seed
from engram.train.response import Response
from engram.train.unrolled import Unrolled
from engram.types import Recovered, Track, quiet

AT_ONCE = 48  # guesses whose slopes are held together
ASKED = 100  # records whose response is computed together
OTHERS = 2  # starts with another label than the nearest records have
SOLVED = 1e-6  # of the trace: no further start is tried
Records = tuple[Tensor, Tensor]  # x[record, ...] and labels[record]


@dataclass(frozen=True)
class Inversion:
    """Every training record but one is known; that one is solved for by differentiating through the training run.

    `starts` guesses a target are improved on the response; the best of them, one after the other and at most `kept`, on the
    exact run, until one explains the weights. `smooth` is the width over which kinks are rounded in the response; 0: not.
    With `shadows`, what a reconstructor says that learned from so many shadow models is one more start.
    """

    asks: ClassVar = Informed
    question: ClassVar[str] = "records"
    paper: ClassVar[str] = "Balle, Cherubin, Hayes 2022"
    starts: int = 6
    kept: int = 3
    settle: int = 12  # steps on the response
    steps: int = 40  # steps on the exact run
    renew: int = 12  # of these between two looks at the response's slopes
    looks: int = 0  # combinations of the weights that are followed; 0: twice the numbers of a record
    smooth: float = 0.02
    enough: float = 1e-13  # of the trace: there is nothing left to explain
    shadows: int = 0

    def __post_init__(self) -> None:
        for name in ("starts", "kept", "settle", "steps", "renew"):
            check.whole(name, getattr(self, name), 1)
        for name in ("looks", "shadows"):
            check.whole(name, getattr(self, name), 0)
        check.at_least("smooth", self.smooth, 0.0)

    def __call__(self, target: Informed, *, seed: Seed, track: Track = quiet) -> Recovered:
        run = unrolled(target)
        released = torch.as_tensor(target.weights)
        found = inverted(
            run, released, held(target), seed=seed, search=self, guesses=self._learned(target, seed, track), track=track
        )
        left = found.residuals.cpu().numpy()
        started = f", and a reconstructor of {self.shadows} shadows" if self.shadows else ""
        return Recovered(
            "record", found.x.cpu().numpy(), -left, left, f"{self.starts} starts{started}", found.y.cpu().numpy()
        )

    def _learned(self, target: Informed, seed: Seed, track: Track) -> Tensor | None:
        if not self.shadows:
            return None
        shadow = target.shadows(self.shadows, track=track)
        answer = learned(
            shadow.weights,
            shadow.records.x,
            Study(500),
            seed=seed.child("reconstructor"),
            device=target.device,
            track=track,
        )
        return torch.as_tensor(np.asarray(answer(target.weights)))


def unrolled(target: Informed) -> Unrolled:
    try:
        return Unrolled(target.recipe, target.fixed, device=target.device)
    except ValueError as error:
        raise Unknown(f"the training run cannot be repeated step by step: {error}") from None


def held(target: Informed) -> Records:
    """Every record that this adversary has."""
    sets = [target.fixed] if target.knowledge.others is None else [target.fixed, target.knowledge.others]
    x, y = np.concatenate([each.x for each in sets]), np.concatenate([each.y for each in sets])
    return torch.as_tensor(x), torch.as_tensor(y)


@dataclass(frozen=True, eq=False)
class Inverted:
    """The best guess for each released model."""

    x: Tensor  # [target, ...]
    y: Tensor  # [target]
    residuals: Tensor  # [target] share of the record's trace in the weights that is left unexplained
    evaluations: int  # rounds in which guesses of a block were trained together


def inverted(
    run: Unrolled,
    released: Tensor,  # [target, weight]
    public: Records,
    *,
    seed: Seed,
    search: Inversion | None = None,
    guesses: Tensor | None = None,  # [target, ...] such as a reconstructor's
    track: Track = quiet,
) -> Inverted:
    """The records, and their labels, that made these weights of the known run. `public` are records of the same kind."""
    solver = Solver.of(run, public, search or Inversion(), seed)
    size = max(1, AT_ONCE // solver.search.starts)
    found = []
    for at in track(range(0, len(released), size), "inverting the training run"):
        own = None if guesses is None else guesses[at : at + size].to(run.x)
        found.append(solver(released[at : at + size].to(run.start), own))
    return Inverted(
        torch.cat([part.x for part in found]),
        torch.cat([part.y for part in found]),
        torch.cat([part.residuals for part in found]),
        sum(part.evaluations for part in found),
    )


@dataclass(frozen=True, eq=False)
class Solver:
    """What is computed once for a fixed set, and then solves any number of released models."""

    response: Response
    search: Inversion
    known: Records  # records to start from
    answers: Tensor  # [known, look] what the response expects of each
    empty: Tensor  # [look] the weights with the mean record in the missing one's place

    @classmethod
    def of(cls, run: Unrolled, public: Records, search: Inversion, seed: Seed) -> Solver:
        x, y = public[0].to(run.x), public[1].to(run.device)
        labels = torch.unique(y)
        mean, means = x.mean(0, keepdim=True), [x[y == label].mean(0, keepdim=True) for label in labels]
        x, y = torch.cat([x, *means]), torch.cat([y, labels])
        unsure = torch.full((1, run.classes), 1 / run.classes).to(x)
        response = Response.around(
            run,
            mean,
            unsure,
            looks=search.looks or 2 * mean.numel(),
            seed=seed.child("looks"),
            smooth=search.smooth or None,
        )
        parts = zip(torch.split(x, ASKED), torch.split(y, ASKED), strict=True)
        answers = torch.cat([response(*part) for part in parts])
        return cls(response, search, (x, y), answers, response(mean, unsure)[0])

    def __call__(self, released: Tensor, guesses: Tensor | None = None) -> Inverted:
        """[target, weight]"""
        told = self.response.seen(released)  # [target, look]
        trace = (told - self.empty).norm(dim=1)
        x, y = self.started(told, guesses)  # [target, start, ...]
        x, left = self.settled(x, y, told)
        order = left.argsort(1)
        best = Inverted(x[:, 0].clone(), y[:, 0].clone(), torch.full_like(trace, torch.inf), 0)
        for rank in range(min(self.search.kept, x.shape[1])):
            rows = (best.residuals > SOLVED).nonzero()[:, 0]
            if not len(rows):
                break
            pick = order[rows, rank]
            best = self.exact(best, x[rows, pick], y[rows, pick], told, trace, rows)
        return best

    def started(self, told: Tensor, guesses: Tensor | None) -> Records:
        """The known records whose weights would be nearest, some of them of other labels, and the guess if there is one."""
        x, y = self.known
        order = torch.cdist(told, self.answers).argsort(1)  # [target, known]
        near = torch.stack([self._nearest(own, y) for own in order])  # [target, start]
        if guesses is None:
            return x[near], y[near]
        return torch.cat([guesses[:, None], x[near]], 1), torch.cat(
            [self._labelled(guesses, told)[:, None], y[near]], 1
        )

    def _nearest(self, order: Tensor, y: Tensor) -> Tensor:
        first = torch.stack([(y[order] == c).nonzero()[0, 0] for c in torch.unique(y)]).sort().values  # of each label
        plain = max(1, self.search.starts - OTHERS)
        others = first[first >= plain][: self.search.starts - plain]
        return order[torch.cat([torch.arange(self.search.starts - len(others), device=order.device), others])]

    def _labelled(self, guesses: Tensor, told: Tensor) -> Tensor:
        """The label under which the response to each guess is nearest to what was told."""
        labels = torch.arange(self.response.run.classes, device=told.device)
        off = [(self.response(guesses, label.expand(len(guesses))) - told).norm(dim=1) for label in labels]
        nearest: Tensor = labels[torch.stack(off).argmin(0)]
        return nearest

    def settled(self, x: Tensor, y: Tensor, told: Tensor) -> tuple[Tensor, Tensor]:
        """The starts after some steps on the response, and how much each leaves unexplained, [target, start]."""
        shape, labels = x.shape, y.flatten()
        wanted = told.repeat_interleave(shape[1], 0)

        def residual(z: Tensor, rows: Tensor) -> Tensor:
            return self.response(z.view(-1, *shape[2:]), labels[rows]) - wanted[rows]

        def slopes(z: Tensor, rows: Tensor) -> Tensor:
            return self.response.slopes(z.view(-1, *shape[2:]), labels[rows])

        found = least_squares(residual, slopes, x.flatten(0, 1).flatten(1), steps=range(self.search.settle))
        return found.z.view(shape), found.costs.view(shape[:2])

    def exact(self, best: Inverted, x: Tensor, y: Tensor, told: Tensor, trace: Tensor, rows: Tensor) -> Inverted:
        """These guesses on the exact run; where one explains more than the best so far, it is the best."""
        shape, told, trace = x.shape, told[rows], trace[rows]

        def residual(z: Tensor, some: Tensor) -> Tensor:
            with torch.no_grad():
                return self.response.seen(self.response.run(z.view(-1, *shape[1:]), y[some])) - told[some]

        def slopes(z: Tensor, some: Tensor) -> Tensor:
            return self.response.slopes(z.view(-1, *shape[1:]), y[some])

        knobs = self.search
        found = least_squares(
            residual, slopes, x.flatten(1), steps=range(knobs.steps), renew=knobs.renew, damping=1e-3,
            enough=(knobs.enough * trace).square(),
        )  # fmt: skip
        left = found.costs.sqrt() / trace
        better = left < best.residuals[rows]
        won = rows[better]
        best.x[won], best.y[won], best.residuals[won] = found.z[better].view(-1, *shape[1:]), y[better], left[better]
        return replace(best, evaluations=best.evaluations + found.evaluations)
