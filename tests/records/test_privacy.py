"""No error, warning or log line repeats anything from a record (promise P1)."""

from __future__ import annotations

import io
import logging
import math
import traceback
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

import foldaway as fa
from inputs import ALL, OBJECTS, TYPED, query

MARK = "31415926"
SECRET = f"SECRET-{MARK}"
NUMBER = float(MARK) + 0.5358
HUGE = float(f"{MARK}e40")

PLAN = fa.Plan(
    name="private",
    arm="group",
    arms={"a": 0.5, "b": 0.5},
    outcomes=["y"],
    covariates=["x", {"column": "kind", "levels": ["p", "q"]}],
    unit="id",
    weight="w",
    moments=fa.Moments(estimators=["difference"]),
    records_per_unit="together",
)
DROP = msgspec.structs.replace(PLAN, drop_limit=1)


def secrets(n: int = 30) -> dict[str, list[Any]]:
    """Good records that hold nothing but marks."""
    return {
        "group": ["ab"[i % 2] for i in range(n)],
        "y": [NUMBER + i for i in range(n)],
        "x": [NUMBER * (i % 7) for i in range(n)],
        "kind": ["pq"[i % 3 % 2] for i in range(n)],
        "id": [f"{SECRET}-{i}" for i in range(n)],
        "w": [NUMBER] * n,
    }


def spoiled(column: str, value: Any) -> dict[str, list[Any]]:
    columns = secrets()
    columns[column][3] = value
    return columns


