"""Faulty records are counted exactly, refused whole or left out, and change nothing else."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldaway as fa
import foldaway.records.batch
from foldaway.cli.terminal.printing import print_effects
from foldaway.effects.door import TOLD
from foldaway.records.check import hashes
from foldaway.records.faults import Fault, FaultyBatch
from foldaway.report.page.trust import left_out_check
from fuzzing import fuzz
from inputs import ALL, OBJECTS, PANDAS, records
from sizes import mostly_slow
from trials import make_trial

pytestmark = [
    pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result"),  # advice from DuckDB
    pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning"),
]

PLAN = fa.Plan(
    name="faults",
    arm="group",
    arms={"a": 0.5, "b": 0.5},
    outcomes=["y"],
    covariates=["x", {"column": "kind", "levels": ["p", "q"]}],
    unit="id",
    weight="w",
    moments=fa.Moments(estimators=["regression"]),
    records_per_unit="together",
)
DROP = msgspec.structs.replace(PLAN, drop_limit=1)

Counts = dict[tuple[str, str, str], int]


def good(n: int = 40, seed: int = 1) -> dict[str, list[Any]]:
    """Records of units that have two each."""
    rng = np.random.default_rng(seed)
    return {
        "group": ["aabb"[i % 4] for i in range(n)],
        "y": rng.normal(size=n).tolist(),
        "x": rng.normal(size=n).tolist(),
        "kind": rng.choice(["p", "q"], n).tolist(),
        "id": [f"unit-{i // 2}" for i in range(n)],
        "w": rng.uniform(1, 2, n).tolist(),
    }


def spoiled(column: str, value: Any, *rows: int) -> dict[str, list[Any]]:
    columns = good()
    for row in rows:
        columns[column][row] = value
    return columns


def refusal(trial: fa.Trial, data: Any) -> FaultyBatch:
    """The refusal of a batch, which leaves the trial as it was."""
    before = trial.dumps()
    with pytest.raises(FaultyBatch) as caught:
        trial.fold(data)
    assert trial.dumps() == before
    assert isinstance(caught.value, fa.RecordError)
    return caught.value


def counted(faults: Any) -> Counts:
    return {(fault.arm, fault.column, fault.rule): fault.records for fault in faults}


# Each rule: what is put where (records 0 and 1 are of arm a, 2 of arm b), and what is counted.

TOO_LARGE, NOT_POSITIVE = "too large (over 1e40)", "not positive (over 1e-40)"
TYPED_FAULTS: dict[str, tuple[str, Any, Counts]] = {
    "unknown arm": ("group", "z", {("", "group", "unknown arm"): 3}),
    "null arm": ("group", None, {("", "group", "null"): 3}),
    "unknown level": ("kind", "z", {("a", "kind", "unknown level"): 2, ("b", "kind", "unknown level"): 1}),
    "null level": ("kind", None, {("a", "kind", "null"): 2, ("b", "kind", "null"): 1}),
    "null unit": ("id", None, {("a", "id", "null"): 2, ("b", "id", "null"): 1}),
    **{
        f"{rule} in {column}": (column, value, {("a", column, rule): 2, ("b", column, rule): 1})
        for column in ("y", "x", "w")
        for rule, value in (("null", None), ("NaN", math.nan), ("infinity", math.inf), (TOO_LARGE, 1e41))
    },
    **{
        f"weight {value}": ("w", value, {("a", "w", NOT_POSITIVE): 2, ("b", "w", NOT_POSITIVE): 1})
        for value in (0.0, -1.0, 1e-41)
    },
}
MIXED_FAULTS: dict[str, tuple[str, Any, Counts]] = {
    f"wrong type in {column}": (column, value, {(arm, column, "wrong type"): n for arm, n in arms.items()})
    for column, value, arms in (
        ("group", 1.5, {"": 3}),
        ("kind", b"p", {"a": 2, "b": 1}),
        ("y", "1", {"a": 2, "b": 1}),
        ("x", ["1"], {"a": 2, "b": 1}),
        ("w", {"w": 1}, {"a": 2, "b": 1}),
        ("id", 1.5, {"a": 2, "b": 1}),
    )
}
FAULTS = TYPED_FAULTS | MIXED_FAULTS


def expected(counts: Counts, form: str) -> Counts:
    """For pandas a NaN is a null."""
    return {(a, c, "null" if r == "NaN" and form in PANDAS else r): n for (a, c, r), n in counts.items()}


def forms(case: str) -> list[str]:
    return list(ALL if case in TYPED_FAULTS else OBJECTS)


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_batch_is_refused_and_counted_by_column_and_rule(case: str) -> None:
    column, value, counts = FAULTS[case]
    for form in forms(case):
        error = refusal(fa.Trial(PLAN), ALL[form](spoiled(column, value, 0, 1, 2)))
        assert counted(error.faults) == expected(counts, form), form
        assert error.faults.total == 3
        rule = next(iter(expected(counts, form)))[2]
        assert "3 of 40 records are faulty" in str(error)
        assert f"  {column}: 3 {rule}\n" in str(error)
        assert "set drop_limit in the plan" in str(error)


@cache
def without_the_first_three() -> fa.Effects:
    trial = fa.Trial(DROP)
    trial.fold({name: values[3:] for name, values in good().items()})
    return trial.effects()


@pytest.mark.parametrize("case", mostly_slow(FAULTS, *list(FAULTS)[::2]))
def test_where_the_plan_says_so_faulty_records_are_left_out_and_counted(case: str) -> None:
    column, value, counts = FAULTS[case]
    by_arm: Counter[str] = Counter()
    for (arm, _, _), n in counts.items():
        by_arm[arm] += n
    for form in forms(case):
        trial = fa.Trial(DROP)
        trial.fold(ALL[form](spoiled(column, value, 0, 1, 2)))
        effects = trial.effects()
        assert_same_effects(effects, without_the_first_three())
        assert counted(effects.faults) == expected(counts, form), form
        assert effects.dropped == by_arm
        assert trial.dropped.total == 3


def assert_same_effects(ours: fa.Effects, theirs: fa.Effects) -> None:
    assert ours.counts == theirs.counts
    assert len(ours) == len(theirs) > 0
    for row, same in zip(ours, theirs, strict=True):
        assert (row.estimator, row.se_kind, row.n) == (same.estimator, same.se_kind, same.n)
        assert (row.reliable, row.why) == (same.reliable, same.why)
        if same.reliable:
            numbers, others = (row.estimate, row.std_error, row.df), (same.estimate, same.std_error, same.df)
            assert numbers == pytest.approx(others, rel=1e-9)


def test_a_record_counts_once_however_many_rules_it_breaks() -> None:
    columns = good()
    columns["y"][0], columns["w"][0], columns["kind"][0] = math.nan, None, "z"
    columns["y"][3] = math.inf
    error = refusal(fa.Trial(PLAN), columns)
    assert error.faults.total == 2
    assert counted(error.faults) == {
        ("a", "kind", "unknown level"): 1,
        ("a", "w", "null"): 1,
        ("a", "y", "NaN"): 1,
        ("b", "y", "infinity"): 1,
    }
    assert error.faults.by_column() == {
        "kind": {"unknown level": 1},
        "w": {"null": 1},
        "y": {"NaN": 1, "infinity": 1},
    }


def test_a_wrong_type_of_a_whole_column_is_counted_in_every_record() -> None:
    for column, rule in (("y", "wrong type"), ("x", "wrong type"), ("w", "wrong type")):
        table = pa.table({**good(), column: [str(value) for value in good()[column]]})
        assert refusal(fa.Trial(PLAN), table).faults.by_column() == {column: {rule: 40}}
    for column in ("group", "kind", "id"):
        table = pa.table({**good(), column: pa.array(range(40), pa.timestamp("s"))})
        assert refusal(fa.Trial(PLAN), table).faults.by_column() == {column: {"wrong type": 40}}


def test_a_refusal_says_what_to_do() -> None:
    """Single records can be mended or dropped; a column that is wrong throughout must be written in another way."""
    one = str(refusal(fa.Trial(PLAN), spoiled("y", None, 0)))
    assert "set drop_limit in the plan to 0.05." in one
    for column, value in (("y", None), ("group", "A")):  # more than the plan would drop
        many = str(refusal(fa.Trial(PLAN), spoiled(column, value, 0, 1, 2)))
        assert "set drop_limit in the plan above their share of all records" in many
    dates = str(refusal(fa.Trial(PLAN), pa.table({**good(), "x": pa.array(range(40), pa.date32())})))
    assert "have the wrong type as numbers" in dates
    arms = str(refusal(fa.Trial(PLAN), {**good(), "group": [arm.upper() for arm in good()["group"]]}))
    assert "spelled exactly as in the plan" in arms
    assert "drop" not in dates + arms
    # Which is all that is left of a name that is misspelt in JSON.
    absent = str(refusal(fa.Trial(PLAN), {**good(), "y": [None] * 40}))
    assert "No record has a value of y: is the name in the records spelled" in absent
    assert "No record has a value" not in one


def test_things_that_are_no_records_are_counted_apart() -> None:
    given_as = [*records(good()), None, 3, "text", ["a", 1.0]]
    error = refusal(fa.Trial(PLAN), given_as)
    assert counted(error.faults) == {("", "(record)", "not a record"): 4}
    assert "4 of 44 records are faulty" in str(error)
    trial, other = fa.Trial(DROP), fa.Trial(DROP)
    trial.fold(given_as)
    other.fold(good())
    assert_same_effects(trial.effects(), other.effects())
    assert trial.effects().dropped == {"": 4}
    nothing = fa.Trial(DROP)
    nothing.fold([None, 3])
    assert (nothing.n, nothing.dropped.total) == (0, 2)


def test_lines_that_whoever_read_them_could_not_read_are_faults_too() -> None:
    trial = fa.Trial(PLAN)
    before = trial.dumps()
    with pytest.raises(FaultyBatch, match="2 of 42 records are faulty"):
        trial.fold(good(), unreadable=2)
    assert trial.dumps() == before
    dropping = fa.Trial(DROP)
    dropping.fold(good(), unreadable=2)
    dropping.fold([], unreadable=1)
    assert (dropping.n, dropping.effects().dropped) == (40, {"": 3})


def test_a_key_that_a_record_lacks_is_null() -> None:
    rows = records(good())
    del rows[3]["y"]
    assert counted(refusal(fa.Trial(PLAN), rows).faults) == {("b", "y", "null"): 1}


# A unit is of one arm


def test_a_unit_in_several_arms_is_faulty_in_all_its_records() -> None:
    columns = good()
    columns["id"][3] = "unit-0"  # records 0 and 1 of arm a, now 3 of arm b
    error = refusal(fa.Trial(PLAN), columns)
    assert counted(error.faults) == {("a", "id", "unit in several arms"): 2, ("b", "id", "unit in several arms"): 1}
    trial, other = fa.Trial(DROP), fa.Trial(DROP)
    trial.fold(columns)
    other.fold({name: values[2:3] + values[4:] for name, values in good().items()})
    assert_same_effects(trial.effects(), other.effects())


def test_a_unit_in_several_arms_is_seen_only_where_units_are_complete() -> None:
    columns = good()
    columns["id"][3] = "unit-0"
    trial = fa.Trial(msgspec.structs.replace(PLAN, records_per_unit="many"))
    trial.fold(columns)
    assert trial.n == 40


def test_records_without_a_known_arm_or_unit_put_no_unit_in_several_arms() -> None:
    columns = good()
    columns["group"][1] = "z"
    columns["id"][2] = columns["id"][4] = None
    assert counted(refusal(fa.Trial(PLAN), columns).faults) == {
        ("", "group", "unknown arm"): 1,
        ("b", "id", "null"): 1,
        ("a", "id", "null"): 1,
    }


def test_a_fault_of_its_own_is_all_that_such_a_record_has() -> None:
    """Even if the last unit, with which a null could be confused, is in several arms."""
    columns = good()
    columns["group"][38] = "a"  # of the last unit, the other record of which is of arm b
    columns["group"][4] = "z"
    columns["id"][4] = columns["id"][39]
    columns["id"][8] = None
    assert counted(refusal(fa.Trial(PLAN), columns).faults) == {
        ("", "group", "unknown arm"): 1,
        ("a", "id", "null"): 1,
        ("a", "id", "unit in several arms"): 1,
        ("b", "id", "unit in several arms"): 1,
    }


# Small and empty batches


def test_a_batch_of_faulty_records_only() -> None:
    columns = {**good(), "y": [None] * 40}
    assert refusal(fa.Trial(PLAN), columns).faults.total == 40
    trial = fa.Trial(DROP)
    trial.fold(columns)
    assert (trial.n, trial.dropped.total) == (0, 40)
    assert {row.estimate for row in trial.effects()} == {None}


def test_one_record() -> None:
    for name, form in ALL.items():
        trial = fa.Trial(PLAN)
        trial.fold(form({column: values[:1] for column, values in good().items()}))
        assert trial.counts == {"a": 1, "b": 0}, name
        bad = {column: values[:1] for column, values in spoiled("y", None, 0).items()}
        assert refusal(trial, form(bad)).faults.total == 1, name


@fuzz(max_examples=15)
@given(st.sets(st.integers(0, 39)), st.sampled_from([*TYPED_FAULTS]), st.integers(1, 39))
def test_any_batching_counts_the_same(rows: set[int], case: str, cut: int) -> None:
    column, value, _ = FAULTS[case]
    plan = msgspec.structs.replace(DROP, records_per_unit="many")
    columns = spoiled(column, value, *rows)
    whole, parts = fa.Trial(plan), fa.Trial(plan)
    whole.fold(columns)
    parts.fold({name: values[:cut] for name, values in columns.items()})
    parts.fold(pa.table({name: values[cut:] for name, values in columns.items()}))
    assert whole.dropped == parts.dropped
    assert whole.dropped.total == len(rows)
    assert whole.counts == parts.counts


# The counts are part of the state


def test_the_counts_survive_saving_and_add_up_in_a_merge() -> None:
    first, second = fa.Trial(DROP), fa.Trial(DROP)
    first.fold(spoiled("y", None, 0, 2))
    second.fold(spoiled("y", None, 1))
    second.fold(spoiled("kind", "z", 1, 3))
    loaded = fa.Trial.loads(first.dumps(), DROP)
    assert loaded.dropped == first.dropped
    assert loaded.dumps() == first.dumps()
    for merged in (first + second, second + first, loaded.merge(second)):
        effects = merged.effects()
        assert effects.dropped == {"a": 3, "b": 2}
        assert effects.faults == (
            Fault("a", "kind", "unknown level", 1),
            Fault("a", "y", "null", 2),
            Fault("b", "kind", "unknown level", 1),
            Fault("b", "y", "null", 1),
        )
        assert fa.Trial.loads(merged.dumps()).dropped == merged.dropped
    assert first.dropped.total == 2


def test_the_effects_tell_of_dropped_records_in_a_note() -> None:
    trial = fa.Trial(DROP)
    trial.fold(good())
    assert not any("left out" in note for note in trial.effects().notes)
    trial.fold(spoiled("group", "z", 0) | {"id": [f"other-{i // 2}" for i in range(40)]})
    trial.fold({name: values[2:4] for name, values in spoiled("y", None, 2).items()} | {"id": ["u", "v"]})
    (note,) = [note for note in trial.effects().notes if "left out" in note]
    assert "b 1" in note
    assert "arm unknown or unread 1" in note


def test_others_read_once_of_dropped_records_and_that_small_counts_are_not_shown() -> None:
    trial = fa.Trial(DROP)
    trial.fold(good(4000))
    few = {"group": ["z"] * 6 + ["a"] * 40 + ["b"] * 9, "y": [1.0] * 6 + [None] * 49}
    rest = {"x": [1.0] * 55, "kind": ["p"] * 55, "w": [1.0] * 55, "id": [f"other-{i}" for i in range(55)]}
    trial.fold(few | rest)
    (note,) = [note for note in trial.read(TOLD).notes if "left out" in note]
    assert note.startswith("Faulty records left out: a 40 (y: 40 null).")
    assert "those below 10 are not shown" in note
    html = trial.report(told=trial.read(TOLD)).html
    assert "About 40 faulty records were left out (0.99" in html
    assert "below 10</td>" in html


@pytest.mark.parametrize(("lost", "state"), [({"a": 12, "b": 14}, "passes"), ({"a": 2, "b": 24}, "look")])
def test_a_few_dropped_records_raise_no_alarm_if_the_arms_lost_them_alike(lost: dict[str, int], state: str) -> None:
    columns = good(4000)
    for arm, n in lost.items():
        for row in [row for row, group in enumerate(columns["group"]) if group == arm][:n]:
            columns["y"][row] = None
    trial = fa.Trial(DROP)
    trial.fold(columns)
    check = left_out_check(trial.effects())
    assert check.state == state
    assert "26 faulty records were left out (0.65" in str(check.sentence)


def test_a_refusal_can_leave_a_worker_process() -> None:
    error = refusal(fa.Trial(PLAN), spoiled("y", None, 0))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.faults, again.n) == (str(error), error.faults, 40)


def test_faults_print_themselves() -> None:
    error = refusal(fa.Trial(PLAN), spoiled("y", None, 0, 1))
    assert repr(error.faults) == "Faults: n=2 | y: 2 null"


# Units that are complete


def units_trial(seed: int) -> tuple[fa.Plan, pd.DataFrame]:
    return make_trial(seed, n=150, arms=3, covariates=1, levels=2, weighted=seed % 2 == 0, units=True)


def clustered(plan: fa.Plan, rows: Any) -> list[float | None]:
    trial = fa.Trial(plan)
    trial.fold(rows)
    found = [row for row in trial.effects() if row.se_kind in ("CR0", "CR1") and row.reliable]
    assert {row.estimator for row in found} >= {"difference", "ipw"}  # regressions take more units
    return [number for row in found for number in (row.estimate, row.std_error, row.df)]


@fuzz(max_examples=8)
@given(st.integers(0, 1000), st.integers(0, 2**32))
def test_the_order_of_records_within_a_batch_does_not_matter(seed: int, shuffle: int) -> None:
    plan, rows = units_trial(seed)
    assert clustered(plan, rows.sample(frac=1, random_state=shuffle)) == pytest.approx(clustered(plan, rows), rel=1e-8)


@pytest.mark.parametrize("size", [1, 7])
def test_a_unit_may_be_larger_than_a_block(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        plan, rows = units_trial(seed)
        mixed = rows.sample(frac=1, random_state=seed)
        whole = clustered(plan, rows)
        with monkeypatch.context() as patched:
            patched.setattr(foldaway.records.batch, "_BLOCK", size)
            assert clustered(plan, mixed) == pytest.approx(whole, rel=1e-8)


def test_errors_by_unit_are_not_those_by_record() -> None:
    """So that the two tests above can fail: units lost would leave errors by record."""
    plan, rows = units_trial(1)
    alone = rows.assign(unit=[f"alone-{i}" for i in range(len(rows))])
    assert clustered(plan, rows) != pytest.approx(clustered(plan, alone), rel=1e-3)


def test_a_unit_that_loses_records_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, rows = units_trial(3)
    plan = msgspec.structs.replace(plan, drop_limit=1)
    holes = rows.assign(y0=rows["y0"].where(np.arange(len(rows)) % 5 != 0))
    expected = clustered(plan, holes.dropna())
    assert clustered(plan, holes.sample(frac=1, random_state=1)) == pytest.approx(expected, rel=1e-8)
    monkeypatch.setattr(foldaway.records.batch, "_BLOCK", 3)
    assert clustered(plan, holes.sample(frac=1, random_state=2)) == pytest.approx(expected, rel=1e-8)


def test_a_slip_in_spelling_is_told_before_dropping_is() -> None:
    """One arm of many in other capitals: dropping such records would bias the effects."""
    trial = fa.Trial(PLAN)
    with pytest.raises(fa.RecordError) as refused:
        trial.fold(spoiled("group", "A", 0))
    told = str(refused.value)
    assert 0 < told.index("must be spelled exactly as in the plan") < told.index("drop_limit in the plan to 0.05")


def test_decimal_commas_are_told(tmp_path: Path) -> None:
    """Where all is refused, and where all is dropped."""
    (tmp_path / "t.csv").write_text("group,y\n" + 'a,"1,5"\nb,"2,5"\n' * 3)
    for drop_limit in (0, 0.05):
        plan = fa.Plan(name="t", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], drop_limit=drop_limit)
        with pytest.raises(fa.RecordError, match=r"(?s)y: 6 wrong type.*decimal comma as a point"):
            print_effects(fa.fold_files(tmp_path / "t.csv", plan))


def test_records_without_a_unit_are_numbered_apart() -> None:
    key, other = bytes(range(16)), bytes(16)
    whole = hashes(None, 1000, key)
    assert len(set(whole.tolist())) == 1000
    assert hashes(None, 40, key).tolist() == whole[:40].tolist()
    assert not set(whole.tolist()) & set(hashes(None, 1000, other).tolist())
