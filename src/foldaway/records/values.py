"""A column as numbers, codes or identifiers, with a mask for each rule that some of its records break."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foldaway.numerics.block import LARGEST, Floats
from foldaway.records.columns import Column, as_numpy

Codes = NDArray[np.signedinteger[Any]]
Mask = NDArray[np.bool_]
Masks = dict[str, Mask]
T = TypeVar("T")
Scalar = TypeVar("Scalar", np.float64, np.signedinteger[Any])

NULL, NAN, INFINITE, WRONG_TYPE = "null", "NaN", "infinity", "wrong type"
TOO_LARGE, NOT_POSITIVE = "too large (over 1e40)", "not positive (over 1e-40)"
BEYOND = "out of bounds"
NOTHING, NUMBER, LEVEL, NEITHER = range(4)
"""What a value of a characteristic without levels is: nothing, as null and NaN are; or what says its column's kind."""

_BOOLEANS = {"true": 1.0, "false": 0.0}


def numbers(column: Column, *, text: bool = False) -> tuple[Floats, Masks]:
    """The column as float64, and its faults; with `text`, as from a file format that has only text, digits count."""
    if isinstance(column, list):
        values, null, wrong = _objects_to_floats(column, text)
    elif pa.types.is_dictionary(column.type):
        return _by_entry(column, lambda entries: numbers(entries, text=text))
    else:
        values, null, wrong = _to_floats(column, text)
    masks = {NULL: null, WRONG_TYPE: wrong}
    # With a NaN among them, the least and the largest are NaN, and no comparison holds.
    if len(values) and not (values.min() >= -LARGEST and values.max() <= LARGEST):
        size = np.abs(values)
        infinite = np.isinf(values)
        masks |= {NAN: np.isnan(values), INFINITE: infinite, TOO_LARGE: (size > LARGEST) & ~infinite}
    return values, broken(masks)


def weights(column: Column, *, text: bool = False) -> tuple[Floats, Masks]:
    """The column as positive float64, and its faults."""
    values, masks = numbers(column, text=text)
    small = values <= 1 / LARGEST
    for mask in masks.values():
        small &= ~mask
    return values, masks | broken({NOT_POSITIVE: small})


def clipped(values: Floats, bounds: tuple[float, float], masks: Masks) -> tuple[Floats, Mask]:
    """The values within their bounds, and which of those without a fault were not.

    Example:
        >>> clipped(np.array([-1.0, 3.0, 7.0]), (0.0, 5.0), {})
        (array([0., 3., 5.]), array([ True, False,  True]))
    """
    lower, upper = bounds
    beyond = (values < lower) | (values > upper)
    for mask in masks.values():
        beyond &= ~mask
    return np.clip(values, lower, upper) if beyond.any() else values, beyond


def codes(column: Column, names: Sequence[str], unknown: str) -> tuple[Codes, Masks]:
    """For each record the position of its name in ``names``, -1 if there is none, and the faults."""
    if isinstance(column, list):
        return _object_codes(column, names, unknown)
    kind = _value_type(column)
    if not _is_nameable(kind):
        null = _nulls(column)
        return np.full(len(column), -1, dtype=_code_type(names)), broken({NULL: null, WRONG_TYPE: ~null})
    if pa.types.is_decimal(kind):
        return _object_codes(column.to_pylist(), names, unknown)
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    return _by_entry(encoded, lambda entries: _object_codes(entries.to_pylist(), names, unknown))


def levels_in(column: Column, most: int, where: Mask | None = None) -> list[str]:
    """The first so many names that a column has, in alphabetical order; of a dictionary, perhaps some that it has not.

    Args:
        column: The column.
        most: How many.
        where: Which of its values to look at; all of them if left out.

    Example:
        >>> levels_in(["web", "app", None, "web"], 10)
        ['app', 'web']
    """
    if where is not None and not where.all():
        at = np.flatnonzero(where)
        column = [column[place] for place in at] if isinstance(column, list) else column.take(pa.array(at))
        column = column if isinstance(column, list) else pc.cast(column, _value_type(column))
    if not isinstance(column, list):
        entries = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
        column = entries.dictionary.to_pylist()
    return sorted({name for name in map(_name, column) if name is not None})[:most]


