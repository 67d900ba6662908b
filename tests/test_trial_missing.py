"""Missing outcomes: a record without one counts for all others, each outcome is that of its complete cases."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import foldaway as fa
from foldaway.effects.door import TOLD
from foldaway.inference.loss import loss_of
from sizes import mostly_slow

KEY = bytes(range(16))
OUTCOMES = [
    fa.Mean("y", missing="allowed"),
    "z",
    fa.Share("y", above=1, missing="allowed"),
    fa.Mean("w", missing="allowed"),
    fa.Ratio("y", "w", missing="allowed"),
]
ALONE: dict[str, tuple[Any, list[str]]] = {
    "y": ("y", ["y"]),
    "z": ("z", []),
    "y > 1": (fa.Share("y", above=1), ["y"]),
    "w": ("w", ["w"]),
    "y / w": (fa.Ratio("y", "w"), ["y", "w"]),
}


def plan_of(outcomes: list[Any], **settings: Any) -> fa.Plan:
    return fa.Plan(**{"name": "lost", "arm": "g", "arms": {"a": 0.4, "b": 0.6}, "outcomes": outcomes, **settings})


def made(n: int = 1_500, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    unit = rng.integers(0, 300, n)
    x = rng.normal(size=n)
    rows = pd.DataFrame({"g": np.where(np.arange(300) % 5 < 2, "a", "b")[unit], "u": unit, "x": x})
    rows["y"] = 1 + x + rng.normal(size=n)
    rows["z"] = x + rng.normal(size=n)
    rows["w"] = rng.exponential(3, n) + 0.5 * x + 3
    rows["k"] = rng.uniform(0.5, 2, n)
    rows.loc[rng.random(n) < 0.2, "y"] = np.nan
    rows.loc[rng.random(n) < 0.1, "w"] = np.nan
    return rows


def folded(plan: fa.Plan, rows: pd.DataFrame, parts: int = 1) -> fa.Trial:
    trial = fa.Trial(plan, key=KEY)
    for part in np.array_split(np.arange(len(rows)), parts):
        trial.fold(rows.iloc[part])
    return trial


def near(number: float | None) -> Any:
    """Equal up to rounding, or as little there."""
    return None if number is None else pytest.approx(number, rel=1e-7)


DESIGNS: dict[str, dict[str, Any]] = {
    "by unit": {"unit": "u"},
    "independent": {},
    "weighted": {"unit": "u", "weight": "k"},
    "adjusted by unit": {"unit": "u", "covariates": ["x"]},
    "adjusted, weighted": {"covariates": ["x"], "weight": "k"},
}


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@pytest.mark.parametrize("design", mostly_slow(DESIGNS, "by unit", "independent", "adjusted, weighted"))
def test_every_outcome_is_that_of_its_complete_cases(design: str) -> None:
    rows, settings = made(), DESIGNS[design]
    trial = folded(plan_of(OUTCOMES, **settings), rows, parts=7)
    halves = [folded(trial.plan, part) for part in (rows[:400], rows[400:])]
    merged = halves[0].merge(halves[1])
    for name, (outcome, needed) in ALONE.items():
        alone = folded(plan_of([outcome], **settings), rows.dropna(subset=needed))
        expected = alone.effects()
        for one in (trial, merged):
            found = one.effects().filter(outcome=name)
            assert len(found) == len(expected) > 0
            for row, other in zip(found, expected, strict=True):
                assert (row.n, row.n_arm, row.n_control) == (other.n, other.n_arm, other.n_control)
                assert (row.estimator, row.se_kind, row.reliable) == (other.estimator, other.se_kind, other.reliable)
                for field in ("estimate", "std_error", "df", "ci_lower", "relative", "anytime_ci_lower"):
                    assert getattr(row, field) == near(getattr(other, field)), (name, field)
    assert trial.n == len(rows)


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@pytest.mark.parametrize("design", mostly_slow(DESIGNS, "by unit", "independent", "adjusted, weighted"))
def test_what_is_saved_comes_back_and_goes_on(design: str) -> None:
    rows = made()
    plan = plan_of(OUTCOMES, **DESIGNS[design])
    trial = folded(plan, rows[:700])
    rich = fa.Trial.loads(trial.exchanged(), key=KEY)
    trial.fix()
    again = fa.Trial.loads(trial.dumps(), key=KEY)
    for each in (again, trial, rich):
        each.fold(rows[700:])
    assert again.dumps() == trial.dumps()
    whole = folded(plan, rows).effects()
    for one, other in zip(again.effects(), whole, strict=True):
        if one.estimator == "difference" and one.estimate is not None:
            assert one.estimate == near(other.estimate)
            assert one.std_error == near(other.std_error)
    for one, other in zip(rich.effects(), whole, strict=True):
        if one.estimate is not None:
            assert one.estimate == near(other.estimate)
    told = trial.read(TOLD)
    assert fa.Effects.from_json(told.to_json()).losses == told.losses
    assert "missing equally often in all arms?" in trial.report().html


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_within_a_segment_it_is_the_same() -> None:
    rows = made(4_000)
    rows["where"] = np.where(rows["u"] % 3 == 0, "web", "app")
    settings = {"unit": "u", "segments": [{"column": "where", "levels": ["app", "web"]}]}
    trial = folded(plan_of(OUTCOMES, **settings), rows, parts=5)
    found = {(each.outcome, row.segment): row for each in trial.effects().segments for row in each.effects}
    assert len(found) == 2 * len(OUTCOMES)
    for name, (outcome, needed) in ALONE.items():
        for level in ("app", "web"):
            alone = folded(plan_of([outcome], unit="u"), rows[rows["where"] == level].dropna(subset=needed))
            [other] = alone.effects().filter(estimator="difference", se_kind="jackknife")
            row = found[name, level]
            assert (row.n, row.estimator, row.se_kind) == (other.n, other.estimator, other.se_kind)
            assert row.estimate == near(other.estimate)
            assert row.std_error == near(other.std_error)
    adjusted = folded(plan_of(OUTCOMES, **settings, covariates=["x"]), rows)
    adjusted.fix()
    assert all(row.reliable for each in adjusted.effects().segments for row in each.effects)


def test_records_may_come_one_by_one_without_it() -> None:
    rows = made(60)
    plan = plan_of(OUTCOMES)
    whole, single = fa.Trial(plan, key=KEY), fa.Trial(plan, key=KEY)
    whole.fold(rows)
    for record in json.loads(rows.to_json(orient="records")):
        single.fold([{name: value for name, value in record.items() if value is not None}])
    for one, other in zip(single.effects(), whole.effects(), strict=True):
        assert one.n == other.n
        assert one.estimate == near(other.estimate)
    with pytest.raises(fa.RecordError, match="no column 'y'"):
        whole.fold(rows.drop(columns="y"))


def test_what_one_outcome_needs_is_not_missing_for_another() -> None:
    trial = fa.Trial(plan_of(["y", fa.Ratio("y", "w", missing="allowed")]))
    with pytest.raises(fa.RecordError, match="y: 1 null"):
        trial.fold([{"g": "a", "y": None, "w": 1.0}])
    trial.fold([{"g": "a", "y": 1.0}])
    assert trial.n == 1


def test_arms_that_lose_different_shares_are_an_alarm() -> None:
    rows = made(4_000)
    rows.loc[(rows["g"] == "b") & (np.arange(4_000) % 9 == 0), "w"] = np.nan
    plan = plan_of([fa.Mean("w", missing="allowed"), "z"], unit="u")
    with pytest.warns(fa.LossWarning, match="lost different shares of 'w'"):
        effects = folded(plan, rows).effects()
    (loss,) = effects.losses
    assert loss.outcome == "w"
    assert loss.lost == rows["w"].isna().groupby(rows["g"]).sum().to_dict()
    assert loss.state == "fails"
    assert "lost different shares of 'w'" in str(effects)
    assert json.loads(effects.to_json())["losses"][0]["lost"] == loss.lost
    sound = made(4_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fa.LossWarning)
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        effects = folded(plan, sound).effects()
    assert effects.losses[0].state == "passes"
    assert any(note.startswith("Records without 'w'") for note in effects.notes)


def test_the_test_of_a_loss_is_pearsons_or_that_of_units() -> None:
    lost, records = np.array([[30.0], [55.0], [20.0]]), np.array([[400.0], [500.0], [300.0]])
    expected = stats.chi2_contingency(np.hstack([lost, records - lost]), correction=False).pvalue
    assert loss_of("y", ["a", "b", "c"], lost, records).p_value == pytest.approx(expected, rel=1e-9)
    # Units that lose all or nothing: a test of records would cry wolf in most trials.
    rng = np.random.default_rng(8)
    alarms = 0
    for _ in range(400):
        gone = rng.random((2, 64)) < 0.3
        loss = loss_of("y", ["a", "b"], np.where(gone, 20.0, 0.0), np.full((2, 64), 20.0))
        alarms += loss.p_value is not None and loss.p_value < 0.05
    assert 8 <= alarms <= 34  # 5 % of 400, give or take three standard deviations
    assert loss_of("y", ["a", "b"], np.zeros((2, 1)), records[:2]).p_value is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"moments": {}}, '`missing = "allowed"` works only with sums'),
        ({"federated": "sums"}, '`missing = "allowed"` in a federated plan is for sites'),
        ({"release": 1.0}, '`missing = "allowed"` cannot be combined with `release`'),
    ],
)
def test_where_nothing_may_be_missing_a_plan_says_so(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(fa.PlanError) as caught:
        plan_of([fa.Mean("y", missing="allowed", bounds=(0, 1))], **settings)
    assert str(caught.value).startswith(sentence)
    with pytest.raises(fa.PlanError, match="a missing one would count as 0"):
        fa.Total("y", missing="allowed")


# Dropped records.


def test_more_dropped_records_than_the_plan_allows_leave_no_effect() -> None:
    rows = made()
    plan = plan_of(["w", "z"], drop_limit=0.05)
    trial = folded(plan, rows, parts=5)
    with pytest.warns(fa.LossWarning, match=r"than the 5 % that the plan allows \(`drop_limit`\): w: \d+ null"):
        effects = trial.effects()
    assert [row.estimate for row in effects] == [None] * len(effects)
    assert all(row.why and "drop_limit" in row.why for row in effects)
    assert "No effect is shown" in str(effects)
    assert not any(row.reliable for row in trial.read(TOLD))
    # It is the share of all records that counts, however they come: more good ones bring the effects back.
    for _ in range(2):
        trial.fold(rows.dropna())
    effects = trial.effects()
    assert all(row.reliable for row in effects)
    assert any("w: " in note and "null" in note for note in effects.notes)
    allowed = folded(plan_of(["w", "z"], drop_limit=0.5), rows).effects()
    assert all(row.reliable for row in allowed)


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_arms_that_drop_different_shares_are_an_alarm_where_records_are_independent() -> None:
    rows = made(3_000)
    rows.loc[(rows["g"] == "b") & (np.arange(3_000) % 11 == 0), "z"] = np.nan
    settings = {"drop_limit": 0.5}
    alone = folded(plan_of(["z"], **settings), rows).effects()
    assert alone.alarm is not None
    assert "their records as faulty" in alone.alarm
    by_unit = folded(plan_of(["z"], unit="u", **settings), rows).effects()
    assert by_unit.alarm is None or "faulty" not in by_unit.alarm
    assert any("faulty together" in note for note in by_unit.notes)


@pytest.mark.parametrize("unit", [None, "u"])
def test_an_outcome_that_few_have_is_withheld_from_others(unit: str | None) -> None:
    rows = made()
    rows["s"] = np.where(rows["u"] % 2 == 0, "even", "odd")
    few = rows.groupby("g").head(3).index
    rows.loc[~rows.index.isin(few), "w"] = np.nan
    rows.loc[(rows["s"] == "odd") & ~rows["u"].isin(rows["u"][rows["s"] == "odd"].unique()[:8]), "y"] = np.nan
    outcomes = [
        fa.Mean("y", missing="allowed"),
        "z",
        fa.Mean("w", missing="allowed"),
        fa.Ratio("y", "w", missing="allowed"),
    ]
    plan = plan_of(
        outcomes, unit=unit, segments=[{"column": "s", "levels": ["even", "odd"]}], privacy={"smallest_cell": 30}
    )
    trial = folded(plan, rows)
    told = trial.read(TOLD)
    for row in told:
        few_have = row.outcome in ("w", "y / w")
        assert row.reliable is not few_have
        assert (row.estimate is None, row.p_value is None, row.control_level is None) == (few_have,) * 3
        assert row.why == ("Fewer than 30 units of an arm have this outcome." if few_have else None)
    within = {each.outcome: [row.reliable for row in each.effects] for each in told.segments}
    assert within == {"y": [False, False], "z": [True, True], "w": [False, False], "y / w": [False, False]}


def test_too_few_records_to_adjust_are_saved_and_told_all_the_same() -> None:
    """What one outcome alone has says nothing of how to adjust all of them."""
    outcomes = [fa.Mean("y", missing="allowed"), fa.Mean("z", missing="allowed")]
    plan = fa.Plan(name="few", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=outcomes, covariates=["x"], received="d")
    few = {"g": ["a", "b"], "y": [1.0, None], "z": [None, 2.0], "x": [0.5, 0.25], "d": [0, 1]}
    trial = fa.Trial(plan, key=KEY)
    trial.fold(few)
    assert all(row.why for row in trial.effects())
    assert fa.Trial.loads(trial.dumps(), key=KEY).n == 2


def test_nothing_can_be_folded_where_an_outcome_may_be_missing() -> None:
    """As a run does before it resumes, to find out whether the state is open."""
    plan = fa.Plan(name="m", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=[fa.Mean("y", missing="allowed")])
    trial = fa.Trial(plan)
    trial.fold([])
    assert trial.n == 0
