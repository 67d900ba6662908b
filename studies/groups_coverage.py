"""Do intervals from sums by group cover, with few, unequal or drifting units, and with adjustment?

Every cell goes through the functions that a trial is read with: tallies by group, the delete-a-group jackknife,
Fieller's set, coefficients from a start. Beside them stand CR1, a bootstrap and a regression on kept rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from foldaway.inference.adjusting import fit_start
from foldaway.inference.jackknife import Cells, adjusted_mean, cells_of, jackknife, mean
from foldaway.inference.levels import LEAST_GROUPS, Levels, difference_of, relative_of
from foldaway.inference.unequal_arms import contrast_rate
from foldaway.inference.welch import spread_of, welch
from foldaway.numerics.block import Floats, Shape
from foldaway.tallies.group_moments import GroupMoments, MomentsShape
from foldaway.tallies.predictor import lean
from studies.findings import Findings, counted, markdown_table, options_of, publish

NAME = "groups_coverage"
CONFIDENCE = 0.95
UNITS = (20, 50, 200, 1000, 5000)
GROUPS = (16, 32, 128)
TREATED = (3, 5, 7, 10)
LEVELS = (0, 1, 2, 3)
EFFECT = 0.3
REPLICATES = 500


class Share(NamedTuple):
    """How often an interval covered, of the trials that told one, and its mean width next to another's."""

    covers: float
    told: float
    width: float = math.nan


# Clusters: units' sums are simulated, since the sums of a unit's records are all that any error here sees.


class Units(NamedTuple):
    """Trials by units: number of records, sum of the outcome, and arm."""

    size: Floats
    total: Floats
    treated: Any


