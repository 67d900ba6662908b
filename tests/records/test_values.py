"""A column as numbers, codes or identifiers, whatever its type."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldaway.records.columns import columns_of
from foldaway.records.values import codes, identifiers, numbered, numbers, weights
from fuzzing import fuzz

LONG = 40  # records, more than a short list has


def column(values: Any) -> Any:
    """As it comes out of a batch."""
    return columns_of({"c": values}, ["c"])[0]["c"]


def counts(masks: dict[str, Any]) -> dict[str, int]:
    return {rule: int(mask.sum()) for rule, mask in masks.items()}


# Numbers

NUMERIC = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(5, 1), pa.decimal64(9, 2), pa.decimal128(20, 3), pa.decimal256(60, 4)),
]


@pytest.mark.parametrize("kind", NUMERIC, ids=str)
def test_every_numeric_type_is_read_as_its_numbers(kind: pa.DataType) -> None:
    written = [0, 1, None, 17, 100] * 8
    exact = [value if value is None or not pa.types.is_decimal(kind) else Decimal(value) for value in written]
    array = pa.array(exact, kind)
    for given_as in (
        array,
        array.dictionary_encode() if not str(kind).startswith(("decimal32", "decimal64")) else array,
    ):
        found, masks = numbers(column(given_as))
        assert found.dtype == np.float64
        assert found.tolist() == [0.0 if value is None else float(value) for value in written]
        assert counts(masks) == {"null": 8}


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float16, np.float32, np.longdouble, np.bool_, ">f8", ">i4"])
def test_every_numeric_type_of_numpy(kind: Any) -> None:
    found, masks = numbers(column(np.array([0, 1, 1] * 20, dtype=kind)))
    assert found.tolist() == [0.0, 1.0, 1.0] * 20
    assert not masks


@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]", "Int8", "UInt64", "Float32", "int32[pyarrow]", "object"])
def test_every_numeric_type_of_pandas(dtype: str) -> None:
    found, masks = numbers(column(pd.Series([True, None, False] * 20, dtype=dtype)))
    assert found.tolist() == [1.0, 0.0, 0.0] * 20
    assert counts(masks) == {"null": 20}


# Of 3 and a half of NumPy's, Arrow would make 3 and 0.
OBJECTS: list[Any] = [
    True,
    3,
    np.float16(0.5),
    -2.5,
    Decimal("0.1"),
    np.float32(0.5),
    np.int8(-3),
    np.bool_(False),
    2**70,
    np.uint64(2**63),
]


def test_booleans_stored_as_octets() -> None:
    octets = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None] * 20, pa.int8()))
    found, masks = numbers(column(octets))
    assert (found.tolist(), counts(masks)) == ([1.0, 0.0, 0.0] * 20, {"null": 20})


@pytest.mark.parametrize("repeat", [1, 10])
def test_numbers_of_mixed_types(repeat: int) -> None:
    found, masks = numbers(column(OBJECTS * repeat))
    assert found.tolist() == [float(value) for value in OBJECTS] * repeat
    assert not masks


@fuzz(max_examples=50)
@given(st.lists(st.decimals(-(10**12), 10**12, places=6), min_size=LONG, max_size=60))
def test_decimals_are_as_exact_as_floats_can_be(written: list[Decimal]) -> None:
    found, masks = numbers(column(written))
    assert not masks
    assert found == pytest.approx([float(value) for value in written], rel=4e-16, abs=1e-12)


WRONG_NUMBERS: list[tuple[Any, str]] = [
    (None, "null"),
    (math.nan, "NaN"),
    (math.inf, "infinity"),
    (-math.inf, "infinity"),
    (1.01e40, "too large (over 1e40)"),
    (-1e300, "too large (over 1e40)"),
    (10**400, "too large (over 1e40)"),
    (Decimal("NaN"), "NaN"),
    (Decimal("sNaN"), "wrong type"),
    (Decimal("-Infinity"), "infinity"),
    (np.float32(np.inf), "infinity"),
    ("1.5", "wrong type"),
    (b"1", "wrong type"),
    (1j, "wrong type"),
    ([1.0], "wrong type"),
    ({"a": 1}, "wrong type"),
    (datetime.date(2020, 1, 1), "wrong type"),
    (datetime.timedelta(1), "wrong type"),
    (np.timedelta64(1, "ns"), "wrong type"),  # an integer, as NumPy has it
    (np.datetime64(1, "ns"), "wrong type"),
    (object(), "wrong type"),
]


@pytest.mark.parametrize("repeat", [1, 10])
def test_what_is_wrong_with_a_number(repeat: int) -> None:
    for value, rule in WRONG_NUMBERS:
        found, masks = numbers(column([1.0, value, 2.0] * repeat))
        assert counts(masks) == {rule: repeat}, type(value)
        assert masks[rule].tolist() == [False, True, False] * repeat
        assert found[~masks[rule]].tolist() == [1.0, 2.0] * repeat


def test_the_largest_numbers_that_are_not_too_large() -> None:
    assert not numbers(column([1e40, -1e40, 5e-324, 0.0]))[1]


NOT_NUMERIC = [
    pa.array(["1", None] * 20),
    pa.array([b"1", None] * 20),
    pa.array([datetime.datetime(2020, 1, 1), None] * 20),
    pa.array([datetime.date(2020, 1, 1), None] * 20),
    pa.array([datetime.time(1), None] * 20),
    pa.array([1, None] * 20, pa.duration("s")),
    pa.array([1, None] * 20, pa.timestamp("ns", "UTC")),
    pa.array([[1.0], None] * 20),
    pa.array([{"a": 1}, None] * 20),
    pa.array([[("k", 1)], None] * 20, pa.map_(pa.string(), pa.int8())),
    pa.array([[1.0], None] * 20, pa.list_view(pa.float64())),
    pa.array(["1", None] * 20, pa.string_view()),
    pa.array([b"1", None] * 20, pa.binary_view()),
    pa.array(pd.Series(pd.period_range("2020", periods=40, freq="M")).where(np.arange(40) % 2 == 0)),
]


@pytest.mark.parametrize("array", NOT_NUMERIC, ids=lambda array: str(array.type))
def test_a_column_that_is_not_numeric_is_wrong_in_every_record_that_has_a_value(array: pa.Array) -> None:
    for given_as in (array, pa.chunked_array([array.slice(0, 10), array.slice(10)])):
        assert counts(numbers(column(given_as))[1]) == {"null": 20, "wrong type": 20}


@pytest.mark.parametrize(
    "kind", [pa.null(), pa.float64(), pa.string(), pa.list_(pa.int8()), pa.timestamp("us")], ids=str
)
def test_a_column_of_nulls_is_null_whatever_its_type(kind: pa.DataType) -> None:
    array = column(pa.nulls(LONG, kind))
    assert counts(numbers(array)[1]) == {"null": LONG}
    assert counts(codes(array, ["a"], "unknown")[1]) == {"null": LONG}
    assert counts(identifiers(array)[1]) == {"null": LONG}


@pytest.mark.parametrize("repeat", [1, 10])
@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), ("-2e3", -2000.0), (" 7 ", 7.0), ("+.5", 0.5), ("true", 1.0), ("FALSE", 0.0), ("0x10", None)]
    + [(text, None) for text in ("1_000", "١٢", "one", "", "1,5", "½", "--1")],
)
def test_numbers_written_as_text(text: str, value: float | None, repeat: int) -> None:
    written = ["3", text, None] * repeat
    for given_as in (written, pa.array(written), pa.array(written).dictionary_encode()):
        found, masks = numbers(column(given_as), text=True)
        wrong = {} if value is not None else {"wrong type": repeat}
        assert counts(masks) == {"null": repeat} | wrong
        assert found.tolist() == [3.0, value or 0.0, 0.0] * repeat
    assert counts(numbers(column(written))[1]) == {"null": repeat, "wrong type": 2 * repeat}


@pytest.mark.parametrize("repeat", [1, 10])
def test_a_weight_breaks_one_rule_at_most(repeat: int) -> None:
    written = [1.0, 0.0, -1.0, 1e-41, None, math.nan, -math.inf, -1e50, "1"] * repeat
    _, masks = weights(column(written))
    assert counts(masks) == {
        "null": repeat,
        "wrong type": repeat,
        "NaN": repeat,
        "infinity": repeat,
        "too large (over 1e40)": repeat,
        "not positive (over 1e-40)": 3 * repeat,
    }
    assert np.sum(list(masks.values()), axis=0).tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 1] * repeat
    assert not weights(column([1e-39, 1.0, 1e40]))[1]


# Codes

NAMES = ["a", "1", "true", "-3", "é"]


NAMED: list[tuple[list[Any], int | str]] = [
    (["a"], 0),
    ([1, 1.0, "1", np.int8(1), np.float32(1), Decimal(1), Decimal("1.0")], 1),
    ([True, np.bool_(True), "true"], 2),
    ([-3, -3.0, "-3"], 3),
    (["é"], 4),
    (["b", "A", "1.0", 2, False, 0.0, "", "e\u0301", 10**30], "unknown"),
    ([1.5, math.inf, math.nan, 1e300, b"a", 1j, [1], datetime.date(2020, 1, 1), object()], "wrong type"),
    ([np.timedelta64(1, "s"), np.timedelta64(1, "ns"), np.datetime64(1, "ns")], "wrong type"),
    ([10**5000, Decimal("sNaN"), Decimal("Infinity"), Decimal("1e999999")], "wrong type"),
    ([None], "null"),
]


@pytest.mark.parametrize("repeat", [1, LONG])
def test_what_names_what(repeat: int) -> None:
    for values, code in NAMED:
        for value in values:
            found, masks = codes(column([value] * repeat), NAMES, "unknown")
            expected = (code, {}) if isinstance(code, int) else (-1, {code: repeat})
            assert (set(found.tolist()), counts(masks)) == ({expected[0]}, expected[1]), (type(value), code)


CODED = [*NUMERIC[:8], pa.float16(), pa.float32(), pa.float64(), *NUMERIC[11:], pa.string(), pa.large_string()]


@pytest.mark.parametrize("kind", [*CODED, pa.string_view()], ids=str)
def test_every_type_that_can_name_an_arm(kind: pa.DataType) -> None:
    written: list[Any] = [1, 0, None, 2] * 10
    if pa.types.is_decimal(kind):
        written = [None if value is None else Decimal(value) for value in written]
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        written = [None if value is None else str(value) for value in written]
    array = pa.array(written, kind)
    for given_as in (array, array.slice(0), pa.chunked_array([array.slice(0, 7), array.slice(7)])):
        found, masks = codes(column(given_as), ["0", "1"], "unknown")
        assert found.tolist() == [1, 0, -1, -1] * 10
        assert counts(masks) == {"null": 10, "unknown": 10}


@pytest.mark.parametrize("dtype", ["category", "string", "str", "object", "string[pyarrow]"])
def test_every_type_of_pandas_that_can_name_an_arm(dtype: Any) -> None:
    series = pd.Series(["a", None, "b", "c"] * 10).astype(dtype)
    found, masks = codes(column(series), ["a", "b"], "unknown")
    assert found.tolist() == [0, -1, 1, -1] * 10
    assert counts(masks) == {"null": 10, "unknown": 10}


def test_categories_may_be_numbers_and_need_not_be_in_use() -> None:
    series = pd.Series(pd.Categorical([3, 1, None, 1] * 10, categories=[1, 2, 3, 99]))
    found, masks = codes(column(series), ["1", "2"], "unknown")
    assert found.tolist() == [-1, 0, -1, 0] * 10
    assert counts(masks) == {"null": 10, "unknown": 10}


@pytest.mark.parametrize(
    "index", [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.uint32(), pa.int64(), pa.uint64()]
)
def test_a_dictionary_as_full_as_its_indices_allow(index: pa.DataType) -> None:
    size = {pa.int8(): 128, pa.uint8(): 256}.get(index, 300)
    entries = [f"level {i}" for i in range(size)]
    array = pa.DictionaryArray.from_arrays(pa.array([*range(size), None], index), pa.array(entries))
    found, masks = codes(column(array), [entries[-1], entries[0]], "unknown")
    assert found.tolist() == [1, *[-1] * (size - 2), 0, -1]
    assert counts(masks) == {"null": 1, "unknown": size - 2}
    names, nulls = identifiers(column(array))
    assert len(set(numbered(names)[:-1].tolist())) == size
    assert numbered(names)[-1] == -1
    assert counts(nulls) == {"null": 1}


@pytest.mark.parametrize("array", NOT_NUMERIC[1:11] + NOT_NUMERIC[12:], ids=lambda array: str(array.type))
def test_a_column_that_names_nothing_is_wrong_in_every_record_that_has_a_value(array: pa.Array) -> None:
    assert counts(codes(column(array), ["1"], "unknown")[1]) == {"null": 20, "wrong type": 20}


# Identifiers

UNITS = ["17", "4", "17", None, "x", "4"]
SAME = [[0, 2], [1, 5], [4]]


def told_apart(given_as: Any) -> list[list[int]]:
    """Which records have the same unit."""
    names, masks = identifiers(column(given_as))
    found = numbered(names).tolist()
    groups: dict[int, list[int]] = {}
    for at, number in enumerate(found):
        groups.setdefault(number, []).append(at)
    assert groups.pop(-1, []) == [at for at, gone in enumerate(sum(masks.values(), np.zeros(len(found)))) if gone]
    return list(groups.values())


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()],
    ids=str,
)
def test_identifiers_of_every_type_of_text(kind: pa.DataType) -> None:
    array = pa.array(UNITS).cast(kind)
    assert told_apart(array) == told_apart(UNITS) == SAME
    assert told_apart(pa.chunked_array([array.slice(0, 2), array.slice(2)])) == SAME
    if "view" not in str(kind):
        assert told_apart(array.dictionary_encode()) == SAME
        parts = [array.slice(0, 2).dictionary_encode(), array.slice(2).dictionary_encode()]
        assert told_apart(pa.chunked_array(parts)) == SAME


@pytest.mark.parametrize("kind", NUMERIC[:8], ids=str)
def test_identifiers_of_every_type_of_integer(kind: pa.DataType) -> None:
    array = pa.array([17, 4, 17, None, 0, 4], kind)
    assert told_apart(array) == told_apart(array.dictionary_encode()) == SAME
    assert told_apart(array.cast(pa.float64())) == told_apart(array.cast(pa.decimal128(20))) == SAME


def test_identifiers_of_fixed_length() -> None:
    sixteen = [None if unit is None else unit.rjust(16).encode() for unit in UNITS]
    uuids = [None if unit is None else UUID(bytes=unit) for unit in sixteen]
    assert told_apart(pa.array(sixteen, pa.binary(16))) == SAME
    assert told_apart(pa.array(sixteen, pa.uuid())) == SAME
    assert told_apart(uuids) == SAME
    assert told_apart(uuids * 10) == told_apart(sixteen * 10)


@pytest.mark.parametrize("repeat", [1, 10])
def test_identifiers_of_mixed_types(repeat: int) -> None:
    for mixed in ([17, "4", b"17", None, "x", np.int16(4)], [17.0, 4, Decimal(17), None, 0, np.float32(4)]):
        assert told_apart(mixed * repeat) == told_apart(UNITS * repeat)
    halves = ["\ud800", "\udfff", "\ud800", None, "x", "\udfff"] * repeat
    assert told_apart(halves) == told_apart(UNITS * repeat)


def test_an_identifier_that_a_dictionary_holds_twice_is_one_unit() -> None:
    entries = pa.array(["17", "4", None, "x", "17", "unused"])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 4, 2, 3, 1], pa.uint32()), entries)
    assert told_apart(array) == SAME


@pytest.mark.parametrize("repeat", [1, 10])
def test_what_identifies_nothing(repeat: int) -> None:
    nothing: list[Any] = [True, 1.5, math.nan, 2.0**54, Decimal("0.1"), [1], object(), 1j, range(1), 10**5000]
    for value in nothing:
        names, masks = identifiers(column(["u", value, None] * repeat))
        assert counts(masks) == {"null": repeat, "wrong type": repeat}, type(value)
        assert numbered(names).tolist() == [0, -1, -1] * repeat


NO_IDENTIFIERS = [pa.array([1.5, None] * 20), pa.array([True, None] * 20), *NOT_NUMERIC[2:11]]


@pytest.mark.parametrize("array", NO_IDENTIFIERS, ids=lambda array: str(array.type))
def test_a_column_that_identifies_nothing(array: pa.Array) -> None:
    names, masks = identifiers(column(array))
    assert counts(masks) == {"null": 20, "wrong type": 20}
    assert set(numbered(names).tolist()) == {-1}
