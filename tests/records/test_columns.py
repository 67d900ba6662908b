"""Every form of a table gives the same trial."""

from __future__ import annotations

import collections
import math
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldaway as fa
from fuzzing import fuzz
from inputs import ALL, Columns, records

pytestmark = pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")  # advice from DuckDB

PLAN = fa.Plan(
    name="forms",
    arm="group",
    arms={"a": 0.5, "b": 0.3, "c": 0.2},
    outcomes=["y", "bought"],
    covariates=["x", {"column": "kind", "levels": ["p", "q", "r"]}],
    unit="id",
    weight="w",
)


def state(data: Any, plan: fa.Plan = PLAN) -> bytes:
    trial = fa.Trial(plan)
    trial.fold(data)
    return trial.dumps()


def values(size: float = 1e6) -> st.SearchStrategy[float]:
    return st.floats(-size, size, allow_subnormal=False)


@st.composite
def tables(draw: st.DrawFn) -> Columns:
    """Good records, more or fewer than make a short list."""
    n = draw(st.integers(1, 60))

    def column(strategy: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(strategy, min_size=n, max_size=n))

    return {
        "kind": column(st.sampled_from("pqr")),
        "y": column(values()),
        "unused": column(st.dates()),
        "group": column(st.sampled_from("abc")),
        "bought": column(st.booleans()),
        "x": column(st.integers(-(2**40), 2**40)),
        "id": column(st.text("abcdé🙂", min_size=1, max_size=8)),
        "w": column(st.floats(0.01, 100)),
    }


@fuzz(max_examples=5)
@given(tables())
def test_every_form_gives_the_same_state(columns: Columns) -> None:
    expected = state(records(columns))
    assert fa.Trial.loads(expected).n == len(columns["y"])
    for name, form in ALL.items():
        assert state(form(columns)) == expected, name


@fuzz(max_examples=10)
@given(tables())
def test_numpy_arrays_give_the_same_state(columns: Columns) -> None:
    arrays = {name: np.array(values) for name, values in columns.items()}
    expected = state(columns)
    assert state(arrays) == expected
    assert state({name: array[::-1][::-1] for name, array in arrays.items()}) == expected
    assert state({name: np.ma.masked_array(array) for name, array in arrays.items()}) == expected


def good(n: int = 30) -> dict[str, list[Any]]:
    rng = np.random.default_rng(n)
    return {
        "group": rng.choice(list("abc"), n).tolist(),
        "y": rng.normal(size=n).tolist(),
        "bought": (rng.random(n) < 0.5).tolist(),
        "x": rng.integers(-9, 9, n).tolist(),
        "kind": rng.choice(list("pqr"), n).tolist(),
        "id": [f"unit-{i}" for i in range(n)],
        "w": rng.uniform(1, 2, n).tolist(),
    }


@pytest.mark.parametrize("n", [1, 2, 23, 24, 25])
def test_a_list_just_as_long_as_a_short_one(n: int) -> None:
    columns = good(n)
    assert state(columns) == state(records(columns)) == state(pa.table(columns)) == state(pd.DataFrame(columns))


def test_other_sequences() -> None:
    columns = good()
    expected = state(columns)
    for kind in (tuple, collections.deque, collections.UserList, pl.Series, pd.Series, pd.Index, pd.array):
        assert state({name: kind(values) for name, values in columns.items()}) == expected, kind
    assert state({**columns, "x": range(30)}) == state({**columns, "x": list(range(30))})


def test_a_struct_is_a_table() -> None:
    columns = good()
    struct = pa.StructArray.from_arrays([pa.array(values) for values in columns.values()], names=list(columns))
    assert state(struct) == state(columns)


def test_a_reader_is_used_up_and_any_iterable_of_records_will_do() -> None:
    columns = good()
    expected = state(columns)
    rows = records(columns)
    assert state(tuple(rows)) == state(iter(rows)) == state(map(dict, rows)) == expected
    assert state(collections.ChainMap(row) for row in rows) == expected
    assert state([collections.OrderedDict(reversed(row.items())) for row in rows]) == expected


