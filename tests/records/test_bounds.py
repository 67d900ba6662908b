"""Values beyond a plan's bounds are clipped and counted, or faulty; a unit has no more records than the plan takes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from foldaway.records.faults import CLIPPED, Fault, FaultyBatch
from plans import RELEASED, SMALL


def plan_of(beyond: str) -> fa.Plan:
    x, y = {"column": "x", "bounds": (-1, 1), "beyond": beyond}, {"column": "y", "bounds": (0, 10), "beyond": beyond}
    return fa.Plan(**{**SMALL, "covariates": [x], "moments": {}, "outcomes": [y]})


CLIPS, REFUSES = plan_of("clip"), plan_of("refuse")


def rows(n: int = 400, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return {"group": ["ab"[i % 2] for i in range(n)], "x": x, "y": 5 + x + 4 * rng.normal(size=n)}


@pytest.mark.parametrize("as_list", [False, True])
def test_clipped_values_give_what_was_clipped_beforehand(as_list: bool) -> None:
    given = rows()
    before = {name: np.array(values) for name, values in given.items()}
    within = given | {"x": np.clip(given["x"], -1, 1), "y": np.clip(given["y"], 0, 10)}
    ours, theirs = fa.Trial(CLIPS), fa.Trial(CLIPS)
    ours.fold({name: list(values) for name, values in given.items()} if as_list else given)
    theirs.fold(within)
    assert ours.effects().rows == theirs.effects().rows
    for name, values in before.items():  # what is the caller's stays as it was
        np.testing.assert_array_equal(given[name], values)


def test_clipped_values_are_counted_by_arm_and_told() -> None:
    given, trial = rows(), fa.Trial(CLIPS)
    trial.fold(given)
    counts = {
        Fault(arm, column, CLIPPED, int(np.sum((given[column] != np.clip(given[column], *CLIPS.bounds[column]))[i::2])))
        for i, arm in enumerate("ab")
        for column in ("x", "y")
    }
    trial = fa.Trial.loads(trial.dumps())
    assert set(trial.dropped) == counts
    assert not trial.dropped.records
    told = next(note for note in trial.effects().notes if "'y'" in note)
    for fault in counts:
        if fault.column == "y":
            assert f"{fault.arm} {fault.records}" in told
    assert "No record was left out as faulty" in trial.report().html


def test_refused_values_are_faults_that_tell_no_value() -> None:
    given = rows()
    trial = fa.Trial(REFUSES)
    with pytest.raises(FaultyBatch, match=r"y: \d+ out of bounds") as caught:
        trial.fold(given)
    assert CLIPPED not in str(caught.value)
    drops = fa.Trial(msgspec.structs.replace(REFUSES, drop_limit=0.05))
    drops.fold(given)
    inside = (np.abs(given["x"]) <= 1) & (given["y"] >= 0) & (given["y"] <= 10)
    assert drops.n == inside.sum()


def test_a_faulty_value_is_not_clipped_as_well() -> None:
    trial = fa.Trial(msgspec.structs.replace(CLIPS, drop_limit=0.05))
    trial.fold({"group": ["a", "b", "a"], "x": [0.5, None, 7.0], "y": [1.0, 99.0, 2.0]})
    assert [(f.arm, f.column, f.rule) for f in trial.dropped] == [("a", "x", CLIPPED), ("b", "x", "null")]


def test_of_a_unit_no_more_records_are_taken_than_the_plan_says() -> None:
    plan = fa.Plan(**{**RELEASED, "drop_limit": 0.05})
    trial = fa.Trial(plan, key=bytes(16))
    trial.fold({"u": [1] * 8 + [2] * 5 + [3], "group": ["a"] * 8 + ["b"] * 6, "y": [1.0] * 14})
    assert trial.counts == {"a": 5, "b": 6}
    with pytest.raises(FaultyBatch, match="1 more records of a unit than the plan allows"):
        fa.Trial(fa.Plan(**RELEASED), key=bytes(16)).fold({"u": [1] * 6, "group": ["a"] * 6, "y": [1.0] * 6})
