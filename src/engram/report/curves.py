"""What the scores look like: error rates at every threshold, and members against non-members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engram.accounting.limits import Claim, best_tpr
from engram.measure.ranks import Ranked, ranked
from engram.measure.roc import RESOLVED, curve
from engram.report import charts, words
from engram.report.charts import Scale
from engram.report.dossier import Dossier, Name
from engram.report.page import Safe, figure, section, tag
from engram.types import Floats, Ints

COLOURS = 8  # that the style sheet knows
DASHES = (None, "6 3", "1.5 3", "9 3 2 3")
BINS = 36
FEW = 12  # with so few distinct scores, each gets a bar of its own
TAIL = 0.005  # of scores at either end, at the least, counted at the edge
FAR = 3.0  # beyond so many widths of the middle half, they are counted there too (Tukey's outer fence)
SHOWN = 3  # histograms
LIMIT_POINTS = 200


@dataclass(frozen=True, eq=False)
class Line:
    """One attack's scores, counted, and how its line looks: a colour for the attack, dashes for the variant."""

    name: Name
    ranks: Ranked
    class_: str
    dash: str | None


def lines(told: Dossier) -> list[Line]:
    """Best first."""
    member, found = told.member, []
    colours = {attack: i for i, (attack, _) in enumerate(told.leaders())}
    variants: dict[str, int] = {}
    for name in told.ranking():
        scores = told.scores(name)
        if member is None or scores is None:
            continue
        nth = variants[name[0]] = variants.get(name[0], -1) + 1
        class_ = f"series s{colours[name[0]] % COLOURS}"
        found.append(Line(name, ranked(scores.values, member[scores.ids]), class_, DASHES[nth % len(DASHES)]))
    return found


def roc(told: Dossier) -> Safe | None:
    """True against false positives, on logarithmic axes: what an adversary gets who must be right."""
    drawn = lines(told)
    if not drawn:
        return None
    legend = tag("ul", [_legend(line, told) for line in drawn], class_="legend")
    return section(
        "roc",
        "How sure can the adversary be?",
        figure(
            tag("div", _roc(drawn, claimed(told)), legend, class_="beside"),
            "Each line follows one attack from its surest claims, at the left, to claiming everybody, at the upper right. ",
            "Read it at the left: there the adversary is hardly ever wrong, and a line far above the dotted one, which is "
            "guessing, means that some members are found with near certainty. Both axes are logarithmic. In the shaded "
            f"part fewer than {RESOLVED} non-members are behind a point, too few to tell a rate.",
            _promise(claimed(told)),
        ),
    )


def claimed(told: Dossier) -> Claim | None:
    """The privacy that the training promises, where the target says so."""
    promise = told.target.get("claim")
    return Claim(*promise) if promise else None


def _promise(claim: Claim | None) -> str | None:
    if claim is None:
        return None
    return (
        f" The training promises epsilon {claim.epsilon:.4g} at delta {claim.delta:g}: if it does, no attack whatever can, "
        "on average over trainings, rise above the broken line. One that clearly does contradicts the promise."
    )


def _limit(claim: Claim, x: Scale, y: Scale) -> Safe:
    """The largest true positive rate that the promise allows."""
    fpr = np.geomspace(x.low, 1.0, LIMIT_POINTS)
    return charts.path(
        [(x(float(f)), y(float(t))) for f, t in zip(fpr, best_tpr(claim, fpr), strict=True)], "limit", "7 4"
    )


def _roc(drawn: Sequence[Line], claim: Claim | None = None) -> Safe:
    others, members = drawn[0].ranks.n_others, drawn[0].ranks.n_members
    low = _round_down(1 / max(others, members, 10))
    x, y = Scale(low, 1, 50, 470, log=True), Scale(low, 1, 400, 24, log=True)
    marks = [(10.0**k, words.percent(10.0**k)) for k in range(math.ceil(math.log10(low) - 1e-9), 1)]
    band = tag(
        "rect",
        x=x.start,
        y=y.end,
        width=round(x(RESOLVED / others) - x.start, 2),
        height=y.start - y.end,
        class_="band",
    )
    return charts.drawing(
        480,
        440,
        "true positive rate against false positive rate, one line an attack",
        band,
        charts.y_axis(y, marks, x.start, x.end),
        charts.x_axis(x, marks, y.start, y.end),
        charts.path([(x(low), y(low)), (x(1), y(1))], "guessing"),
        None if claim is None else _limit(claim, x, y),
        [charts.path(_steps(line.ranks, x, y), line.class_, line.dash) for line in reversed(drawn)],
        charts.text(x.start, 14, "members found (true positive rate)", "axis"),
        charts.text(x.end, 435, "non-members accused (false positive rate)", "axis", "end"),
        class_="roc",
    )


