"""The audit finds whom the tallies give away, and nobody else: held against the rows, which it never sees."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from foldaway.auditing.audit import audit
from foldaway.auditing.cells import ArmCells, solve
from foldaway.auditing.finding import Audit
from foldaway.auditing.moments import solvable
from foldaway.tallies import arms_of, grouped_of
from foldaway.tallies.moments.combinations import Combinations, indicators, level_columns, raw_scores
from plans import listing

LEVELS = {"a": list("pqrstu"), "b": list("pqrst"), "c": list("pqrs"), "d": list("pqr")}


def records(n: int, share: float = 1.0, seed: int = 1) -> pd.DataFrame:
    """People with four categorical covariates whose levels get rarer, and amounts that a share of them have."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"arm": rng.choice(["x", "y"], n), "who": np.arange(n)})
    for name, levels in LEVELS.items():
        odds = 0.6 ** np.arange(len(levels))
        rows[name] = rng.choice(levels, n, p=odds / odds.sum())
    rows["amount"] = np.where(rng.random(n) < share, np.round(rng.lognormal(3, 1, n), 2), 0.0)
    return rows


def plan_of(**settings: object) -> fa.Plan:
    covariates = settings.pop("covariates", list(LEVELS))
    return fa.Plan(
        name="audited",
        arm="arm",
        arms={"x": 0.5, "y": 0.5},
        outcomes=["amount"],
        covariates=listing(covariates, LEVELS),  # type: ignore[arg-type]
        **settings,  # type: ignore[arg-type]
    )


def audited(plan: fa.Plan, rows: pd.DataFrame, *, saved: bool = True) -> Audit:
    trial = fa.Trial(plan, key=bytes(16)) if plan.keyed else fa.Trial(plan)
    trial.fold(rows)
    if saved:
        trial.fix()
    return audit(plan, trial.tallies)


def by_attack(found: Audit) -> dict[str, int]:
    return {each.attack: each.near for each in found.findings}


def test_everybody_who_is_alone_in_three_levels_is_found_with_the_right_amount() -> None:
    rows, plan = records(1500), plan_of(moments={})
    trial = fa.Trial(plan)
    trial.fold(rows)
    for arm, tally in zip(plan.arms, arms_of(trial.tallies), strict=True):
        here = rows[rows["arm"] == arm]
        scores = raw_scores(tally)
        assert scores is not None
        table = Combinations(scores, [indicators(len(plan.regressors), c.columns) for c in level_columns(plan)])
        found = {
            tuple(LEVELS[name][level] for name, level in zip(LEVELS, who, strict=True)): values[0]
            for who, values in table.people().items()
        }
        full = here.groupby(list(LEVELS))["amount"].agg(["size", "sum"])
        assert all(full.loc[who, "size"] == 1 for who in found)
        assert all(abs(float(full.loc[who, "sum"]) - amount) < 1e-6 for who, amount in found.items())  # type: ignore[arg-type]
        alone = {
            tuple(row)
            for three in combinations(LEVELS, 3)
            for row in here[~here.duplicated(list(three), keep=False)][list(LEVELS)].to_numpy()
        }
        assert len(alone) > 20
        assert alone < set(found)  # subtraction finds more


@pytest.mark.parametrize("covariates", [[], ["a"], ["a", "b"], ["a", "b", "c"]])
def test_with_fewer_covariates_it_is_those_alone_in_all_of_them(covariates: list[str]) -> None:
    rows = records(300)
    found = by_attack(audited(plan_of(moments={}, covariates=covariates), rows, saved=False))
    alone = int((~rows.duplicated(["arm", *covariates], keep=False)).sum())
    assert found.get("unique combinations of levels", 0) == alone


def test_a_numeric_column_of_zeros_and_ones_has_levels_too() -> None:
    rows = records(300).assign(premium=lambda r: (r.index % 100 == 0) * 1.0)
    plan = fa.Plan(
        name="n", arm="arm", arms={"x": 0.5, "y": 0.5}, outcomes=["amount"],
        covariates=listing(["premium", "a"], LEVELS), moments=fa.Moments(),
    )  # fmt: skip
    alone = int((~rows.duplicated(["arm", "premium", "a"], keep=False)).sum())
    assert by_attack(audited(plan, rows, saved=False))["unique combinations of levels"] == alone > 0
    assert audited(plan, rows).solved == 0  # it is pooled like any other


def test_pooling_leaves_nobody_to_find_among_those_with_an_outcome_of_their_own() -> None:
    rows = records(1500)
    assert audited(plan_of(moments={}), rows, saved=False).solved > 50
    assert audited(plan_of(moments={}), rows).solved == 0


def test_amounts_that_few_have_stand_out_in_moments_by_pairs_of_levels() -> None:
    rows = records(1500, share=0.02)
    before = by_attack(audited(plan_of(moments={}), rows, saved=False))
    after = by_attack(audited(plan_of(moments={}), rows))
    assert before["dominance"] > 10
    assert set(after) == {"dominance"}


def test_the_default_tells_nobody() -> None:
    for share in (1.0, 0.2, 0.02):
        assert audited(plan_of(), records(1500, share)).findings == []
    assert audited(plan_of(unit="who"), records(5000)).findings == []