def kinds(column: Column, *, text: bool = False) -> Codes:
    """Of each value whether it is a `NUMBER` or, as text, truth values and categories are, a `LEVEL`.

    With `text`, as from a file format that has only text, digits are numbers and no levels.

    Example:
        >>> kinds([1.5, "web", True, None, "2", b"2"]).tolist() == [NUMBER, LEVEL, LEVEL, NOTHING, LEVEL, NEITHER]
        True
    """
    if isinstance(column, list):
        return np.array([_kind(value, text) for value in column], dtype=np.int8)
    kind = column.type
    if pa.types.is_dictionary(kind) or (_is_text(kind) and text):
        categories = not text and not pa.types.is_floating(_value_type(column))
        encoded = column if pa.types.is_dictionary(kind) else pc.dictionary_encode(column)
        return _by_entry(encoded, lambda entries: (_kinds_of_entries(entries, text, categories), {}))[0]
    named = _is_text(kind) or pa.types.is_boolean(kind)
    found = np.where(_nulls(column), NOTHING, LEVEL if named else NUMBER if _is_nameable(kind) else NEITHER)
    if pa.types.is_floating(kind):
        found[np.isnan(_to_floats(column, text)[0])] = NOTHING
    return found.astype(np.int8)


def _kinds_of_entries(entries: pa.Array, text: bool, categories: bool) -> Codes:
    values = entries.to_pylist()
    found = [LEVEL if categories and _name(value) is not None else _kind(value, text) for value in values]
    return np.array(found, dtype=np.int8)


def identifiers(column: Column) -> tuple[pa.Array, Masks]:
    """The column as identifiers that can be told apart and hashed, null where there is none, and the faults."""
    if isinstance(column, list):
        return _object_identifiers(column)
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    kind = _value_type(column)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _object_identifiers(column.to_pylist())
    null = _nulls(column)
    if not _is_identifier(kind):
        return pa.nulls(len(column), pa.binary()), broken({NULL: null, WRONG_TYPE: ~null})
    return column, broken({NULL: null})


def numbered(identifiers: pa.Array) -> NDArray[np.int64]:
    """A number for each distinct identifier, -1 for null."""
    if pa.types.is_dictionary(identifiers.type):
        of_entry = numbered(identifiers.dictionary)  # which may hold one identifier twice
        return np.append(of_entry, -1)[_indices(identifiers)]
    return as_numpy(pc.fill_null(pc.dictionary_encode(identifiers).indices, -1)).astype(np.int64)


def _by_entry(
    column: pa.DictionaryArray, read: Callable[[pa.Array], tuple[NDArray[Scalar], Masks]]
) -> tuple[NDArray[Scalar], Masks]:
    """Read a dictionary's entries once instead of each record's; the entries may hold nulls, or a value twice."""
    entries = column.dictionary
    if column.indices.null_count:
        entries = pa.concat_arrays([entries, pa.nulls(1, entries.type)])
    found, masks = read(entries)
    index = _indices(column)
    return found[index], broken({rule: mask[index] for rule, mask in masks.items()})


def _indices(column: pa.DictionaryArray) -> NDArray[np.int64]:
    """Each record's entry, -1 for null."""
    if not column.indices.null_count:
        return as_numpy(column.indices).astype(np.int64, copy=False)
    return as_numpy(pc.fill_null(column.indices.cast(pa.int64()), -1))


def _to_floats(column: pa.Array, text: bool) -> tuple[Floats, Mask, Mask]:
    """The values, zero where there is none, which are null, and which are of a wrong type."""
    kind = column.type
    if _is_text(kind) and text:
        return _objects_to_floats(column.to_pylist(), text)
    null, nothing = _nulls(column), np.zeros(len(column), dtype=bool)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.zeros(len(column)), null, ~null
    values = as_numpy(column).astype(np.float64, copy=False)
    return np.where(null, 0.0, values) if column.null_count else values, null, nothing


