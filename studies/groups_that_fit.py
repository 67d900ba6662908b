"""How steady the error by groups is, and who is alone, if a plan expects the right number of units or a wrong one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import foldaway as fa
from foldaway.plan.groups import spread_of_error
from foldaway.report.page.dealt import Dealt, dealt
from studies.findings import Findings, counted, options_of, publish

NAME = "groups_that_fit"

UNITS = (1_000, 10_000, 100_000)
GUESSES = (1.0, 0.1, 10.0)
LEVELS = ("de", "fr", "it", "us")
BOUNDS, RESOLUTION = (0.0, 20.0), 0.05


class Fit(NamedTuple):
    """What was found of a number of units and a guess at it.

    Attributes:
        groups: Of the whole, of a level, and of the histogram.
        spread: The standard deviation of the error over keys, relative to its mean: of the whole, and of the levels.
        ratio: The mean error of the whole over CR1's on kept rows.
        units: The mean number of units in a cell: of an arm, of a level, of a bin.
        alone: The share of the cells with units that have just one, likewise.
    """

    groups: tuple[int, ...]
    spread: tuple[float, float]
    ratio: float
    units: tuple[float, ...]
    alone: tuple[float, ...]


def records(rng: np.random.Generator, units: int) -> dict[str, Any]:
    """Records of units that have one to five each, alike within a unit, scattered."""
    size = 1 + rng.binomial(4, 0.25, units)
    unit = rng.permutation(np.repeat(np.arange(units), size))
    treated = rng.random(units) < 0.5
    y = 10 + 0.5 * treated[unit] + rng.standard_normal(units)[unit] + rng.standard_normal(len(unit))
    country = np.array(LEVELS)[rng.integers(0, len(LEVELS), units)]
    return {"arm": np.where(treated, "new", "old")[unit], "y": y, "unit": unit, "country": country[unit]}


def plan_of(expected: int) -> fa.Plan:
    """A mean, a median and four levels, for so many expected units."""
    return fa.Plan(
        name=NAME,
        arm="arm",
        arms={"old": 0.5, "new": 0.5},
        outcomes=["y", fa.Quantile("y", (0.5,), bounds=BOUNDS, resolution=RESOLUTION)],
        unit="unit",
        segments=[{"column": "country", "levels": LEVELS}],
        expected_units=expected,
    )


def cr1(rows: dict[str, Any]) -> float:
    """The clustered error of the difference in means, from kept rows."""
    treated, y, unit = rows["arm"] == "new", rows["y"], rows["unit"]
    variance, n, clusters = 0.0, len(y), len(np.unique(unit))
    for arm in (treated, ~treated):
        scores = np.bincount(unit[arm], y[arm] - y[arm].mean())
        variance += float(scores @ scores) / int(arm.sum()) ** 2
    return float(np.sqrt(variance * clusters / (clusters - 1) * (n - 1) / (n - 2)))


def study(units: int, guess: float, keys: int, seed: int) -> Fit:
    """The same records, dealt into groups under many keys."""
    rng = np.random.default_rng([seed, units])
    rows, plan = records(rng, units), plan_of(round(units * guess))
    whole: list[Any] = []
    levels: list[Any] = []
    for _ in range(keys):
        trial = fa.Trial(plan, key=rng.bytes(16))
        trial.fold(rows)
        effects = trial.effects()
        (row,) = effects.filter(outcome="y", se_kind="jackknife", estimator="difference")
        whole.append(row.std_error)
        levels.append([each.std_error for each in effects.segments[0].effects])
    mine = [each for each in dealt(plan) if not each.what.startswith("bin of y of")]
    behind = [units / 2 / each.parts / each.groups for each in mine]
    return Fit(
        groups=tuple(each.groups for each in (mine[0], mine[2], mine[1])),
        spread=(_spread(whole), float(np.mean([_spread(each) for each in zip(*levels, strict=True)]))),
        ratio=float(np.mean(whole)) / cr1(rows),
        units=(behind[0], behind[2], behind[1]),
        alone=tuple(_alone(rng, units, each) for each in (mine[0], mine[2], mine[1])),
    )


def _spread(errors: Any) -> float:
    return float(np.std(errors, ddof=1) / np.mean(errors))


def _alone(rng: np.random.Generator, units: int, cells: Dealt) -> float:
    """The share of cells with units that have just one: of one arm's units, dealt at random."""
    parts = round(cells.parts)
    held = rng.multinomial(units // 2, np.full(cells.groups * parts, 1 / (cells.groups * parts)))
    return float((held == 1).sum() / max((held > 0).sum(), 1))


def findings(found: dict[tuple[int, float], Fit], keys: int) -> Findings:
    """The page."""
    of = {1.0: "right", 0.1: "ten times too few", 10.0: "ten times too many"}
    rows = [
        [
            f"{units:,}",
            of[guess],
            " / ".join(f"{groups:,}" for groups in fit.groups),
            f"{100 * fit.spread[0]:.1f} %",
            f"{100 * spread_of_error(fit.groups[0]):.1f} %",
            f"{100 * fit.spread[1]:.1f} %",
            f"{fit.ratio:.3f}",
            " / ".join(f"{each:,.1f}" for each in fit.units),
            " / ".join(f"{100 * each:.1f} %" for each in fit.alone),
        ]
        for (units, guess), fit in found.items()
    ]
    right = [fit for (_, guess), fit in found.items() if guess == 1]
    few = [fit for (_, guess), fit in found.items() if guess < 1]
    many = [fit for (_, guess), fit in found.items() if guess > 1]
    return Findings(
        "Groups that fit the trial",
        f"""A plan says about how many units it expects, and units are dealt into as many groups, from 16 to 4,096, as
        leave at least ten of them (`smallest_cell`) in each cell that is kept. We folded the same records under {keys}
        keys: units have one to five records each that are alike, in two equal arms; the plan has a mean, four levels of
        a segment, and a histogram of {round(1 / RESOLUTION) + 2} bins.

        The spread is the standard deviation of the clustered error over keys, as a share of its mean; 1/√(2G) is what
        to expect. The ratio is the mean error over CR1's on kept rows. Groups, units and cells of one unit are those of
        an arm, of a level, and of a bin of the histogram, as if bins were filled alike; cells without units are not
        counted.""",
        [
            "units", "the plan expects", "groups", "spread", "1/√(2G)", "spread in levels", "ratio to CR1",
            "units in a cell", "cells of one unit",
        ],
        rows,
        f"""If the plan expects the right number, the whole trial's error varies by
        {100 * min(f.spread[0] for f in right):.1f} to {100 * max(f.spread[0] for f in right):.1f} % with the key, and
        at most {100 * max(f.alone[0] for f in right):.1f} % of an arm's cells hold one unit alone. Expecting ten times
        too few costs steadiness (up to {100 * max(f.spread[0] for f in few):.0f} %) and nobody's privacy. Expecting ten
        times too many gives steadiness ({100 * max(f.spread[0] for f in many):.1f} % at most) and costs privacy: up to
        {100 * max(f.alone[0] for f in many):.0f} % of an arm's cells then are one unit. On average the error is CR1's
        in every case: the ratio lies between {min(f.ratio for f in found.values()):.3f} and
        {max(f.ratio for f in found.values()):.3f}.

        Histograms never have fewer than 16 groups, so with few units most of their cells are of one unit: they are
        stored encrypted, and what is read from them is quantiles alone.""",
        left=2,
    )  # fmt: skip


def cases() -> Iterator[tuple[int, float]]:
    """Every number of units with every guess."""
    return ((units, guess) for units in UNITS for guess in GUESSES)


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, keys=50, seed=1)
    number = len(UNITS) * len(GUESSES)
    found = {case: study(*case, options.keys, options.seed) for case in counted(cases(), number, NAME)}
    publish(findings(found, options.keys), NAME, options)