def test_cells_of_one_record_are_found() -> None:
    rows = records(200)
    plan = plan_of(unit="who")
    trial = fa.Trial(plan, key=bytes(16))
    trial.fold(rows)
    trial.fix()
    single = int((grouped_of(trial.tallies).records == 1).sum())
    found = audit(plan, trial.tallies)
    assert by_attack(found)["cells of one record"] == single > 20
    assert "records_per_unit" in found.findings[0].remedy
    assert audited(plan_of(unit="who", records_per_unit="one"), rows).findings == []


def test_a_sparse_outcome_stands_alone_in_as_many_cells_as_expected() -> None:
    expected, right, claims = 0, 0, 0
    for seed in range(5):
        rows = records(4000, share=0.01, seed=seed)
        plan = plan_of(unit="who")
        trial = fa.Trial(plan, key=bytes(16))
        trial.fold(rows)
        trial.fix()
        found = audit(plan, trial.tallies).findings
        assert {each.attack for each in found} <= {"sparse outcomes", "dominance"}
        amounts = Counter(rows.loc[rows["amount"] > 0, "amount"].round(2))
        totals = np.round(grouped_of(trial.tallies).plain().totals(0), 2).ravel()
        claimed = totals[totals > 0]
        expected, claims = expected + sum(each.near for each in found), claims + len(claimed)
        right += sum(total in amounts for total in claimed.tolist())
        assert sum(each.claims for each in found) == len(claimed)
    assert abs(right - expected) < 4 * np.sqrt(claims * 0.25)
    assert right > 0.7 * claims


def test_fewer_groups_hide_them() -> None:
    rows = records(4000, share=0.02)
    (found,) = audited(plan_of(unit="who"), rows).findings
    assert "`expected_units = 320` (for 16 groups)" in found.remedy
    assert audited(plan_of(unit="who", expected_units=320), rows).findings == []


def test_two_records_of_an_arm_are_two_equations() -> None:
    arm = ArmCells(np.array([1.0, 0.0, 2.0]), np.array([4.0, 0.0, 12.0]), square=16 + 25 + 49, positive=True)
    assert [round(each.low, 9) for each in solve(arm).pair] == [5, 7]


def test_a_whale_is_known_to_within_a_tenth() -> None:
    rng = np.random.default_rng(2)
    values = [*rng.uniform(1, 3, 19), 5000.0]
    arm = ArmCells(np.array([20.0]), np.array([sum(values)]), float(np.square(values).sum()), positive=True)
    (whale,) = solve(arm).largest
    assert whale.low <= 5000 <= whale.high
    assert not whale.exact
    small = ArmCells(np.array([20.0]), np.array([sum(values[:-1])]), float(np.square(values[:-1]).sum()), positive=True)
    assert solve(small).largest == []


def test_replicates_take_the_key_and_identifiers() -> None:
    plan = plan_of(unit="who", expected_units=320, moments={"bootstrap": 200})
    found = audited(plan, records(300))
    assert found.solved == 0
    assert found.solved_with_keys == 300
    assert [each.needs for each in found.findings] == ["the trial's key and all identifiers"]
    assert solvable(200, 5000, 4000) == 0


def test_a_histogram_tells_every_value_within_its_bounds_to_whoever_reads_it() -> None:
    outcomes = [fa.Quantile("y", (0.5,), bounds=(10, 1_000)), fa.Quantile("y", (0.5,), bounds=(1, 9), name="coarse")]
    plan = fa.Plan(name="seen", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=outcomes)
    y = np.linspace(20, 1_100, 400)
    rows = {"g": np.where(np.arange(400) % 2, "a", "b"), "y": y}
    trial = fa.Trial(plan)
    trial.fold({name: column[:300] for name, column in rows.items()})
    before = trial.tallies
    trial.fold({name: column[300:] for name, column in rows.items()})
    (found,) = [each for each in audit(plan, trial.tallies).findings if each.attack == "histograms"]
    assert (found.near, found.exact) == (int((y <= 1_000).sum()), 0)
    (found,) = [each for each in audit(plan, trial.tallies, before).findings if each.attack == "histograms"]
    assert found.near == int((y[300:] <= 1_000).sum())


def test_the_baseline_of_few_records_tells_their_values() -> None:
    """A column that one record of an arm has is that record's value; two make two, and many none."""
    plan = fa.Plan(name="few", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], baseline=["age", "weight"])
    rng = np.random.default_rng(1)
    ages: list[float | None] = [None] * 400
    ages[7], ages[10], ages[12] = 61.5, 40.25, 52.0  # of b; of a
    rows: dict[str, Any] = {
        "g": ["a", "b"] * 200,
        "y": rng.normal(size=400),
        "age": ages,
        "weight": rng.normal(70, 9, 400),
    }
    trial = fa.Trial(plan)
    trial.fold(rows)
    found = {(each.attack, each.outcome): each for each in audit(plan, trial.tallies).findings}
    assert {name for _, name in found} == {"age (baseline)"}
    assert found["cells of one record", "age (baseline)"].exact == 1
    assert found["arms of two records", "age (baseline)"].exact == 2
    assert all("`baseline`" in each.remedy for each in found.values())
    before = fa.Trial(plan)
    before.fold({name: list(values)[:398] for name, values in rows.items()})
    between = [each.outcome for each in audit(plan, trial.tallies, before.tallies).findings]
    assert "weight (baseline)" in between  # one record of each arm has come since
