"""Do bootstrap intervals cover when records of a unit are alike, by unit and by record?

Trials are randomised by unit, units have unequal numbers of records, and records of a unit share a disposition. The
bootstrap by unit must cover; the bootstrap by record, which takes records as independent, must fall short.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

import foldaway as fa
from foldaway.numerics.kernels.weights import Kind
from foldaway.plan import Bootstrap
from studies.findings import Findings, counted, options_of, publish

NAME = "bootstrap_coverage"
EFFECT = 0.5
NORMAL, PERCENTILE = "normal", "percentile"
BY_UNIT, BY_RECORD = "unit", "record"
ESTIMATORS = ("difference", "regression")
DESIGNS: tuple[tuple[str, Kind], ...] = (
    (BY_UNIT, "poisson"),
    (BY_UNIT, "double-or-nothing"),
    (BY_RECORD, "poisson"),
)
ANALYTIC = {BY_UNIT: "CR1", BY_RECORD: "HC1"}


class Interval(NamedTuple):
    """One interval of one trial, and what it belongs to."""

    units: int
    by: str
    estimator: str
    errors: str
    form: str
    estimate: float
    std_error: float
    lower: float
    upper: float


def simulate(rng: np.random.Generator, units: int) -> pd.DataFrame:
    """Records of units: from one to some 50 each, ten on average."""
    size = 1 + rng.poisson(9 * rng.gamma(2, 0.5, units))
    disposition = rng.normal(size=units)
    arm = rng.integers(0, 2, units)
    of = np.repeat(np.arange(units), size)
    x = 0.5 * disposition[of] + rng.normal(size=len(of))
    y = 10 + EFFECT * arm[of] + disposition[of] + 0.5 * x + rng.normal(0, 1.3, len(of))
    return pd.DataFrame(
        {"arm": np.array(["control", "treatment"])[arm[of]], "y": y, "x": x, "unit": of, "record": np.arange(len(of))}
    )


def plan_of(by: str, kind: Kind, replicates: int) -> fa.Plan:
    """The plan, with weights by unit or by record.

    A record's own number as the unit gives it weights of its own, just as a plan without a unit does, but by the key
    alone: so the study can be repeated.
    """
    return fa.Plan(
        name="coverage",
        arm="arm",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["y"],
        covariates=["x"],
        unit=by,
        moments=fa.Moments(estimators=ESTIMATORS, bootstrap=Bootstrap(replicates, kind)),
        records_per_unit="together" if by == BY_UNIT else "many",
    )


def intervals(rows: pd.DataFrame, units: int, replicates: int, key: bytes) -> Iterator[Interval]:
    """Every interval for one trial's effect."""
    for by, kind in DESIGNS:
        trial = fa.Trial(plan_of(by, kind, replicates), key=key)
        trial.fold(rows)
        for row in _effects(trial):
            if row.estimate is None or row.std_error is None or row.ci_lower is None or row.ci_upper is None:
                continue
            about, found = (units, by, row.estimator), (row.estimate, row.std_error)
            normal = row.ci_lower, row.ci_upper
            if row.se_kind == "bootstrap":
                assert row.percentile_ci_lower is not None
                assert row.percentile_ci_upper is not None
                percentile = row.percentile_ci_lower, row.percentile_ci_upper
                yield Interval(*about, f"bootstrap, {kind}", NORMAL, *found, *normal)
                yield Interval(*about, f"bootstrap, {kind}", PERCENTILE, *found, *percentile)
            elif row.se_kind == ANALYTIC[by] and kind == "poisson":
                yield Interval(*about, row.se_kind, NORMAL, *found, *normal)


def _effects(trial: fa.Trial) -> fa.Effects:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.SampleRatioWarning)  # of records, which were not what was randomised
        return trial.effects()


def study(trials: int, units: int, replicates: int, seed: int) -> list[Interval]:
    """Every interval of every trial."""
    found: list[Interval] = []
    for number in counted(range(trials), trials, f"trials of {units} units"):
        rng = np.random.default_rng([seed, units, number])
        found += intervals(simulate(rng, units), units, replicates, rng.bytes(16))
    return found