def everything_in(value: Any) -> Iterator[str]:
    """Whatever a handler, a log or a debugger could print of an error."""
    if isinstance(value, BaseException):
        yield from (str(value), repr(value), *traceback.format_exception(value))
        for part in (value.args, vars(value), value.__cause__, value.__context__, getattr(value, "__notes__", ())):
            yield from everything_in(part)
    elif isinstance(value, dict):
        yield from everything_in(list(value.items()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from everything_in(part)
    elif value is not None:
        yield from (str(value), repr(value))


def told(trial: fa.Trial, data: Any) -> list[str]:
    """All that is said while a batch is folded, and the error if it is refused."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.DEBUG)
    said: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                trial.fold(data)
            except Exception as error:
                assert isinstance(error, fa.RecordError), type(error)  # noqa: PT017
                said += everything_in(error)
        said += [str(warning.message) for warning in caught]
    finally:
        logging.getLogger().removeHandler(handler)
    return [*said, log.getvalue()]


def assert_kept(said: list[str]) -> None:
    for text in said:
        assert MARK not in text
        assert "SECRET" not in text


FAULTS: dict[str, tuple[str, Any]] = {
    "unknown arm": ("group", SECRET),
    "null arm": ("group", None),
    "unknown level": ("kind", SECRET),
    "null level": ("kind", None),
    "null": ("y", None),
    "NaN": ("y", math.nan),
    "infinity": ("x", math.inf),
    "too large": ("x", HUGE),
    "negative weight": ("w", -NUMBER),
    "null unit": ("id", None),
    "unit in several arms": ("id", f"{SECRET}-0"),
}
MIXED: dict[str, tuple[str, Any]] = {
    "text for a number": ("y", SECRET),
    "number for an arm": ("group", NUMBER),
    "bytes for a level": ("kind", SECRET.encode()),
    "list for a number": ("x", [SECRET, NUMBER]),
    "dict for a unit": ("id", {SECRET: NUMBER}),
    "number for a unit": ("id", NUMBER),
    "half a character in an arm": ("group", f"{SECRET}\ud800"),
    "half a character in a number": ("y", f"{SECRET}\ud800"),
    "integer beyond all floats": ("y", int(MARK) * 10**400),
    "integer beyond all text": ("group", int(MARK) * 10**5000),
    "signalling NaN": ("y", Decimal(f"sNaN{MARK}")),
    "complex": ("w", complex(NUMBER, 1)),
}


def test_the_search_finds_what_it_looks_for() -> None:
    def leak() -> None:
        try:
            float(SECRET)
        except ValueError:
            raise fa.RecordError("hidden")  # noqa: B904

    with pytest.raises(fa.RecordError) as caught:
        leak()
    with pytest.raises(AssertionError):
        assert_kept(list(everything_in(caught.value)))


@pytest.mark.parametrize("case", [*FAULTS, *MIXED])
def test_a_refusal_repeats_nothing_of_the_records(case: str) -> None:
    column, value = (FAULTS | MIXED)[case]
    for name, form in (ALL if case in FAULTS else OBJECTS).items():
        said = told(fa.Trial(PLAN), form(spoiled(column, value)))
        assert any("none of it was folded" in text for text in said), name
        assert_kept(said)


@pytest.mark.parametrize("case", [*FAULTS, *MIXED])
@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_what_is_kept_and_shown_names_no_unit_and_no_unknown_arm_or_level(case: str) -> None:
    column, value = (FAULTS | MIXED)[case]
    trial = fa.Trial(DROP)
    said = told(trial, spoiled(column, value))
    assert len(said) == 1, "the batch was refused"
    assert_kept(said)
    assert trial.dropped.total > 0
    assert SECRET.encode() not in trial.dumps()
    effects = trial.effects()
    shown = [str(effects), effects.to_json(), effects.to_html(), repr(trial), repr(effects), repr(trial.dropped)]
    assert not any("SECRET" in text for text in shown)


@pytest.mark.parametrize("form", TYPED)
def test_a_whole_column_of_a_wrong_type(form: str) -> None:
    for column in ("y", "x", "w"):
        assert_kept(told(fa.Trial(PLAN), TYPED[form]({**secrets(), column: [f"{SECRET}-{i}" for i in range(30)]})))
    assert_kept(told(fa.Trial(PLAN), TYPED[form]({**secrets(), "group": [NUMBER] * 30, "kind": [NUMBER] * 30})))


def reader_that_fails() -> pa.RecordBatchReader:
    """Arrow finds out half-way that a cell is no number, and quotes it."""
    text = "group,y\n" + "a,1\n" * 200_000 + f"a,{SECRET}\n"
    options = pyarrow.csv.ConvertOptions(column_types={"y": pa.float64()})
    blocks = pyarrow.csv.ReadOptions(block_size=1 << 16)
    return pyarrow.csv.open_csv(io.BytesIO(text.encode()), convert_options=options, read_options=blocks)


def query_that_fails() -> Any:
    return query({"group": ["a"], "text": [SECRET]}, 'select "group", cast(text as double) as y from given')


class Table:
    """Something that speaks Arrow until it is asked to."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise ValueError(SECRET)


SIMPLE = fa.Plan(name="simple", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])


@pytest.mark.parametrize("source", [reader_that_fails, query_that_fails, Table])
def test_a_source_that_fails_with_a_value_in_its_words(source: Callable[[], Any]) -> None:
    with pytest.raises(Exception, match=SECRET):  # the words of the source itself
        pa.table(source())
    said = told(fa.Trial(SIMPLE), source())
    assert any("could not be read" in text for text in said)
    assert_kept(said)


def test_a_table_of_a_wrong_shape_is_not_quoted_either() -> None:
    columns = secrets()
    arrays = [pa.array(values) for values in columns.values()]
    shapes: dict[str, Any] = {
        "ragged": {**columns, "y": columns["y"][1:]},
        "not a sequence": {**columns, "y": SECRET},
        "a single record": {name: values[0] for name, values in columns.items()},
        "missing": {name: values for name, values in columns.items() if name != "y"},
        "doubled": pa.Table.from_arrays([*arrays, arrays[1]], names=[*columns, "y"]),
        "text": SECRET,
        "bytes": SECRET.encode(),
        "number": NUMBER,
        "a column": pd.Series(columns["id"]),
        "an array": pa.array(columns["id"]),
        "texts": columns["id"],
        "no records": [*columns["y"], SECRET, None, [SECRET]],
        "other keys": [{SECRET: NUMBER}],
        "other columns": {SECRET: [NUMBER]},
    }
    for shape, data in shapes.items():
        said = told(fa.Trial(PLAN), data)
        assert len(said) > 1, f"{shape} was taken"
        assert_kept(said)
