"""The missing record from the released weights, by solving the known training run for it.

Balle, Cherubin, Hayes: Reconstructing Training Data with Informed Adversaries, 2022 (the threat model of section II: the
algorithm, the start and all training records but one are known; unknown is that one).
Differs from the paper: no shadow models and no reconstructor network. The run is a function A(z) of the missing record, so

    minimise |A(z) - released|^2 over records z and labels.                                                          (1)

A(z) is replaced by its linear response around the run with the mean record in the missing one's place, which costs next to
nothing a guess (`engram.train.response`); every known record is tried in the gap, and the search starts from those whose
weights would be nearest, from the means of the classes, from the first layer's leading singular vector, and from a guess if
there is one. What the response finds is then made exact: Gauss-Newton on (1) with the response's slopes, which secants
correct. The certificate is |A(z) - released| / |A(mean record) - released|: 0 but for rounding where all is explained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engram import check
from engram.minimise import least_squares
from engram.seed import Seed
from engram.train.response import Response
from engram.train.unrolled import Unrolled
from engram.types import Track, quiet

AT_ONCE = 48  # guesses whose slopes are held together
ASKED = 100  # records whose response is computed together
OTHERS = 2  # starts with another label than the nearest records have
SOLVED = 1e-6  # of the trace: no further start is tried
Records = tuple[Tensor, Tensor]  # x[record, ...] and labels[record]


@dataclass(frozen=True, eq=False)
class Inverted:
    """The best guess for each released model."""

    x: Tensor  # [target, ...]
    y: Tensor  # [target]
    residuals: Tensor  # [target] share of the record's trace in the weights that is left unexplained
    evaluations: int  # rounds in which guesses of a block were trained together


@dataclass(frozen=True)
class Search:
    """How hard to look.

    `starts` guesses a target are improved on the response; the best of them, one after the other and at most `kept`, on the
    exact run, until one explains the weights. `smooth` is the width over which kinks are rounded in the response; 0: not.
    """

    starts: int = 6
    kept: int = 3
    settle: int = 12  # steps on the response
    steps: int = 40  # steps on the exact run
    renew: int = 12  # of these between two looks at the response's slopes
    looks: int = 0  # combinations of the weights that are followed; 0: twice the numbers of a record
    smooth: float = 0.02
    enough: float = 1e-13  # of the trace: there is nothing left to explain

    def __post_init__(self) -> None:
        for name in ("starts", "kept", "settle", "steps", "renew"):
            check.whole(name, getattr(self, name), 1)
        check.at_least("smooth", self.smooth, 0.0)


def inverted(
    run: Unrolled,
    released: Tensor,  # [target, weight]
    public: Records,
    *,
    seed: Seed,
    search: Search | None = None,
    guesses: Records | None = None,  # one a target, such as a reconstructor's
    track: Track = quiet,
) -> Inverted:
    """The records, and their labels, that made these weights of the known run. `public` are records of the same kind."""
    solver = Solver.of(run, public, search or Search(), seed)
    size = max(1, AT_ONCE // solver.search.starts)
    found = []
    for at in track(range(0, len(released), size), "inverting the training run"):
        own = None if guesses is None else (guesses[0][at : at + size], guesses[1][at : at + size])
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
    search: Search
    known: Records  # records to start from
    answers: Tensor  # [known, look] what the response expects of each
    empty: Tensor  # [look] the weights with the mean record in the missing one's place

    @classmethod
    def of(cls, run: Unrolled, public: Records, search: Search, seed: Seed) -> Solver:
        x, y = public[0].to(run.x), public[1].to(run.device)
        classes = _classes(run, x)
        x, y = (
            torch.cat([x, *(x[y == c].mean(0, keepdim=True) for c in torch.unique(y))]),
            torch.cat([y, torch.unique(y)]),
        )
        mean, unsure = x.mean(0, keepdim=True), torch.full((1, classes), 1 / classes).to(x)
        response = Response.around(
            run,
            mean,
            unsure,
            looks=search.looks or 2 * mean.numel(),
            seed=seed.child("looks"),
            smooth=search.smooth or None,
        )
        parts = zip(torch.split(x, ASKED), torch.split(y, ASKED), strict=True)
        return cls(response, search, (x, y), torch.cat([response(*part) for part in parts]), response(mean, unsure)[0])

    def __call__(self, released: Tensor, guesses: Records | None = None) -> Inverted:
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

    def started(self, told: Tensor, guesses: Records | None) -> Records:
        """The known records whose weights would be nearest, some of them of other labels, and the guess if there is one."""
        x, y = self.known
        order = torch.cdist(told, self.answers).argsort(1)  # [target, known]
        near = torch.stack([self._nearest(own, y) for own in order])  # [target, start]
        if guesses is None:
            return x[near], y[near]
        own = guesses[0].to(x)[:, None], guesses[1].to(y)[:, None]
        return torch.cat([own[0], x[near]], 1), torch.cat([own[1], y[near]], 1)

    def _nearest(self, order: Tensor, y: Tensor) -> Tensor:
        first = torch.stack([(y[order] == c).nonzero()[0, 0] for c in torch.unique(y)]).sort().values  # of each label
        plain = max(1, self.search.starts - OTHERS)
        others = first[first >= plain][: self.search.starts - plain]
        return order[torch.cat([torch.arange(self.search.starts - len(others), device=order.device), others])]

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


def _classes(run: Unrolled, x: Tensor) -> int:
    with torch.no_grad():
        return int(run.wearing(run.start[None])(x[:1], shared=True).shape[-1])
