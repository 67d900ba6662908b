"""Survival from histograms of exits, held against R's survival on kept rows: tests/data/survival/make.R."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.special import chdtrc

import foldaway as fa
from foldaway.inference.levels import difference_of
from foldaway.inference.reading.source import Source
from foldaway.inference.reading.survival import survival_levels
from foldaway.inference.survival import (
    Exited,
    area,
    contrast_by_group,
    contrast_of_records,
    curve,
    curve_error,
    log_log_band,
)
from foldaway.plan.outcomes import Exits
from foldaway.tallies.histogram import Histogram, HistogramShape
from foldaway.tallies.sums import Sums, SumsShape
from trials import known

FOLDER = Path(__file__).parents[1] / "data" / "survival"
EVERY_WEEK = Exits("time", "status", 104.0, 104)
ARMS = {"0": 2 / 3, "1": 1 / 3}


def _truths() -> dict[str, Any]:
    found = defaultdict(list)
    for line in csv.DictReader((FOLDER / "truths.csv").open()):
        found[line["name"]].append(float(line["value"]))
    return {name: np.array(values) for name, values in found.items()}


TRUTHS = _truths()


def rats() -> dict[str, Any]:
    table = np.genfromtxt(FOLDER / "rats.csv", delimiter=",", names=True)
    return {name: table[name] for name in table.dtype.names or ()}


def exits(binning: Exits = EVERY_WEEK, *, groups: int = 1, weighted: bool = False) -> Histogram:
    rows = rats()
    empty = Histogram.empty(HistogramShape(2, groups, binning.number, weighted))
    return empty.fold(
        rows["rx"].astype(np.int8),
        binning.codes(rows),
        rows["group"].astype(np.uint64) if groups > 1 else None,
        rows["weight"] if weighted else None,
    )


def test_curves_and_bands_are_those_of_all_rows() -> None:
    whole = Exited.of(exits().counts).total()
    survival = curve(whole)
    error = np.sqrt(curve_error(whole, survival))
    at = np.s_[:, [70, 90, 104]]
    assert survival[at].ravel() == pytest.approx(TRUTHS["survival"], rel=1e-9)
    assert (survival * error)[at].ravel() == pytest.approx(TRUTHS["survival_std_error"], rel=1e-9)
    lower, upper = log_log_band(survival, error, 1.959963984540054)
    assert lower[at].ravel() == pytest.approx(TRUTHS["survival_lower"], rel=1e-9)
    assert upper[at].ravel() == pytest.approx(TRUTHS["survival_upper"], rel=1e-9)


def test_weighted_curves_and_scores_have_robust_errors() -> None:
    held = exits(weighted=True)
    assert held.squares is not None
    whole, squares = Exited.of(held.counts).total(), Exited.of(held.squares)
    survival = curve(whole)
    error = survival * np.sqrt(curve_error(whole, survival, squares))
    at = np.s_[:, [70, 90, 104]]
    assert survival[at].ravel() == pytest.approx(TRUTHS["weighted_survival"], rel=1e-9)
    assert error[at].ravel() == pytest.approx(TRUTHS["weighted_survival_std_error"], rel=1e-9)
    found = contrast_of_records(whole.by_stratum(), squares.by_stratum())
    assert [found.observed - found.expected, found.variance] == pytest.approx(TRUTHS["weighted_log_rank"], rel=1e-9)


def test_the_log_rank_test_is_that_of_all_rows() -> None:
    found = contrast_of_records(Exited.of(exits().counts).total().by_stratum())
    statistic = (found.observed - found.expected) ** 2 / found.variance
    assert [found.observed, found.expected, found.variance, statistic, found.p_value] == pytest.approx(
        TRUTHS["log_rank"], rel=1e-9
    )


def test_clustered_tests_are_those_of_groups_of_rows() -> None:
    found = contrast_by_group(Exited.of(exits(groups=16).counts).by_stratum())
    assert [found.observed - found.expected, found.variance] == pytest.approx(TRUTHS["clustered_log_rank"], rel=1e-9)
    assert [found.log_ratio, np.sqrt(found.log_variance)] == pytest.approx(TRUTHS["mantel_haenszel"], rel=1e-9)


def within_strata(*, groups: int = 1, weighted: bool = False) -> tuple[Exited, Exited | None]:
    """The rats by quarter of the litters, the arms of a quarter side by side; and squares of weights."""
    rows = rats()
    empty = Histogram.empty(HistogramShape(8, groups, EVERY_WEEK.number, weighted))
    held = empty.fold(
        (2 * rows["stratum"] + rows["rx"]).astype(np.int8),
        EVERY_WEEK.codes(rows),
        rows["group"].astype(np.uint64) if groups > 1 else None,
        rows["weight"] if weighted else None,
    )
    squares = None if held.squares is None else Exited.of(held.squares).by_stratum(4)
    return Exited.of(held.counts).by_stratum(4), squares


def test_tests_within_strata_are_those_of_all_rows() -> None:
    found = contrast_of_records(within_strata()[0].total())
    statistic = (found.observed - found.expected) ** 2 / found.variance
    assert [found.observed, found.expected, found.variance, statistic] == pytest.approx(
        TRUTHS["stratified_log_rank"], rel=1e-9
    )
    counts, squares = within_strata(weighted=True)
    found = contrast_of_records(counts.total(), squares)
    truth = TRUTHS["stratified_weighted_log_rank"]
    assert [found.observed - found.expected, found.variance] == pytest.approx(truth, rel=1e-9)
    found = contrast_by_group(within_strata(groups=16)[0])
    truth = TRUTHS["stratified_clustered_log_rank"]
    assert [found.observed - found.expected, found.variance] == pytest.approx(truth, rel=1e-9)
    ratio = [found.log_ratio, np.sqrt(found.log_variance)]
    assert ratio == pytest.approx(TRUTHS["stratified_mantel_haenszel"], rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_trial_with_strata_reports_the_stratified_test(weighted: bool) -> None:
    rows = rats() | {"arm": rats()["rx"].astype(int), "quarter": rats()["stratum"].astype(int).astype(str)}
    plan = fa.Plan(
        name="rats",
        arm="arm",
        arms=ARMS,
        outcomes=[fa.Survival("time", "status", until=104, bins=104)],
        strata={"column": "quarter", "levels": ["0", "1", "2", "3"]},
        weight="weight" if weighted else None,
    )
    halves = [fa.Trial(plan), fa.Trial(plan)]
    for part, half in enumerate(halves):
        half.fold({name: values[part::2] for name, values in rows.items()})
    trial = fa.Trial.loads(halves[0].merge(halves[1]).dumps(), plan)
    (hazards,) = trial.effects().curves[0].hazards
    if weighted:
        away, variance = TRUTHS["stratified_weighted_log_rank"]
        statistic = away**2 / variance
    else:
        statistic = TRUTHS["stratified_log_rank"][3]
    assert hazards.p_value == pytest.approx(float(chdtrc(1, statistic)), rel=1e-9)
    assert hazards.said.startswith("stratified log-rank test")


def test_the_hazard_ratio_is_near_that_of_cox() -> None:
    found = contrast_of_records(Exited.of(exits().counts).total().by_stratum())
    ratio, error = TRUTHS["cox"]
    assert found.log_ratio == pytest.approx(ratio, abs=0.01 * error)
    assert np.sqrt(found.log_variance) == pytest.approx(error, rel=0.02)
    assert np.sqrt(found.log_variance) == pytest.approx(TRUTHS["mantel_haenszel_by_record"][0], rel=0.03)


def test_coarse_bins_give_what_rounded_times_give() -> None:
    whole = Exited.of(exits(Exits("time", "status", 104.0, 26)).counts).total()
    assert area(curve(whole), np.linspace(0, 104, 27)) == pytest.approx(TRUTHS["coarse_rmean"], rel=1e-9)
    found = contrast_of_records(whole.by_stratum())
    assert (found.observed - found.expected) ** 2 / found.variance == pytest.approx(TRUTHS["coarse_log_rank"][0])


def test_what_rounding_changes_vanishes_as_bins_grow() -> None:
    """By less than a bin's width in each arm; of a difference by much less."""
    off = []
    for bins in (13, 26, 52, 104):
        whole = Exited.of(exits(Exits("time", "status", 104.0, bins)).counts).total()
        off.append(area(curve(whole), np.linspace(0, 104, bins + 1)) - TRUTHS["rmean"])
        assert np.all((off[-1] >= -1e-9) & (off[-1] < 104 / bins))
        assert abs(np.diff(off[-1])[0]) <= 1 / bins * 104 * 0.3
    assert np.all(np.abs(off[-1]) < 1e-9)
    assert np.all(np.diff(np.abs(off), axis=0) < 0)


