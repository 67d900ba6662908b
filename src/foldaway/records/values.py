"""A column as numbers or as codes, with a mask for each rule that some of its records break."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foldaway.block import LARGEST, Floats
from foldaway.records.columns import Column, as_numpy

Mask = NDArray[np.bool_]
Masks = dict[str, Mask]

NULL, NAN, INFINITE = "null", "NaN", "infinity"
WRONG_TYPE, TOO_LARGE, NOT_POSITIVE = "wrong type", "too large (over 1e40)", "not positive"


def numbers(column: Column, *, text: bool = False) -> tuple[Floats, Masks]:
    """The column as float64, and its faults.

    Args:
        column: The column.
        text: Whether digits as text count as numbers, as in a file format that has only text.
    """
    values, null, wrong = _objects_to_floats(column) if isinstance(column, list) else _to_floats(column, text)
    nan = np.isnan(values)
    nan[null | wrong] = False
    infinite = np.isinf(values)
    masks = {NULL: null, WRONG_TYPE: wrong, NAN: nan, INFINITE: infinite}
    masks[TOO_LARGE] = (np.abs(values) > LARGEST) & ~infinite
    return values, _found(masks)


def weights(column: Column, *, text: bool = False) -> tuple[Floats, Masks]:
    """The column as positive float64, and its faults."""
    values, masks = numbers(column, text=text)
    return values, masks | _found({NOT_POSITIVE: values < 1 / LARGEST})


def codes(column: Column, names: Sequence[str], unknown: str) -> tuple[NDArray[np.int8], Masks]:
    """For each record the position of its name in ``names``, -1 if there is none, and the faults."""
    position = {name: code for code, name in enumerate(names)}
    if isinstance(column, list):
        texts = [_name(value) for value in column]
        null = np.fromiter((value is None for value in column), dtype=bool, count=len(column))
        found = np.array([position.get(text, -1) if text is not None else -2 for text in texts], dtype=np.int8)
    else:
        found, null = _dictionary_codes(column, position)
    masks = {NULL: null, WRONG_TYPE: (found == -2) & ~null, unknown: (found == -1) & ~null}
    found[found == -2] = -1
    return found, _found(masks)


def identifiers(column: Column) -> tuple[pa.Array, Masks]:
    """The column as identifiers that can be told apart and hashed, and its faults."""
    if isinstance(column, list):
        column, null, wrong = _identifiers(column)
    else:
        null = as_numpy(pc.is_null(column))
        wrong = np.zeros(len(column), dtype=bool) if _is_identifier(column.type) else ~null
    return column, _found({NULL: null, WRONG_TYPE: wrong})


def numbered(identifiers: pa.Array) -> NDArray[np.int64]:
    """A number for each distinct identifier, -1 for null."""
    encoded = identifiers if pa.types.is_dictionary(identifiers.type) else pc.dictionary_encode(identifiers)
    return as_numpy(pc.fill_null(encoded.indices, -1)).astype(np.int64)


def _to_floats(column: pa.Array, text: bool) -> tuple[Floats, Mask, Mask]:
    n = len(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _to_floats(column.dictionary_decode(), text)
    nothing = np.zeros(n, dtype=bool)
    null = as_numpy(pc.is_null(column)) if column.null_count else nothing
    if _is_text(kind) and text:
        return _parse(column, null)
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.uint8())
    elif pa.types.is_decimal(kind):
        column = pc.cast(column, pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.zeros(n), null, ~null
    values = as_numpy(column).astype(np.float64, copy=False)
    if column.null_count:
        values = np.where(null, 0.0, values)
    return values, null, nothing


def _parse(column: pa.Array, null: Mask) -> tuple[Floats, Mask, Mask]:
    """Numbers from text, cell by cell: a block of text with every cell a number never comes this way."""
    values = np.zeros(len(column))
    wrong = np.zeros(len(column), dtype=bool)
    for i, cell in enumerate(column.to_pylist()):
        if cell is None:
            continue
        try:
            values[i] = _BOOLEANS.get(cell.lower()) if cell.lower() in _BOOLEANS else float(cell)
        except ValueError:
            wrong[i] = True
    return values, null, wrong


_BOOLEANS = {"true": 1.0, "false": 0.0}


def _objects_to_floats(column: list[Any]) -> tuple[Floats, Mask, Mask]:
    n = len(column)
    values, null, wrong = np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    for i, value in enumerate(column):
        if value is None:
            null[i] = True
        elif isinstance(value, bool | int | float | Decimal | np.bool_ | np.integer | np.floating):
            try:
                values[i] = float(value)
            except OverflowError:
                values[i] = math.inf
        else:
            wrong[i] = True
    return values, null, wrong


def _dictionary_codes(column: pa.Array, position: Mapping[str, int]) -> tuple[NDArray[np.int8], Mask]:
    if pa.types.is_nested(column.type):
        return np.full(len(column), -2, dtype=np.int8), as_numpy(pc.is_null(column))
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    texts = [_name(value) for value in encoded.dictionary.to_pylist()]
    table = np.array([position.get(text, -1) if text is not None else -2 for text in texts] + [-1], dtype=np.int8)
    indices = as_numpy(pc.fill_null(encoded.indices, len(texts))).astype(np.intp)
    null = indices == len(texts)
    if any(value is None for value in encoded.dictionary.to_pylist()):
        null |= np.isin(indices, [i for i, text in enumerate(encoded.dictionary.to_pylist()) if text is None])
    return table[indices], null


def _name(value: Any) -> str | None:
    """A value as the name of an arm or level, None if it cannot be one: 1, 1.0, "1" and true are names."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return None


def _identifiers(column: list[Any]) -> tuple[pa.Array, Mask, Mask]:
    """Identifiers of mixed Python types as text, 17 and "17" being the same."""
    null = np.fromiter((value is None for value in column), dtype=bool, count=len(column))
    fits = [isinstance(value, str | int | np.integer) and not isinstance(value, bool) for value in column]
    wrong = ~np.array(fits, dtype=bool) & ~null
    texts = [str(value) if fit else None for value, fit in zip(column, fits, strict=True)]
    return pa.array(texts, pa.string()), null, wrong


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_identifier(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_identifier(kind.value_type)
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return _is_text(kind) or binary or pa.types.is_integer(kind)


def _found(masks: Masks) -> Masks:
    return {rule: mask for rule, mask in masks.items() if mask.any()}
