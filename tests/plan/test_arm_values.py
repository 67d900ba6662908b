"""Arms that the data call by other names."""

from __future__ import annotations

import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import foldaway as fa

PLAN = fa.Plan(
    name="named",
    arm="treat",
    arms={"control": 0.5, "treated": 0.5},
    arm_values={"control": "0", "treated": "1"},
    outcomes=["y"],
)


@pytest.mark.parametrize("form", [dict, pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("arms", [[0, 1], ["0", "1"]])
def test_numbers_in_the_column_are_arms_with_names(form: type, arms: list[int] | list[str]) -> None:
    trial, bare = (
        fa.Trial(PLAN),
        fa.Trial(fa.Plan(name="named", arm="treat", arms={"0": 0.5, "1": 0.5}, outcomes=["y"])),
    )
    records = {"treat": arms * 50, "y": [float(i % 7) + i % 2 for i in range(100)]}
    trial.fold(form(records))
    bare.fold(form(records))
    [row], [other] = trial.effects(), bare.effects()
    assert (row.arm, row.control) == ("treated", "control")
    assert (row.estimate, row.std_error, row.n_arm) == (other.estimate, other.std_error, other.n_arm)
    assert "(control: 50, treated: 50)" in str(trial.effects())
    assert fa.Plan.loads(PLAN.to_toml()) == PLAN
    assert PLAN.fingerprint != msgspec.structs.replace(PLAN, arm_values={}).fingerprint


def test_the_name_itself_is_then_unknown() -> None:
    with pytest.raises(fa.RecordError, match="unknown arm"):
        fa.Trial(PLAN).fold({"treat": ["control"], "y": [1.0]})


@pytest.mark.parametrize(
    ("values", "said"),
    [({"placebo": "2"}, "'placebo', which is not an arm"), ({"control": "1", "treated": "1"}, "different values")],
)
def test_values_that_do_not_fit_the_arms_are_refused(values: dict[str, str], said: str) -> None:
    with pytest.raises(fa.PlanError, match=said):
        fa.Plan(name="named", arm="t", arms={"control": 0.5, "treated": 0.5}, arm_values=values, outcomes=["y"])
