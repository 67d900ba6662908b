from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldaway.sources.formats.arrow_claims import Damaged, check_claims
from foldaway.sources.formats.chunk import TooLarge
from fuzzing import fuzz

MANY = 10**9


def written(table: pa.Table, chunk: int | None = None, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return bytes(sink.getvalue())


columns = st.sampled_from(
    [
        pa.null(),
        pa.bool_(),
        pa.int8(),
        pa.float64(),
        pa.string(),
        pa.large_binary(),
        pa.string_view(),
        pa.list_(pa.int16()),
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        pa.dictionary(pa.int8(), pa.string()),
        pa.map_(pa.string(), pa.int8()),
    ]
)


@fuzz(max_examples=50)
@given(
    kinds=st.lists(columns, min_size=1, max_size=4),
    n=st.integers(0, 50),
    chunk=st.integers(1, 60),
    codec=st.sampled_from([None, "lz4", "zstd"]),
)
def test_what_arrow_writes_is_whole_and_its_records_are_counted(
    kinds: list[pa.DataType], n: int, chunk: int, codec: str | None
) -> None:
    table = pa.table({str(i): pa.nulls(n, kind) for i, kind in enumerate(kinds)})
    stream = memoryview(written(table, chunk, compression=codec))
    check_claims(stream, n, MANY)
    if n:
        with pytest.raises(TooLarge, match="records"):
            check_claims(stream, n - 1, MANY)
    for cut in range(0, len(stream), 97):
        with pytest.raises(Damaged):
            check_claims(stream[:cut], n, MANY)
    with pytest.raises(Damaged):
        check_claims(memoryview(bytes(stream) + b"\0"), n, MANY)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers_claim_what_they_unpack_to(codec: str) -> None:
    values = pa.array([1.5] * 1000)
    stream = memoryview(written(pa.table({"a": values, "b": values}), chunk=100, compression=codec))
    check_claims(stream, 1000, 2 * 8 * 1000)
    with pytest.raises(TooLarge, match="unpacked"):
        check_claims(stream, 1000, 2 * 8 * 1000 - 1)


def test_what_is_not_compressed_claims_nothing_more() -> None:
    check_claims(memoryview(written(pa.table({"a": [1.5] * 1000}))), 1000, 0)


@fuzz(max_examples=60)
@given(stream=st.binary(max_size=200), headed=st.booleans())
def test_random_bytes_are_damaged_or_too_large(stream: bytes, headed: bool) -> None:
    with pytest.raises((Damaged, TooLarge)):
        check_claims(memoryview(b"\xff\xff\xff\xff\x10\0\0\0" * headed + stream), MANY, MANY)


VALID = written(
    pa.table({"a": [1.5, 2.5], "d": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", "y"]))}),
    compression="zstd",
)


@fuzz(max_examples=100)
@given(at=st.integers(0, len(VALID) - 1), new=st.binary(min_size=1, max_size=8))
def test_changed_streams_end_in_no_other_error(at: int, new: bytes) -> None:
    with suppress(Damaged, TooLarge):
        check_claims(memoryview(VALID[:at] + new + VALID[at + len(new) :]), 10, 1000)


def test_two_streams_in_a_row_are_not_one() -> None:
    with pytest.raises(Damaged):
        check_claims(memoryview(VALID + VALID), 10, 1000)


def test_records_before_a_schema_are_damaged() -> None:
    start = VALID.index(b"\xff\xff\xff\xff", 4)
    with pytest.raises(Damaged):
        check_claims(memoryview(VALID[start:]), 10, 1000)
    with pytest.raises(Damaged):
        check_claims(memoryview(VALID[:start] * 2 + VALID[start:]), 10, 1000)
