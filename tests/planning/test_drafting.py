"""From records to a first plan, without the files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldaway as fa
from foldaway.planning.drafting import Draft, Roles, SeenRecords, draft
from foldaway.planning.drafting.arms import arms_in
from foldaway.planning.drafting.look import SeenUnits


def drafted(records: dict[str, object], batch: int = 10**9, **roles: object) -> Draft:
    table = pa.table(records)
    look = SeenRecords(Roles(**({"arm": "arm", "outcomes": [fa.Mean("y")]} | roles)))  # type: ignore[arg-type]
    for part in table.to_batches(max_chunksize=batch):
        look.add(part)
    return draft(look, "t")


# Arms


def test_spellings_of_an_arm_are_one_arm() -> None:
    counts = {"treatment": 400, "Treatment": 90, " treatment": 1, "TREATMENT ": 2, "control": 500, "contorl": 3}
    assert arms_in("arm", counts).values == {
        "control": ["control", "contorl"],
        "treatment": ["treatment", "Treatment", "TREATMENT ", " treatment"],
    }


@pytest.mark.parametrize(
    ("value", "n"),
    [("treatment b", 2), ("variant", 2), ("treatment2", 3), ("tretmnt", 2), ("t", 2), ("SECRET", 1)],
)
def test_what_may_be_another_arm_is_not_taken_for_a_spelling(value: str, n: int) -> None:
    arms = arms_in("arm", {"treatment a": 500, "control": 500, value: n})
    assert arms.values == {"control": ["control"], "treatment a": ["treatment a"]}
    assert arms.rare == {value: n}


def test_a_misspelling_of_two_arms_is_of_neither() -> None:
    assert arms_in("arm", {"group red": 500, "group rex": 480, "group rez": 2}).rare == {"group rez": 2}
    assert arms_in("arm", {"colour": 500, "colours": 480, "colourz": 2}).rare == {"colourz": 2}


def test_arms_that_are_not_rare_are_arms_however_alike() -> None:
    assert set(arms_in("arm", {"colour": 500, "colours": 480}).values) == {"colour", "colours"}


def test_the_control_may_be_named_in_any_spelling() -> None:
    counts = {"new": 500, "New": 20, "old": 480}
    assert next(iter(arms_in("arm", counts, "New").values)) == "new"
    assert next(iter(arms_in("arm", counts).values)) == "old"


# Units


@given(
    pairs=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", "c"])), min_size=1, max_size=200),
    batch=st.integers(1, 50),
)
def test_units_are_counted_whatever_the_batches(pairs: list[tuple[int, str]], batch: int) -> None:
    records = pa.table({"arm": [arm for _, arm in pairs], "y": np.ones(len(pairs)), "id": [unit for unit, _ in pairs]})
    look = SeenRecords(Roles("arm", [fa.Mean("y")], unit="id"))
    for part in records.to_batches(max_chunksize=batch):
        look.add(part)
    kept = [(unit, arm) for unit, arm in pairs if arm != "c"]  # c is no arm, or a misspelling of a
    several = {unit for unit, arm in kept if (unit, "a") in kept and (unit, "b") in kept}
    assert look.units({"a": 0, "b": 1}) == SeenUnits(len({unit for unit, _ in kept}), len(several))
    mapped = {(unit, "a" if arm == "c" else arm) for unit, arm in pairs}
    both = {unit for unit, _ in mapped if {(unit, "a"), (unit, "b")} <= mapped}
    assert look.units({"a": 0, "c": 0, "b": 1}) == SeenUnits(len({unit for unit, _ in mapped}), len(both))


def test_a_unit_is_no_cluster_and_a_cluster_is_no_unit() -> None:
    arms, y = ["a", "b"] * 200, np.arange(400.0)
    each = drafted({"arm": arms, "y": y, "id": np.arange(400)}, unit="id").plan
    assert (each.unit, each.cluster, each.records_per_unit) == ("id", None, "one")
    several = drafted({"arm": arms, "y": y, "id": np.arange(400) % 50}, unit="id")
    assert (several.plan.unit, several.plan.cluster, several.plan.records_per_unit) == ("id", None, "many")
    assert any("of 50 different values of id" in sentence for sentence in several.assumed)
    village = drafted({"arm": arms, "y": y, "id": np.arange(400) // 8}, unit="id")
    assert (village.plan.unit, village.plan.cluster) == (None, "id")
    assert any("50 of 50 values of id have records in several arms" in sentence for sentence in village.assumed)


def test_few_units_in_several_arms_are_left_out() -> None:
    ids = np.append(np.arange(400) % 200, [1, 2])
    made = drafted({"arm": ["a", "b"] * 200 + ["a", "a"], "y": np.ones(402), "id": ids}, unit="id")
    assert (made.plan.unit, made.plan.drop_limit) == ("id", 0.05)
    assert "In several arms: id of some records: 1 of 402 records." in made.assumed


def test_records_without_a_unit_are_faulty_and_count_for_none() -> None:
    ids = pa.array([None if i < 3 else str(i) for i in range(400)])
    made = drafted({"arm": ["a", "b"] * 200, "y": np.ones(400), "id": ids}, unit="id")
    assert "Without a value of id: 3 of 400 records. If you can, fill in the values." in made.assumed
    assert made.plan.drop_limit == 0.05


# Levels


def test_all_levels_are_those_that_several_records_have() -> None:
    land = ["de", "fr", "at"] * 133 + ["SECRET"]
    made = drafted(
        {"arm": ["a", "b"] * 200, "y": np.ones(400), "land": land}, 7, levels={"land": None}, covariates=["land"]
    )
    assert made.plan.levels == {"land": ("at", "de", "fr")}
    assert made.plan.drop_limit == 0.05
    assert "SECRET" not in made.to_toml()
    assert "A level of land that occurs only once: 1 of 400 records." in " ".join(made.assumed)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (np.arange(400), "has more than 100 different values"),
        (np.append(np.arange(40), np.resize([100, 101], 360)), "40 of 400 records have a value of 'x' that no other"),
        (np.zeros(400, dtype=int), "does not look categorical"),
    ],
)
def test_what_is_not_categorical_has_no_levels(column: object, told: str) -> None:
    with pytest.raises(fa.PlanError, match=told):
        drafted({"arm": ["a", "b"] * 200, "y": np.ones(400), "x": column}, levels={"x": None}, covariates=["x"])


def test_a_draft_can_be_read_again() -> None:
    records = {"arm": ["0", "1"] * 60, "y": [1.0, None] * 60, "n": np.ones(120), "land": ["de", "fr", "fr", "de"] * 30}
    outcomes = [fa.Mean("y"), fa.Ratio("y", "n")]
    made = drafted(records, outcomes=outcomes, segments=["land"], levels={"land": None})
    assert fa.Plan.loads(made.to_toml()) == made.plan
    assert [outcome.missing for outcome in made.plan.outcomes] == ["allowed", "allowed"]
    trial = fa.Trial(made.plan, key=bytes(16))
    trial.fold(records)
    assert trial.counts == {"control": 60, "treatment": 60}
