from __future__ import annotations

import pyarrow as pa
import pytest

from foldaway.sources.formats.chunk import Chunk, Unreadable, join, slices


def test_slices_lose_nothing() -> None:
    batch = Chunk(pa.record_batch({"y": pa.array(range(10))}), ragged=3)
    parts = list(slices(batch, 4))
    assert [part.records.num_rows for part in parts] == [4, 4, 2]
    assert [part.ragged for part in parts] == [3, 0, 0]
    assert join(parts).records.equals(batch.records)


def test_a_claim_of_too_many_rows_is_refused() -> None:
    nothing = pa.Array.from_buffers(pa.null(), 2**40, [None])
    batch = Chunk(pa.RecordBatch.from_arrays([nothing], names=["y"]))
    with pytest.raises(Unreadable, match="more rows"):
        next(slices(batch))


def test_categories_of_different_batches_are_joined() -> None:
    parts = [Chunk(pa.record_batch({"c": pa.array(list(text)).dictionary_encode()})) for text in ("aab", "cb")]
    assert join(parts).records.to_pydict() == {"c": ["a", "a", "b", "c", "b"]}


def test_text_beyond_two_gigabytes_gets_the_large_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldaway.sources.formats.chunk._LONGEST_TEXT", 10)
    parts = [Chunk(pa.record_batch({"t": pa.array(["abcdef"])}))] * 2
    assert join(parts).records.schema.field("t").type == pa.large_string()
    assert join(parts).records.to_pydict() == {"t": ["abcdef"] * 2}


def test_numbers_and_text_are_joined_as_text_without_loss() -> None:
    numbers = [0.1, 1e300, -0.0, 12345678901234567.0, float("inf"), None]
    parts = [Chunk(pa.record_batch({"n": pa.array(cells)})) for cells in (numbers, ["old"])]
    joined = join(parts).records.column("n")
    assert joined.slice(0, len(numbers)).cast(pa.float64()).to_pylist() == numbers
    assert joined[len(numbers)].as_py() == "old"
