"""The distance from each record to the decision boundary, from labels alone, for all records at once.

Chen, Jordan, Wainwright: HopSkipJumpAttack, A Query-Efficient Decision-Based Attack, 2020. Algorithms 1 and 2, L2.
Differs from the paper: a record starts from the nearest known record with another answer, not from noise, which costs no
query; all records share their random directions, so that their order does not matter; the last round asks fewer questions
where that is all that a record's budget leaves; what is told is the nearest point found, not the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engram import check
from engram.types import Floats, Ints, Track, quiet

Ask = Callable[[Tensor], Ints]  # records -> the labels answered, [record]

BLOCK = {"cpu": 2**22, "cuda": 2**28}  # numbers of the queries that are made at once
FEWEST = 8  # directions of a round; fewer tell nothing of the gradient
NOTHING = 1e-6  # of the width of the range; nearer points are not told apart in float32
TRIALS = 24  # of a step's length, each half the one before


@dataclass(frozen=True)
class HopSkipJump:
    """How many queries each record may cost, and how they are spent."""

    queries: int = 2500
    directions: int = 100  # of the first round; grows with the square root of the round

    def __post_init__(self) -> None:
        check.whole("queries", self.queries, 1)
        check.whole("directions", self.directions, FEWEST)


@dataclass(frozen=True, eq=False)
class Distances:
    """What was found. A record that is answered wrongly is at distance 0."""

    values: Floats  # [record]
    spent: Ints  # [record] queries
    unbounded: int  # right records for which no point with another answer was found; they count as farthest
    broken_off: bool  # the queries ran out before all records had theirs


def box(x: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest value that a record may have: of all pixels of images, of each column of a table."""
    if x.ndim > 2:
        return x.min(), x.max()
    return x.amin(0), x.amax(0)


def distances(
    ask: Ask,
    x: Tensor,  # [record, ...]
    y: Ints,  # [record]
    answered: Ints,  # [record] the labels of x, which have been asked
    knobs: HopSkipJump,
    stream: torch.Generator,
    *,
    known: tuple[Tensor, Ints] | None = None,  # further records and their answers, to start from
    out_of_queries: type[Exception] = TimeoutError,
    track: Track = quiet,
) -> Distances:
    """The distance of each record to the nearest point found that is answered with another label than y.

    Costs at most `knobs.queries` for each record. When `ask` raises `out_of_queries`, it tells what it has.
    """
    walk = _Walk(ask, x, y, answered, knobs, stream)
    starts, told = known or (x, answered)
    broken = False
    try:
        walk.start(starts.flatten(1), torch.as_tensor(told, device=x.device))
        for _ in track(range(1, 10_000), "walking along the boundary", walk.rounds()):
            if not walk.round():
                break
    except out_of_queries:
        broken = True
    return Distances(walk.best.cpu().numpy().astype(float), walk.spent.cpu().numpy(), walk.unbounded, broken)