@pytest.mark.parametrize("at", [(), (90.0,)])
def test_a_trial_says_the_same_of_its_exits(at: tuple[float, ...]) -> None:
    rows = rats() | {"arm": rats()["rx"].astype(int)}
    outcome = fa.Survival("time", "status", until=104, bins=104, at=at)
    trial = fa.Trial(fa.Plan(name="rats", arm="arm", arms=ARMS, outcomes=[outcome]))
    trial.fold(rows)
    (row,) = trial.effects()
    levels = TRUTHS["survival"][[1, 4]] if at else TRUTHS["rmean"]
    errors = TRUTHS["survival_std_error"][[1, 4]] if at else TRUTHS["rmean_std_error"]
    assert [known(row.control_level), known(row.level)] == pytest.approx(levels, rel=1e-9)
    assert known(row.std_error) == pytest.approx(float(np.hypot(*errors)), rel=1e-9)


@pytest.mark.parametrize(("at", "truth"), [((), "clustered_rmean"), ((90.0,), "clustered_beyond_90")])
def test_errors_by_group_are_a_jackknife_over_kept_rows(at: tuple[float, ...], truth: str) -> None:
    outcome = fa.Survival("time", "status", until=104, bins=104, at=at)
    plan = fa.Plan(name="rats", arm="rx", arms=ARMS, outcomes=[outcome], unit="litter")
    rows = rats()
    sums = Sums.empty(SumsShape(2, 1, groups=16)).fold(
        rows["rx"].astype(int), [rows["time"]], rows["group"].astype(int)
    )
    source = Source(plan, outcome, sums, None, "difference", by_group=True, histogram=exits(groups=16))
    apart = difference_of(survival_levels(source), 1)
    assert [apart.estimate, np.sqrt(apart.variance)] == pytest.approx(TRUTHS[truth], rel=1e-9)


def test_times_below_zero_and_events_that_are_neither_are_faults() -> None:
    outcome = fa.Survival("time", "status", until=104)
    trial = fa.Trial(fa.Plan(name="rats", arm="arm", arms=ARMS, outcomes=[outcome], drop_limit=1))
    trial.fold({"arm": ["0"] * 6, "time": [3, -1, 5, 2, 500, 0], "status": [True, False, 2, 0.5, True, False]})
    with pytest.raises(fa.RecordError, match="time: 1 negative"):
        fa.Trial(msgspec.structs.replace(trial.plan, drop_limit=0.0)).fold({"arm": ["0"], "time": [-1], "status": [1]})
    assert {(each.column, each.rule): each.records for each in trial.effects().faults} == {
        ("status", "neither 0 nor 1"): 2,
        ("time", "negative"): 1,
    }
