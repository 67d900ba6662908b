"""Units that were randomised within clusters: villages with people of both arms."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import foldaway as fa
from foldaway.effects import Effect
from trials import folded, known

PLAN = fa.Plan(
    name="villages", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], cluster="village", expected_units=81_920
)  # fmt: skip


def villages(count: int = 60, people: int = 40, seed: int = 1) -> pd.DataFrame:
    """People of both arms in every village, who have much in common; each with two records."""
    rng = np.random.default_rng(seed)
    village = np.repeat(np.arange(count), people)
    arm = rng.permuted(np.resize([0, 1], (count, people)), axis=1).ravel()
    own = 2 * rng.normal(size=count)[village] + 0.5 * arm * rng.normal(size=count)[village]
    rows = pd.DataFrame({"arm": np.array(["a", "b"])[arm], "village": village, "person": np.arange(len(village))})
    rows = pd.concat([rows, rows])
    return rows.assign(y=np.tile(own, 2) + rng.normal(size=len(rows)))


def kept(rows: pd.DataFrame) -> tuple[float, float]:
    """The difference and its CR1 by village, from all rows: joint over the arms."""
    X = sm.add_constant((rows["arm"] == "b").to_numpy(float))
    keywords = {"groups": rows["village"].to_numpy()}
    fit = sm.OLS(rows["y"].to_numpy(), X).fit(cov_type="cluster", cov_kwds=keywords)
    return float(fit.params[1]), float(fit.bse[1])


def jackknife_of(plan: fa.Plan, *batches: pd.DataFrame) -> Effect:
    trial = fa.Trial(plan, key=bytes(16))
    for batch in batches:
        trial.fold(batch)
    row: Effect = trial.effects().filter(estimator="difference", se_kind="jackknife")[0]
    return row


@pytest.mark.parametrize("unit", [None, "person"])
def test_the_error_is_joint_over_the_arms_however_records_come(unit: str | None) -> None:
    rows = villages()
    plan = msgspec.structs.replace(PLAN, unit=unit)
    estimate, error = kept(rows)
    by_arm = [rows[rows["arm"] == arm] for arm in "ab"]
    row, again = jackknife_of(plan, *by_arm), jackknife_of(plan, rows.sample(frac=1, random_state=1))
    assert row.estimate == pytest.approx(estimate, rel=1e-9)
    assert row.std_error == pytest.approx(error, rel=0.03)
    assert row.std_error == pytest.approx(known(again.std_error), rel=1e-9)


@pytest.mark.filterwarnings("ignore::foldaway.LossWarning")
def test_a_village_in_both_arms_is_not_dropped_in_silence() -> None:
    rows = villages()
    settings: dict[str, Any] = {"cluster": None, "unit": "village", "moments": {}, "records_per_unit": "together"}
    promised = msgspec.structs.replace(PLAN, **settings)
    with pytest.raises(fa.RecordError, match=r"unit in several arms(.|\n)*name the column as the plan's `cluster`"):
        folded(promised, rows)
    alone = rows.assign(village=np.where(rows["person"] < 200, -1 - rows["person"], rows["village"]))
    effects = folded(msgspec.structs.replace(promised, drop_limit=0.05), alone).effects()
    assert any("name the column as the plan's `cluster`" in note for note in effects.notes)


def test_what_was_randomised_is_checked_and_counted_and_not_the_clusters() -> None:
    rows = villages(count=8, people=200)[:1600]  # a record each
    trial = fa.Trial(PLAN, key=bytes(16))
    trial.fold(rows)
    ratio = trial.effects().sample_ratio
    assert (ratio.test, ratio.p_value, ratio.observed) == ("evidence", 1.0, {"a": 800, "b": 800})
    assert trial.newcomers.distinct == len(rows)
    assert trial.tallies.census().units() == {"a": 800, "b": 800}
    several = fa.Trial(msgspec.structs.replace(PLAN, unit="person"), key=bytes(16))
    several.fold(pd.concat([rows, rows])[:1700])
    assert several.newcomers.distinct == several.plan.privacy.cohort  # people, of whom more make no difference


def test_clusters_change_nobodys_arm() -> None:
    plan = msgspec.structs.replace(PLAN, unit="person")
    bare = msgspec.structs.replace(plan, cluster=None)
    assert [plan.assign(i) for i in range(50)] == [bare.assign(i) for i in range(50)]


def test_the_bootstrap_is_by_cluster() -> None:
    rows = villages()
    settings: dict[str, Any] = {"moments": {"estimators": ["difference"], "bootstrap": 400}}
    row = folded(msgspec.structs.replace(PLAN, **settings), rows).effects().filter(se_kind="bootstrap")[0]
    assert row.std_error == pytest.approx(kept(rows)[1], rel=0.12)