def _steps(ranks: Ranked, x: Scale, y: Scale) -> list[charts.Point]:
    """The largest true positive rate up to each false positive rate, as the findings count it."""
    false, true = curve(ranks)
    last = np.flatnonzero(np.diff(false, append=2.0))  # of equal false positive rates, the most members
    return charts.steps([x(float(f)) for f in false[last]], [y(float(t)) for t in true[last]])


def _legend(line: Line, told: Dossier) -> Safe:
    swatch = charts.drawing(
        28, 10, "", tag("path", d="M1 5L27 5", class_=line.class_, stroke_dasharray=line.dash), class_="swatch"
    )
    attack, variant = line.name
    area = tag("small", "AUC ", words.interval(told.finding("auc", line.name)))
    return tag("li", swatch, tag("span", tag("b", attack), " ", variant, tag("br"), area))


def histograms(told: Dossier) -> Safe | None:
    """The scores behind the strongest attacks: where the two kinds differ is what gives them away."""
    member = told.member
    drawn = [line for line in lines(told) if line.name in told.leaders()[:SHOWN]]
    if not drawn or member is None:
        return None
    key = tag("p", tag("span", class_="key members"), "members ", tag("span", class_="key others"), "non-members")
    return section(
        "scores",
        "What the scores look like",
        figure(
            tag("div", key, tag("div", [_small(line) for line in drawn], class_="grid three")),
            "Scores of members (filled) and of non-members (outlined) under the strongest attacks, each as a share of its "
            "kind; larger means more likely a member. Two shapes that lie on each other give nothing away. A tail to the "
            "right that only members have is what a careful adversary uses. Scores beyond the drawing are counted in its "
            "first and last bar.",
        ),
    )


def _small(line: Line) -> Safe:
    return tag("div", tag("h3", line.name[0]), tag("p", line.name[1], class_="variant"), _histogram(line.ranks))


def _histogram(ranks: Ranked) -> Safe:
    edges = bins(ranks.values, ranks.members + ranks.others)
    inside, outside = (shares(ranks, counts, edges) for counts in (ranks.members, ranks.others))
    x = Scale(float(edges[0]), float(edges[-1]), 8, 292)
    y = Scale(0.0, float(max(inside.max(), outside.max())), 140, 8)
    marks = [(v, f"{v:g}") for v in charts.round_numbers(x.low, x.high)]
    return charts.drawing(
        300,
        164,
        "histogram of scores of members and of non-members",
        charts.bars(edges, inside, x, y, "members"),
        charts.bars(edges, outside, x, y, "others"),
        charts.stroke(x.start, y.start, x.end, y.start, "base"),
        charts.x_axis(x, marks, y.start),
    )


def bins(values: Floats, counts: Ints) -> Floats:
    """Edges of bars: of equal width where most scores are, or one around each score where there are few."""
    order = np.argsort(values)
    values, counts = values[order], counts[order]
    finite = np.isfinite(values)
    values, counts = values[finite], counts[finite]
    if len(values) < 2:
        only = float(values[0]) if len(values) else 0.0
        return np.array([only - 0.5, only + 0.5])
    if len(values) <= FEW:
        middle = (values[1:] + values[:-1]) / 2
        return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])
    low, high = _middle(values, counts)
    return np.linspace(low, high, BINS + 1) if low < high else np.array([low - 0.5, high + 0.5])


def _middle(values: Floats, counts: Ints) -> tuple[float, float]:
    """The range to draw, of ordered scores: a few that lie far out must not press all others into one bar."""
    reached = np.cumsum(counts) / counts.sum()
    low, quarter, three_quarters, high = values[np.searchsorted(reached, [TAIL, 0.25, 0.75, 1 - TAIL])]
    reach = FAR * (three_quarters - quarter)
    if not reach:  # half of the scores are one number
        return float(low), float(high)
    return float(max(low, quarter - reach)), float(min(high, three_quarters + reach))


def shares(ranks: Ranked, counts: Ints, edges: Floats) -> Floats:
    """Which share of these counts falls between each pair of edges; what lies outside counts at the end."""
    heights, _ = np.histogram(np.clip(ranks.values, edges[0], edges[-1]), edges, weights=counts)
    return np.asarray(heights / counts.sum(), float)


def _round_down(value: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10(value))
    return max(m * unit for m in (1, 2, 5) if m * unit <= value)