def sizes(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Floats:
    """Records of each unit: unequal (from 1 to some 50, ten on average) or heavy-tailed (Pareto with index 1.5)."""
    if kind == "unequal":
        return 1 + rng.poisson(9 * rng.gamma(2, 0.5, shape)).astype(np.float64)
    return np.minimum(np.ceil(3 * (1 + rng.pareto(1.5, shape))), 3000.0).astype(np.float64)


def draw(
    rng: np.random.Generator, kind: str, trials: int, units: int, treated: int | None, level: float, effect: float
) -> Units:
    """y = level + effect·d + u + e with normal u, by unit, and e; so many treated units, or half by chance."""
    size = sizes(rng, kind, (trials, units))
    chance = rng.random((trials, units))
    arm = chance < 0.5 if treated is None else chance.argsort(axis=1).argsort(axis=1) < treated
    own = level + effect * arm + rng.standard_normal((trials, units))
    return Units(size, size * own + np.sqrt(size) * rng.standard_normal((trials, units)), arm)


def by_group(rng: np.random.Generator, units: Units, groups: int) -> Cells:
    """Trials by groups by arms: units dealt at random."""
    trials, count = units.size.shape
    group = rng.integers(0, groups, (trials, count))
    place = ((np.arange(trials)[:, None] * groups + group) * 2 + units.treated).ravel()
    size = (trials, groups, 2)
    n, total = (np.bincount(place, x.ravel(), math.prod(size)).reshape(size) for x in (units.size, units.total))
    return Cells(n.astype(np.float64), total.astype(np.float64))


def cr1(units: Units, effect: float) -> tuple[Any, Floats]:
    """Whether CR1's interval on kept rows covers (t with J − 1 degrees of freedom), and its half width."""
    n, J = units.size.sum(axis=1), units.size.shape[1]
    value, variance = [], np.zeros(len(n))
    for arm in (~units.treated, units.treated):
        size, total = np.where(arm, units.size, 0), np.where(arm, units.total, 0)
        own = total.sum(axis=1) / np.maximum(size.sum(axis=1), 1)
        value.append(own)
        variance += np.sum((total - size * own[:, None]) ** 2, axis=1) / np.maximum(size.sum(axis=1), 1) ** 2
    half = np.sqrt(variance * J / (J - 1) * (n - 1) / (n - 2)) * stdtrit(J - 1, 0.5 + CONFIDENCE / 2)
    return np.abs(value[1] - value[0] - effect) <= half, half


def bootstrapped(rng: np.random.Generator, units: Units, effect: float) -> Any:
    """Whether the interval of a bootstrap by unit covers: Poisson weights, the replicates' standard error, normal.

    The trials share the replicates' weights, which know nothing of their outcomes.
    """
    weights = rng.poisson(1.0, (REPLICATES, units.size.shape[1])).astype(np.float64)

    def difference(weights: Floats) -> Floats:
        means = []
        for arm in (~units.treated, units.treated):
            size, total = (weights @ np.where(arm, x, 0).T for x in units[:2])
            means.append(np.divide(total, size, where=size > 0, out=np.full_like(total, math.nan)))
        return means[1] - means[0]

    estimate = difference(np.ones((1, weights.shape[1])))[0]
    half = np.nanstd(difference(weights), axis=0, ddof=1) * ndtri(0.5 + CONFIDENCE / 2)
    return np.abs(estimate - effect) <= half


def half_width(levels: Levels) -> tuple[Floats, Floats]:
    """The effects, and the half widths of their intervals."""
    found = difference_of(levels, 1)
    with np.errstate(invalid="ignore"):
        return found.estimate, np.sqrt(found.variance) * stdtrit(found.df, 0.5 + CONFIDENCE / 2)


def in_parts(trials: int, units: int) -> Iterator[int]:
    """So many trials at a time that their arrays stay small."""
    at = max(1, min(trials, 1_000_000 // units))
    for start in range(0, trials, at):
        yield min(at, trials - start)


class Clustered(NamedTuple):
    """Coverage of CR1 and of the bootstrap, both on kept rows; and by number of groups, with widths next to CR1's."""

    cr1: float
    bootstrap: float
    groups: dict[int, Share]


def clustered(kind: str, units: int, treated: int | None, trials: int, seed: int) -> Clustered:
    """One cell."""
    cell = [seed, len(kind), units, treated or 0]
    rng, weights = np.random.default_rng(cell), np.random.default_rng([*cell, REPLICATES])
    kept: list[Any] = []
    ours: dict[int, list[Any]] = {groups: [] for groups in GROUPS}
    for part in in_parts(trials, units):
        drawn = draw(rng, kind, part, units, treated, 0.0, EFFECT)
        inside, width = cr1(drawn, EFFECT)
        kept.append(np.stack([inside, bootstrapped(weights, drawn, EFFECT)]))
        for groups in GROUPS:
            levels = jackknife(mean, by_group(rng, drawn, groups))
            estimate, half = half_width(levels)
            assert levels.groups is not None
            told = levels.groups.min(axis=-1) >= LEAST_GROUPS
            ours[groups].append(np.stack([np.abs(estimate - EFFECT) <= half, told, half / width]))
    shares = {groups: share(np.concatenate(parts, axis=1)) for groups, parts in ours.items()}
    cr1_covers, bootstrap_covers = np.concatenate(kept, axis=1).mean(axis=1)
    return Clustered(float(cr1_covers), float(bootstrap_covers), shares)


def share(found: Floats) -> Share:
    """Of rows covers, told, relative width."""
    told = found[1] > 0
    if not told.any():
        return Share(math.nan, 0.0)
    return Share(float(found[0][told].mean()), float(told.mean()), float(np.median(found[2][told])))


class RelativeShare(NamedTuple):
    """Of all trials: how many told a relative effect, how many were wrong, and how many of those told covered."""

    told: float
    wrong: float
    covers: float


def relative(level: int, trials: int, seed: int, units: int = 500) -> RelativeShare:
    """The treatment makes 1.5 of the control's level, which is so many standard errors away from zero."""
    rng = np.random.default_rng([seed, 77, level])
    error = _control_error(rng, units)
    parts = []
    for part in in_parts(trials, units):
        drawn = draw(rng, "unequal", part, units, None, level * error, level * error / 2)
        found = relative_of(jackknife(mean, by_group(rng, drawn, 128)), 1, CONFIDENCE)
        # With a control at zero no number is right, and whatever is told is wrong.
        covers = (found.lower <= 0.5) & (found.upper >= 0.5) & (level > 0)
        parts.append(np.stack([found.bounded, covers]))
    told, covers = np.concatenate(parts, axis=1)
    right = covers[told].mean() if told.any() else math.nan
    return RelativeShare(float(told.mean()), float(np.mean(told & ~covers)), float(right))


def _control_error(rng: np.random.Generator, units: int) -> float:
    """The standard deviation of the control's mean, over trials."""
    drawn = draw(rng, "unequal", 4000, units, None, 0.0, 0.0)
    n, total = (np.where(drawn.treated, 0, x).sum(axis=1) for x in drawn[:2])
    return float(np.std(total / n))


# Adjustment: records with covariates, of which a start gives the coefficients.


class Design(NamedTuple):
    """A trial with covariates.

    Attributes:
        what: In words.
        records: How many.
        start: How many of them give the coefficients.
        columns: Covariates.
        drift: By how much covariates' means grow after the start, in standard deviations.
        turned: Whether the covariates' effect changes sign after the start.
        in_turn: Whether all of the control's records come before the first treated one.
        groups: How many.
    """

    what: str
    records: int = 3000
    start: int = 500
    columns: int = 3
    drift: float = 0.0
    turned: bool = False
    in_turn: bool = False
    groups: int = 128


DESIGNS = (
    Design("start of 500 of 3,000 records"),
    Design("start of 2,000 of 3,000 records", start=2000),
    Design("covariates drift by 2 sd after a start of 500", drift=2.0),
    Design("coefficients change sign after a start of 500", turned=True),
    Design("control's records first, start of 500", in_turn=True),
    Design("100 records, 10 covariates, 128 groups", records=100, start=100, columns=10),
    Design("100 records, 10 covariates, 16 groups", records=100, start=100, columns=10, groups=16),
    Design("200 records, 5 covariates, all in the start", records=200, start=200, columns=5, groups=32),
)
METHODS = ("difference, jackknife", "adjusted, jackknife", "adjusted, Welch", "regression, HC1")
LEVEL, SLOPE, TREATMENT = 10.0, 1.4, 0.2


def records(rng: np.random.Generator, design: Design) -> tuple[Any, Floats, Floats, float]:
    """Arms, covariates (columns by records) and outcomes of one trial, and the level of the control that it has.

    The covariates explain some 85 % of the variance with three columns.
    """
    n, k = design.records, design.columns
    later = np.arange(n) >= design.start
    x = rng.standard_normal((k, n)) + design.drift * later
    arm = (np.arange(n) >= n // 2).astype(np.int64) if design.in_turn else (rng.random(n) < 0.5).astype(np.int64)
    slope = SLOPE * np.where(later & design.turned, -1, 1) * np.sqrt(3 / k)
    y = LEVEL + TREATMENT * arm + slope * x.sum(axis=0) + rng.standard_normal(n)
    control = LEVEL + SLOPE * np.sqrt(3 / k) * k * design.drift * later.mean()
    return arm, x, y, float(control)


def adjusted(design: Design, rng: np.random.Generator) -> tuple[list[tuple[bool, float]], tuple[bool, bool]]:
    """For each method whether it covers and its half width; whether a relative effect is told, and covers."""
    arm, x, y, control = records(rng, design)
    group = rng.integers(0, design.groups, design.records)
    first = slice(0, design.start)
    moments = GroupMoments.empty(MomentsShape(2, design.groups, Shape(1 + design.columns, 1)))
    rows = np.vstack([np.ones((1, design.start)), x[:, first], y[None, first]])
    moments = moments.fold(arm[first], rows, group[first])
    start = fit_start(moments, told=design.start >= 2000)
    assert start.predictor is not None
    sums = lean(moments, start.predictor, start.without)
    rest = slice(design.start, None)
    if design.start < design.records:
        values = np.vstack([y[None, rest], start.predictor.adjusted(x[:, rest], y[None, rest])])
        sums = sums.fold(arm[rest], values, group[rest])
    spread = spread_of(sums, 0)
    rate = contrast_rate(spread).beta
    cells = cells_of(sums, 0)
    by_group = jackknife(lambda cells: adjusted_mean(cells, rate), cells)
    found = [half_width(levels) for levels in (jackknife(mean, cells), by_group, welch(spread, rate))]
    found.append(regression(arm, x, y))
    ratio = relative_of(by_group, 1, CONFIDENCE)
    inside = ratio.lower <= TREATMENT / control <= ratio.upper
    return [(bool(abs(e - TREATMENT) <= h), float(h)) for e, h in found], (bool(ratio.bounded), bool(inside))


def regression(arm: Any, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The pooled regression on kept rows, HC1: effect and half width."""
    X = np.vstack([np.ones(len(y)), arm, x]).T
    inverse = np.linalg.inv(X.T @ X)
    coef = inverse @ (X.T @ y)
    scores = X * (y - X @ coef)[:, None]
    df = len(y) - X.shape[1]
    variance = (inverse @ scores.T @ scores @ inverse)[1, 1] * len(y) / df
    return coef[1], np.sqrt(variance) * stdtrit(df, 0.5 + CONFIDENCE / 2)


def adjustments(design: Design, trials: int, seed: int) -> tuple[list[Share], Share]:
    """Coverage of each method, widths next to the regression's, and of the relative effect."""
    rng = np.random.default_rng([seed, DESIGNS.index(design)])
    found = [adjusted(design, rng) for _ in range(trials)]
    table = np.array([methods for methods, _ in found])  # trials, methods, (covers, half width)
    shares = [
        Share(float(table[:, i, 0].mean()), 1.0, float(np.median(table[:, i, 1] / table[:, -1, 1])))
        for i in range(len(METHODS))
    ]
    told = np.array([ratio for _, ratio in found])
    return shares, Share(float(told[told[:, 0], 1].mean()), float(told[:, 0].mean()))


# The page.


class Results(NamedTuple):
    """All cells."""

    clusters: dict[tuple[str, int, int | None], Clustered]
    relatives: dict[int, RelativeShare]
    adjustments: dict[Design, tuple[list[Share], Share]]


def study(trials: int, seed: int) -> Results:
    """Every cell."""
    sized = [(kind, units, None) for kind in ("unequal", "heavy-tailed") for units in UNITS]
    few = [("unequal", 200, treated) for treated in TREATED]
    clusters: dict[Any, Any] = {
        cell: clustered(*cell, trials, seed) for cell in counted([*sized, *few], len(sized) + len(few), "clusters")
    }
    relatives = {level: relative(level, trials, seed) for level in counted(LEVELS, len(LEVELS), "relative effects")}
    covariates = {
        design: adjustments(design, trials, seed) for design in counted(DESIGNS, len(DESIGNS), "adjusted designs")
    }
    return Results(clusters, relatives, covariates)


def findings(results: Results, trials: int) -> Findings:
    """The tables and what they say."""
    error = math.sqrt(0.95 * 0.05 / trials)
    rows = [
        [
            kind,
            f"{units:,}" if treated is None else f"{units:,}, {treated} treated",
            _percent(found.cr1),
            _percent(found.bootstrap),
            *(cell for groups in GROUPS for cell in _cells(found.groups[groups])),
        ]
        for (kind, units, treated), found in results.clusters.items()
    ]
    relatives = [
        [f"{level}", f"{100 * found.told:.1f} %", f"{100 * found.wrong:.1f} %", _percent(found.covers)]
        for level, found in results.relatives.items()
    ]
    covariates = [
        [design.what, *(f"{100 * one.covers:.1f} % ({one.width:.2f})" for one in methods), _percent(ratio.covers)]
        for design, (methods, ratio) in results.adjustments.items()
    ]
    by_groups = (x for groups in GROUPS for x in (f"G = {groups}", "told", "width"))
    header = ["units' sizes", "units", "CR1", "bootstrap", *by_groups]
    details = "\n\n".join(
        [
            "## Relative effects",
            markdown_table(
                ["control's level, in standard errors", "told", "told and wrong", "told ones cover"], relatives, 0
            ),
            "## Adjustment",
            markdown_table(["design", *METHODS, "relative effect"], covariates, 1),
        ]
    )
    return Findings(
        "Coverage of intervals from sums by group",
        f"""The delete-a-group jackknife gives every statistic an error clustered by unit, from sums by group alone. We
        simulated {trials:,} trials for each cell, with 95 % intervals. One Monte Carlo standard error of a coverage is
        {100 * error:.2f} points.

        The first table is about clusters. The outcome is y = {EFFECT} d + u + e, where u is standard normal for each
        unit and e for each record. Units have from one to about 50 records, or a heavy-tailed number (Pareto with index
        1.5, at most 3,000). Each unit is treated with probability one half, or exactly as many are treated as the table
        says. CR1 is computed from kept rows, with Student's t and one degree of freedom fewer than units. So is the
        bootstrap by unit, from the standard error of {REPLICATES} replicates and the normal quantile. An interval is
        shown (“told”) if both arms have units in {LEAST_GROUPS} groups or more, and coverage counts only those trials.
        “Width” is the median width of the interval, divided by that of CR1's.

        The table of relative effects has 500 units of unequal size in 128 groups, and a treatment that multiplies the
        control's level by 1.5. Fieller's set is shown where it is an interval. If the control's level is zero, no
        relative effect exists, so whatever is shown is wrong.

        The table of adjustment has independent records, each dealt to a random group; covariates explain about 85 % of
        the variance. The coefficients are fitted to the first records, the start. Each group of the start is adjusted
        with coefficients fitted without that group, and later records with those of the whole start. The regression
        uses kept rows. The median width, divided by the regression's, is in brackets.""",
        header,
        rows,
        _answer(results, error),
        left=2,
        details=details,
    )


def _cells(found: Share) -> tuple[str, str, str]:
    if not found.told:
        return "–", "0 %", "–"
    return f"{100 * found.covers:.1f} %", f"{100 * found.told:.0f} %", f"{found.width:.2f}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"


def _answer(results: Results, error: float) -> str:
    shares = [one for found in results.clusters.values() for one in found.groups.values() if one.told]
    cr1s, bootstraps = ([getattr(found, kept) for found in results.clusters.values()] for kept in ("cr1", "bootstrap"))
    low, high = min(one.covers for one in shares), max(one.covers for one in shares)
    short = sum(one.covers < 0.95 - 1.96 * error for one in shares)
    by_method = list(zip(*(methods for methods, _ in results.adjustments.values()), strict=True))
    lowest: Callable[[int], float] = lambda i: 100 * min(one.covers for one in by_method[i])  # noqa: E731
    near, told = next((level, found) for level, found in results.relatives.items() if level)
    wrong = max(found.wrong for found in results.relatives.values())
    return f"""From sums by group, the intervals cover between {100 * low:.1f} and {100 * high:.1f} %; {short} of
    {len(shares)} cells fall short of 95 % by more than the Monte Carlo error. On kept rows, CR1 covers between
    {100 * min(cr1s):.1f} and {100 * max(cr1s):.1f} %, and the bootstrap between {100 * min(bootstraps):.1f} and
    {100 * max(bootstraps):.1f} %.

    In at most {100 * wrong:.1f} % of trials, a relative effect is shown and wrong. Where the control's level is {near}
    standard error from zero, {_percent(told.told)} of trials show a relative effect, and these are the trials in which
    that level came out large: of them alone, {_percent(told.covers)} cover. Read such a relative effect beside the
    absolute one.

    Intervals of adjusted effects cover in at least {lowest(1):.1f} % of trials with the jackknife and {lowest(2):.1f} %
    with Welch's formula; those of the regression on kept rows in at least {lowest(3):.1f} %."""


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=2000, seed=1)
    publish(findings(study(options.trials, options.seed), options.trials), NAME, options)