def summary(found: Sequence[Interval]) -> pd.DataFrame:
    """Coverage, and errors next to the true one; a row for each kind of error, those by unit first."""
    table = pd.DataFrame(found, columns=list(Interval._fields))
    table["covers"] = (table["lower"] <= EFFECT) & (table["upper"] >= EFFECT)
    about = ["units", "by", "estimator", "errors"]
    covers = table.pivot_table("covers", about, "form", aggfunc="mean")
    groups = table[table["form"] == NORMAL].groupby(about)
    covers["ratio"] = groups["std_error"].apply(lambda e: math.sqrt((e**2).mean())) / groups["estimate"].std()
    order = ["by", "units", "estimator", "errors"]
    return covers.reset_index().sort_values(order, ascending=[False, True, True, True], ignore_index=True)


def findings(found: Sequence[Interval], trials: int, replicates: int) -> Findings:
    """The table and what it says."""
    table = summary(found)
    error = math.sqrt(0.95 * 0.05 / trials)
    rows = [
        [
            f"by {row.by}",
            str(row.estimator),
            str(row.errors),
            str(row.units),
            f"{row.ratio:.3f}",
            _covers(row.normal, error),
            _covers(row.percentile, error),
        ]
        for row in cast(Iterable[Any], table.itertuples())
    ]
    return Findings(
        "Coverage of the bootstrap's intervals",
        f"""Records of one unit (a person, a ward) are alike. A bootstrap that draws weights by unit allows for that;
        one that draws them by record does not.

        We simulated {trials:,} trials for each number of units, randomised by unit with probability 1/2. A unit has one
        record or more: ten on average, with a standard deviation of 7. The outcome is y = 10 + {EFFECT} d + u + x/2 +
        e, where d is the treatment, u is standard normal for each unit, x is u/2 plus standard normal noise, and e is
        normal with a standard deviation of 1.3. Each trial was folded with `fa.Trial` and {replicates} replicates. The
        effect of d was estimated as a difference in means and by regression on x. For comparison, the table also has
        the analytic errors, clustered (CR1) and by record (HC1), with intervals from Student's t.

        “Ratio” is the root mean square of the standard errors, divided by the standard deviation of the estimate over
        the trials. “Covers” is how often the 95 % interval contains the true effect, with the distance from 95 % in
        Monte Carlo standard errors (one is {100 * error:.2f} points) in brackets.""",
        ["errors are", "estimator", "kind", "units", "ratio", "normal or t covers", "percentile covers"],
        rows,
        _answer(table, error),
        left=3,
    )


def _covers(share: float, error: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f} % ({(share - 0.95) / error:+.1f})"


def _answer(table: pd.DataFrame, error: float) -> str:
    bootstrap = table[table["errors"].str.startswith("bootstrap")]
    by_unit = bootstrap[bootstrap["by"] == BY_UNIT]
    said = []
    for units, of in by_unit.groupby("units"):
        shares = of[[NORMAL, PERCENTILE]].to_numpy().ravel()
        off = np.abs(shares - 0.95)
        within = int(np.sum(off <= 1.96 * error))
        said.append(
            f"With {units} units, the bootstrap's intervals by unit cover between {100 * shares.min():.1f} and "
            f"{100 * shares.max():.1f} %. Of the {len(shares)} kinds of interval, {within} are within the Monte "
            f"Carlo error (1.96 standard errors) of 95 %, and the furthest is {100 * off.max():.1f} points off."
        )
    by_record = bootstrap[bootstrap["by"] == BY_RECORD][[NORMAL, PERCENTILE]].to_numpy()
    said.append(
        f"Drawn by record, they cover between {100 * by_record.min():.1f} and {100 * by_record.max():.1f} %. That is "
        "far too little, as with any error that assumes such records to be independent."
    )
    return "\n\n".join(said)


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=10_000, few=100, many=400, replicates=499, seed=1)
    found: list[Interval] = []
    for units in (options.few, options.many):
        found += study(options.trials, units, options.replicates, options.seed)
    publish(findings(found, options.trials, options.replicates), NAME, options)