def _objects_to_floats(column: list[Any], text: bool) -> tuple[Floats, Mask, Mask]:
    found, null, wrong = _each(column, lambda value: _number(value, text))
    return np.array([0.0 if number is None else number for number in found], dtype=np.float64), null, wrong


def _object_codes(column: list[Any], names: Sequence[str], unknown: str) -> tuple[Codes, Masks]:
    position = {name: code for code, name in enumerate(names)}
    given, null, wrong = _each(column, _name)
    found = np.array([-1 if name is None else position.get(name, -1) for name in given], dtype=_code_type(names))
    return found, broken({NULL: null, WRONG_TYPE: wrong, unknown: (found < 0) & ~null & ~wrong})


def _code_type(names: Sequence[str]) -> type[np.signedinteger[Any]]:
    return np.int8 if len(names) < 128 else np.int16


def _object_identifiers(column: list[Any]) -> tuple[pa.Array, Masks]:
    given, null, wrong = _each(column, _identifier)
    return pa.array(given, pa.binary()), broken({NULL: null, WRONG_TYPE: wrong})


def _number(value: Any, text: bool) -> float | None:
    """A value as a number, None if it is none."""
    if isinstance(value, str):
        return _number_in(value) if text else None
    if not _is_number(value):
        return None
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max  # too large, by a rule that comes later
    except ValueError:
        return None  # a signalling NaN


def _number_in(text: str) -> float | None:
    try:
        # Python reads 1_000 as a number, and digits of any script.
        return None if "_" in text or not text.isascii() else float(_BOOLEANS.get(text.lower(), text))
    except ValueError:
        return None


def _name(value: Any) -> str | None:
    """A value as the name of an arm or level, None if it cannot be one: 1, 1.0, "1" and true are names."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if not _is_number(value):
        return None
    try:
        is_whole = isinstance(value, int | np.integer) or (abs(float(value)) <= 2**53 and value == int(value))
        return str(int(value)) if is_whole else None
    except (ArithmeticError, ValueError):
        return None  # a signalling NaN, or more digits than Python writes


def _kind(value: Any, text: bool) -> int:
    """Whether a value is a number or a level: see `kinds`."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, str) and value.lower() in _BOOLEANS):
        return LEVEL
    number = _number(value, text)
    if value is None or (number is not None and math.isnan(number)):
        return NOTHING
    return NUMBER if number is not None else LEVEL if isinstance(value, str) else NEITHER


def _identifier(value: Any) -> bytes | None:
    """A value as an identifier, None if it cannot be one: 17, 17.0, "17" and b"17" are the same."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, UUID):
        return value.bytes
    name = None if isinstance(value, bool | np.bool_) else _name(value)
    return None if name is None else name.encode(errors="surrogatepass")


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | Decimal | np.integer | np.floating | np.bool_)
    return number and not isinstance(value, np.timedelta64)  # which NumPy counts among the integers


def _value_type(column: pa.Array) -> pa.DataType:
    kind = column.type
    while pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_nameable(kind: pa.DataType) -> bool:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return number or _is_text(kind) or pa.types.is_boolean(kind)


def _is_identifier(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return _is_text(kind) or binary or pa.types.is_integer(kind)


def _nulls(column: pa.Array) -> Mask:
    return as_numpy(pc.is_null(column)) if column.null_count else np.zeros(len(column), dtype=bool)


def _each(column: list[Any], read: Callable[[Any], T | None]) -> tuple[list[T | None], Mask, Mask]:
    """Each object as it is read, which of them are null, and which are of a wrong type: others that read as None."""
    found = [read(value) for value in column]
    null = np.fromiter((value is None for value in column), dtype=bool)
    return found, null, np.fromiter((each is None for each in found), dtype=bool) & ~null


def broken(masks: Masks) -> Masks:
    """Those rules that some record breaks."""
    return {rule: mask for rule, mask in masks.items() if mask.any()}