# Units, which are complete: their numbers depend on the form, the errors must not.

COMPLETE = fa.Plan(
    name="units",
    arm="group",
    arms={"a": 0.5, "b": 0.5},
    outcomes=["y"],
    covariates=["x"],
    unit="id",
    moments=fa.Moments(estimators=["difference", "regression"]),
    records_per_unit="together",
)


def errors(data: Any) -> list[float | None]:
    trial = fa.Trial(COMPLETE)
    trial.fold(data)
    rows = trial.effects().filter(se_kind="CR1")
    assert len(rows) == 2
    return [number for row in rows if row.reliable for number in (row.estimate, row.std_error, row.df)]


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@fuzz(max_examples=3)
@given(st.integers(0, 2**32), st.integers(20, 60))
def test_every_form_tells_the_same_units_apart(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    unit = rng.integers(0, n // 2, n)
    unit[:10] = range(10)  # five in each arm
    columns = {
        "group": ["ab"[u % 2] for u in unit],
        "y": rng.normal(size=n).tolist(),
        "x": rng.normal(size=n).tolist(),
        "id": [f"unit-{u}" for u in unit],
    }
    expected = errors(columns)
    for name, form in ALL.items():
        assert errors(form(columns)) == pytest.approx(expected, rel=1e-9), name
    for identifiers in (unit.tolist(), [str(u).encode() for u in unit], [bytes([u]) * 16 for u in unit]):
        assert errors({**columns, "id": identifiers}) == pytest.approx(expected, rel=1e-9)


# What cannot be read


@pytest.mark.parametrize(
    "data",
    [None, 3, 1.5, "text", b"bytes", bytearray(b"b"), memoryview(b"m"), object(), dict, pl.LazyFrame({"y": [1.0]})],
    ids=lambda data: type(data).__name__,
)
def test_what_holds_no_records_is_refused_by_its_type(data: Any) -> None:
    trial = fa.Trial(PLAN)
    with pytest.raises(fa.RecordError, match=f"cannot read a batch from {type(data).__name__}; pass a pandas"):
        trial.fold(data)


@pytest.mark.parametrize(
    "data",
    [pd.Series([1.0]), pl.Series([1.0]), pa.array([1.0]), pa.chunked_array([[1.0]])],
    ids=lambda data: type(data).__name__,
)
def test_a_single_column_is_not_a_table(data: Any) -> None:
    with pytest.raises(fa.RecordError, match="could not be read"):
        fa.Trial(PLAN).fold(data)


def test_missing_columns_are_all_named() -> None:
    columns = {name: values for name, values in good().items() if name not in ("kind", "id")}
    for form in ALL.values():
        trial = fa.Trial(PLAN)
        with pytest.raises(fa.RecordError, match="it has no column 'kind', 'id'"):
            trial.fold(form(columns))
        assert trial.n == 0


@pytest.mark.parametrize(
    "data", [{"other": [1]}, [{"other": 1}], pa.table({"other": [1]}), pd.DataFrame({"other": []})]
)
def test_data_with_none_of_the_columns_is_refused(data: Any) -> None:
    with pytest.raises(fa.RecordError, match="it has no column 'group', 'x', 'kind', 'y', 'bought', 'id', 'w'"):
        fa.Trial(PLAN).fold(data)


def test_rows_without_columns_are_refused() -> None:
    with pytest.raises(fa.RecordError, match="it has no column"):
        fa.Trial(PLAN).fold(pa.table({"other": [1, 2]}).select([]))
    with pytest.raises(fa.RecordError, match="it has no column"):
        fa.Trial(PLAN).fold([{}])


def test_nothing_at_all_is_an_empty_batch() -> None:
    nothing: list[Any] = [[], {}, (), iter(()), pa.table({}), pd.DataFrame(), pl.DataFrame()]
    for empty in nothing:
        trial = fa.Trial(PLAN)
        trial.fold(empty)
        assert trial.dumps() == fa.Trial(PLAN).dumps()


def test_columns_without_records_are_an_empty_batch() -> None:
    for name, form in ALL.items():
        trial = fa.Trial(PLAN)
        before = trial.dumps()
        trial.fold(form({column: [] for column in good()}))
        assert trial.dumps() == before, name


def test_columns_of_one_name_are_refused_if_the_plan_reads_them() -> None:
    columns = good()
    arrays, names = [pa.array(values) for values in columns.values()], list(columns)
    twice = pa.Table.from_arrays([*arrays, arrays[1]], names=[*names, "y"])
    frame = pd.concat([pd.DataFrame(columns), pd.DataFrame(columns)[["y"]]], axis=1)
    for data in (twice, frame):
        with pytest.raises(fa.RecordError, match="it has more than one column 'y'"):
            fa.Trial(PLAN).fold(data)
    unread = pa.Table.from_arrays([*arrays, arrays[1], arrays[1]], names=[*names, "other", "other"])
    assert state(unread) == state(columns)


def test_names_that_are_no_text_are_never_taken_for_columns() -> None:
    frame = pd.DataFrame(good())
    odd = frame.assign(one=1, two=2, three=3).rename(columns={"one": 1, "two": math.nan, "three": ("y", "y")})
    assert state(odd) == state(frame)
    with pytest.raises(fa.RecordError, match="it has no column"):
        fa.Trial(PLAN).fold(frame.set_axis(pd.MultiIndex.from_product([frame.columns, ["z"]]), axis=1))


@pytest.mark.parametrize("where", ["group", "y", "id"])
def test_columns_of_different_lengths_are_ragged(where: str) -> None:
    columns = good()
    columns[where].pop()
    with pytest.raises(fa.RecordError, match=r"its columns have different lengths \(29, 30\)"):
        fa.Trial(PLAN).fold(columns)
    with pytest.raises(fa.RecordError, match="different lengths"):
        fa.Trial(PLAN).fold({name: np.array(values) for name, values in columns.items()})


@pytest.mark.parametrize(
    "values",
    [
        "abc",
        b"abc",
        1.5,
        None,
        {1, 2},
        frozenset({1}),
        {"a": 1},
        np.array(1.0),
        np.ones((30, 2)),
        iter([1.0]),
        object(),
    ],
    ids=lambda values: type(values).__name__,
)
def test_a_column_must_be_a_sequence(values: Any) -> None:
    with pytest.raises(fa.RecordError, match="the column 'y' is not a sequence"):
        fa.Trial(PLAN).fold({**good(), "y": values})


def test_whoever_makes_the_records_fails_in_their_own_words() -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield records(good())[0]
        raise ConnectionError("the line is down")

    trial = fa.Trial(PLAN)
    before = trial.dumps()
    with pytest.raises(ConnectionError, match="the line is down"):
        trial.fold(broken())
    assert trial.dumps() == before


def test_a_query_that_fails_is_refused() -> None:
    connection = duckdb.connect()
    query = connection.sql("select 'a' as \"group\", cast(v as int) as y from (values ('1'), ('one')) t(v)")
    plan = fa.Plan(name="query", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    with pytest.raises(fa.RecordError, match="could not be read"):
        fa.Trial(plan).fold(query)


def test_pandas_is_not_needed_to_read_the_rest() -> None:
    code = (
        "import sys\n"
        "class NotInstalled:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'pandas':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NotInstalled())\n"
        "import foldaway as fa, pyarrow as pa\n"
        "plan = fa.Plan(name='p', arm='g', arms={'a': 0.5, 'b': 0.5}, outcomes=['y'])\n"
        "trial = fa.Trial(plan)\n"
        "trial.fold(pa.table({'g': ['a', 'b'], 'y': [1.0, 2.0]}))\n"
        "trial.fold({'g': ['a', 'b'] * 20, 'y': [1.0, 2.0] * 20})\n"
        "trial.fold([{'g': 'a', 'y': 1.0}])\n"
        "print(trial.n)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "43\n", done.stderr


def test_another_thread_may_be_importing_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))  # so far without anything in it
    trial = fa.Trial(fa.Plan(name="demo", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]))
    trial.fold(pa.record_batch({"arm": ["a", "b"], "y": [1.0, 2.0]}))
    assert trial.n == 2