class _Walk:
    """The state of all records: `at` is a point of another answer, close to the boundary."""

    def __init__(
        self, ask: Ask, x: Tensor, y: Ints, answered: Ints, knobs: HopSkipJump, stream: torch.Generator
    ) -> None:
        self.ask, self.knobs, self.stream = ask, knobs, stream
        self.shape, self.x = x.shape[1:], x.flatten(1)
        self.y = torch.as_tensor(y, device=x.device)
        low, high = box(x.flatten(1) if x.ndim == 2 else x)
        self.low, self.high = low, high
        self.d = self.x.shape[1]
        self.precision = self.d**-1.5  # theta of the paper, L2
        self.right = torch.as_tensor(answered, device=x.device) == self.y
        self.spent = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        widest = ((high - low).expand(self.x.shape[1:])).norm()
        self.best = torch.where(self.right, widest, torch.zeros((), device=x.device))  # [record]
        self.least = NOTHING * widest  # a record as near as this is on the boundary
        self.at = self.x.clone()
        self.going = torch.zeros_like(self.right)
        self.unbounded = int(self.right.sum())
        self.t = 0
        self.bisections = max(1, int(torch.tensor(1 / self.precision).log2().ceil()))

    def rounds(self) -> int:
        """About how many there will be."""
        cost, t = self.bisections, 0
        while cost < self.knobs.queries:
            t += 1
            cost += round(self.knobs.directions * t**0.5) + self.bisections + 2
        return t

    def start(self, known: Tensor, answered: Tensor) -> None:
        """From the nearest known record with another answer; without one, from noise."""
        rows = self.right.nonzero()[:, 0]
        found = torch.zeros_like(self.right)
        for part in torch.split(rows, 512):
            far = torch.cdist(self.x[part], known)
            far[self.y[part][:, None] == answered[None]] = torch.inf
            least, which = far.min(1)
            ok = least.isfinite()
            self.at[part[ok]] = known[which[ok]]
            found[part[ok]] = True
        for _ in range(min(TRIALS, self.knobs.queries) if bool((self.right & ~found).any()) else 0):
            rows = (self.right & ~found).nonzero()[:, 0]
            noise = torch.rand(self.d, generator=self.stream, device=self.x.device, dtype=self.x.dtype)
            self.at[rows] = self.low + noise * (self.high - self.low)
            found[rows] = self.fools(self.at[rows], rows)
        self.going = self.right & found
        self.unbounded = int((self.right & ~found).sum())
        rows = self.going.nonzero()[:, 0]
        self.noted(rows)
        self.bisect(rows)

    def round(self) -> bool:
        """One step of every record that can still afford one; False when none can."""
        self.t += 1
        room = self.knobs.queries - self.spent - self.bisections - 2  # what a step and a bisection leave for directions
        wanted = round(self.knobs.directions * self.t**0.5)
        directions = room.clamp(max=wanted)
        rows = (self.going & (directions >= FEWEST) & (self.best > self.least)).nonzero()[:, 0]
        if not len(rows):
            return False
        far = self.distance(rows)
        width = (self.high - self.low).mean() if self.t == 1 else self.d**0.5 * self.precision * far
        reach = (0.1 * width).expand(len(rows)) if self.t == 1 else width  # delta of the paper
        upward = self.gradient(rows, directions[rows], reach)
        self.step(rows, upward, far / self.t**0.5)
        self.bisect(rows)
        return True

    def gradient(self, rows: Tensor, directions: Tensor, reach: Tensor) -> Tensor:
        """Equation 16: the mean of the directions, each times its answer less the mean answer; of unit length, [row, d]."""
        most = int(directions.max())
        u = torch.randn(most, self.d, generator=self.stream, device=self.x.device, dtype=self.x.dtype)
        u /= u.norm(dim=1, keepdim=True)
        signed, plain = torch.zeros_like(self.x[rows]), torch.zeros_like(self.x[rows])
        total = torch.zeros(len(rows), dtype=self.x.dtype, device=self.x.device)
        block = max(1, BLOCK[self.x.device.type] // self.d // most)  # records whose directions are asked together
        for first in range(0, len(rows), block):
            part = slice(first, first + block)
            self._asked(rows[part], directions[part], reach[part], u, (signed[part], plain[part], total[part]))
        n = directions[:, None]
        mean = total[:, None] / n
        found = torch.where(mean.abs() == 1, mean * plain, (signed - mean * plain) / (n - 1).clamp(min=1))
        unit: Tensor = found / found.norm(dim=1, keepdim=True).clamp_min(torch.finfo(found.dtype).tiny)
        return unit

    def _asked(self, rows: Tensor, directions: Tensor, reach: Tensor, u: Tensor, into: tuple[Tensor, ...]) -> None:
        """The answers of these records' directions, added up."""
        most = int(directions.max())
        queries = self.at[rows][:, None] + reach[:, None, None] * u[None, :most]  # [row, direction, d]
        self._clip(queries)
        asked = torch.arange(most, device=u.device)[None] < directions[:, None]
        phi = torch.zeros(asked.shape, dtype=u.dtype, device=u.device)
        owners = rows[:, None].expand(asked.shape)
        if bool(asked.all()):
            phi = self.fools(queries.flatten(0, 1), owners.flatten()).view(asked.shape).to(u.dtype) * 2 - 1
        else:
            phi[asked] = self.fools(queries[asked], owners[asked]).to(u.dtype) * 2 - 1
        moved = queries.sub_(self.at[rows][:, None]).div_(reach[:, None, None])  # the directions as clipping left them
        signed, plain, total = into
        signed += torch.einsum("rb,rbd->rd", phi, moved)
        plain += torch.einsum("rb,rbd->rd", asked.to(u.dtype), moved)
        total += phi.sum(1)

    def step(self, rows: Tensor, upward: Tensor, length: Tensor) -> None:
        """Half the step until it is answered otherwise, or the record has nothing left but for the bisection."""
        length = length.clone()
        open_ = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        for _ in range(TRIALS):
            open_ &= self.spent[rows] + self.bisections < self.knobs.queries
            some = open_.nonzero()[:, 0]
            if not len(some):
                return
            there = self._clip(self.at[rows[some]] + length[some, None] * upward[some])
            ok = self.fools(there, rows[some])
            self.at[rows[some[ok]]] = there[ok]
            open_[some[ok]] = False
            length[some] /= 2

    def bisect(self, rows: Tensor) -> None:
        """Algorithm 1: between the record and its point, to within theta of the boundary."""
        a = torch.zeros(len(rows), dtype=self.x.dtype, device=rows.device)
        b = torch.ones_like(a)
        x, at = self.x[rows], self.at[rows]
        for _ in range(self.bisections):
            can = self.spent[rows] < self.knobs.queries
            if not bool(can.any()):
                break
            middle = (a + b) / 2
            there = x + middle[:, None] * (at - x)
            ok = torch.zeros_like(can)
            ok[can] = self.fools(there[can], rows[can])
            b, a = torch.where(can & ok, middle, b), torch.where(can & ~ok, middle, a)
            self.at[rows] = x + b[:, None] * (at - x)
        self.noted(rows)

    def noted(self, rows: Tensor) -> None:
        self.best[rows] = torch.minimum(self.best[rows], self.distance(rows))

    def distance(self, rows: Tensor) -> Tensor:
        far: Tensor = (self.at[rows] - self.x[rows]).norm(dim=1)
        return far

    def fools(self, points: Tensor, rows: Tensor) -> Tensor:
        """Whether each point is answered with another label than its record's own."""
        labels = self.ask(points.view(-1, *self.shape))
        self.spent += torch.bincount(rows, minlength=len(self.spent))
        fooled: Tensor = torch.as_tensor(labels, device=points.device) != self.y[rows]
        return fooled

    def _clip(self, points: Tensor) -> Tensor:
        return torch.clamp_(points, self.low, self.high) if self.low.ndim == 0 else _within(points, self.low, self.high)


def _within(points: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(points, low, out=points), high, out=points)
