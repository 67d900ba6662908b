"""Arms that the data call by other names."""

from __future__ import annotations

import pickle

import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import foldaway as fa

PLAN = fa.Plan(
    name="named",
    arm="treat",
    arms={"control": {"share": 0.5, "values": "0"}, "treated": {"share": 0.5, "values": ["1", "one"]}},
    outcomes=["y"],
)


@pytest.mark.parametrize("form", [dict, pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("arms", [[0, 1], ["0", "1"], ["0", "one"]])
def test_numbers_in_the_column_are_arms_with_names(form: type, arms: list[int] | list[str]) -> None:
    trial, bare = (
        fa.Trial(PLAN),
        fa.Trial(fa.Plan(name="named", arm="treat", arms={str(arm): 0.5 for arm in arms}, outcomes=["y"])),
    )
    records = {"treat": arms * 50, "y": [float(i % 7) + i % 2 for i in range(100)]}
    trial.fold(form(records))
    bare.fold(form(records))
    [row], [other] = trial.effects(), bare.effects()
    assert (row.arm, row.control) == ("treated", "control")
    assert (row.estimate, row.std_error, row.n_arm) == (other.estimate, other.std_error, other.n_arm)
    assert "(control: 50, treated: 50)" in str(trial.effects())
    assert fa.Plan.loads(PLAN.to_toml()) == PLAN
    assert PLAN.fingerprint != msgspec.structs.replace(PLAN, arms=dict(PLAN.arms)).fingerprint
    assert msgspec.structs.replace(PLAN, confidence=0.9).arms.said == pickle.loads(pickle.dumps(PLAN)).arms.said


def test_the_name_itself_is_then_unknown() -> None:
    with pytest.raises(fa.RecordError, match="unknown arm"):
        fa.Trial(PLAN).fold({"treat": ["control"], "y": [1.0]})


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ({"share": 0.5, "values": "control"}, "the value 'control' more than once"),
        ({"share": 0.5, "values": []}, "no value for 'treated'"),
        ({"share": 0.5}, "`arms` must be a table"),
        ({"share": 0.5, "values": [1]}, "`arms` must be a table"),
        ({"share": 0.5, "values": "1", "value": "2"}, "`arms` must be a table"),
    ],
)
def test_values_that_do_not_fit_the_arms_are_refused(arm: dict[str, object], said: str) -> None:
    with pytest.raises(fa.PlanError, match=said):
        fa.Plan(name="named", arm="t", arms={"control": 0.5, "treated": arm}, outcomes=["y"])
