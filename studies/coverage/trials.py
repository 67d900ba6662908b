"""One trial of a design: folded by foldaway block by block, and once more by statsmodels on all of its rows."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.special import stdtrit

import foldaway as fa
from foldaway.effects import Effect
from foldaway.plan.vocabulary import ERRORS, MOMENTS
from studies.coverage.designs import EFFECT, Columns, Design
from studies.coverage.expectations import ANYTIME, NOMINAL, NORMAL, PERCENTILE, POPULATION, Cell
from studies.coverage.tally import Found

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import kept_rows


class Interval(NamedTuple):
    """An interval with its estimate and standard error."""

    estimate: float
    std_error: float
    lower: float
    upper: float

    @property
    def covers(self) -> bool:
        """Whether it holds the true effect."""
        return self.lower <= EFFECT <= self.upper


def trial_of(design: Design, rng: np.random.Generator) -> dict[Cell, Found]:
    """Every cell of one trial. Where there are several looks, an interval covers if it does at all of them."""
    rows = design.simulate(rng)
    trial = fa.Trial(design.plan, key=rng.bytes(16) if design.bootstrap else None)
    last: dict[Cell, Interval] = {}
    covers: dict[Cell, bool] = {}
    for _, block in design.blocks(rows):
        trial.fold(block)
        last = dict(intervals(design, trial))
        for cell, interval in last.items():
            covers[cell] = covers.get(cell, True) and interval.covers
    # Where there are several looks, it would take a fit of all rows at each.
    kept = {} if design.looks else dict(intervals_of_rows(design, rows))
    return {cell: _found(interval, covers[cell], kept.get(cell)) for cell, interval in last.items()}


def _found(ours: Interval, covers: bool, kept: Interval | None) -> Found:
    if kept is None:
        return Found(ours.estimate, ours.std_error, covers)
    apart = max(abs(ours.std_error / kept.std_error - 1), abs(ours.estimate - kept.estimate) / kept.std_error)
    return Found(ours.estimate, ours.std_error, covers, kept.covers, apart)


def intervals(design: Design, trial: fa.Trial) -> Iterator[tuple[Cell, Interval]]:
    """Every interval that foldaway gives, as of now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.SampleRatioWarning)  # one in a thousand trials has one, by chance
        # Rows from sums have studies of their own.
        effects = [row for row in trial.effects(population=False) if ERRORS[row.se_kind].source == MOMENTS]
        if design.slope:
            wider = [row for row in trial.effects(population=True) if row.estimator == "interacted"]
            effects += [Effect(**{**_fields(row), "estimator": POPULATION}) for row in wider]
    for row in effects:
        if row.estimate is None or row.std_error is None or row.ci_lower is None or row.ci_upper is None:
            continue
        found = row.estimate, row.std_error
        kind = NORMAL if row.se_kind == "bootstrap" else row.se_kind
        if row.estimator == POPULATION and kind == NORMAL:
            continue  # the replicates have the population in view with or without the option
        cell = Cell(design.name, row.arm, row.estimator, kind)
        yield cell, Interval(*found, row.ci_lower, row.ci_upper)
        if row.percentile_ci_lower is not None and row.percentile_ci_upper is not None:
            yield (
                cell._replace(kind=PERCENTILE),
                Interval(*found, row.percentile_ci_lower, row.percentile_ci_upper),
            )
        if design.looks and row.anytime_ci_lower is not None and row.anytime_ci_upper is not None:
            yield cell._replace(form=ANYTIME), Interval(*found, row.anytime_ci_lower, row.anytime_ci_upper)


def _fields(row: Effect) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def intervals_of_rows(design: Design, rows: Columns) -> Iterator[tuple[Cell, Interval]]:
    """The same by statsmodels, for the kinds it has."""
    plan, table = design.plan, pd.DataFrame(rows)
    for arm in list(plan.arms)[1:]:
        for name in ("difference", "regression", "interacted", "horvitz_thompson"):
            y, X, position = kept_rows.design(plan, table, name, arm, "y")
            fit = sm.OLS(y, X).fit(method="qr")
            for kind, asked in _KINDS.items():
                if kind == "HC2" and name != "difference":
                    continue
                result = fit.get_robustcov_results(**_with_groups(asked, rows), use_t=True) if asked else fit
                error = kept_rows.cr1_of_means(plan, table, arm, "y") if (name, kind) == ("difference", "CR1") else None
                yield Cell(design.name, arm, name, kind), _of_result(result, position, error)


def _of_result(result: Any, position: int, error: float | None) -> Interval:
    """What its ``conf_int`` gives, which takes longer than the fit; with this error, if it is not the result's own."""
    estimate, std_error = float(result.params[position]), float(result.bse[position]) if error is None else error
    reach = float(stdtrit(getattr(result, "df_resid_inference", result.df_resid), 0.5 + NOMINAL / 2)) * std_error
    return Interval(estimate, std_error, estimate - reach, estimate + reach)


_KINDS: dict[str, dict[str, Any]] = {
    "classical": {},
    "HC0": {"cov_type": "HC0"},
    "HC1": {"cov_type": "HC1"},
    "HC2": {"cov_type": "HC2"},
    "CR0": {"cov_type": "cluster", "use_correction": False},
    "CR1": {"cov_type": "cluster", "use_correction": True},
}


def _with_groups(asked: Mapping[str, Any], rows: Columns) -> dict[str, Any]:
    return {**asked, "groups": rows["unit"]} if asked["cov_type"] == "cluster" else dict(asked)
