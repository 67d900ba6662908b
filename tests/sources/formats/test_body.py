from __future__ import annotations

import gzip
import json
import random
import struct
import time
import traceback
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foldaway as fa
from bodies import Rows, as_arrow, as_json, as_ndjson, zstd
from foldaway.errors import IngestError, RecordError
from foldaway.numerics.kernels.json_lines import most_objects
from foldaway.sources.formats import arrow_claims
from foldaway.sources.formats.body import ARROW, JSON, NDJSON, Decoded, Limits, decode, decode_together, read_body, wipe
from foldaway.sources.formats.chunk import TooLarge, Unreadable, WantedColumns
from fuzzing import fuzz
from source_files import cells

PLAN = fa.Plan(
    name="ingest",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue"],
    covariates=["age", {"column": "country", "levels": ["de", "fr", "us"]}],
    unit="user_id",
    weight="w",
    moments=fa.Moments(bootstrap=4),
)
KEY = bytes(range(16))
MARKER, NUMBER = "MARKER7731", 7731773177.25
SECRETS = (MARKER, "7731773177")


def rows(n: int, **changed: Any) -> Rows:
    return [
        {
            "user_id": f"{MARKER}-{i}",
            "other": {"note": [MARKER, str(i)]},
            "variant": ("control", "treatment")[i % 2],
            "age": 20 + i % 50,
            "country": ("de", "fr", "us")[i % 3],
            "revenue": NUMBER + i / 4,
            "w": 1.5,
            **changed,
        }
        for i in range(n)
    ]


def table(data: Rows) -> pa.Table:
    return pa.Table.from_pylist(data)


def as_dictionaries(data: Rows) -> bytes:
    """Every text column as a dictionary that changes from batch to batch."""
    given = table(data).drop_columns("other")
    batches = [given.slice(at, 17).combine_chunks() for at in range(0, len(data), 17)]
    encoded = [
        pa.table(
            {
                name: pc.dictionary_encode(c) if pa.types.is_string(c.type) else c
                for name, c in zip(b.column_names, b.columns, strict=True)
            }
        )
        for b in batches
    ]
    return as_arrow(pa.concat_tables(encoded))


FORMATS: dict[str, tuple[str, Callable[[Rows], bytes]]] = {
    "arrow": (ARROW, as_arrow),
    "arrow in batches": (ARROW, partial(as_arrow, chunk=11)),
    "arrow lz4": (ARROW, partial(as_arrow, compression="lz4")),
    "arrow zstd": (ARROW, partial(as_arrow, compression="zstd")),
    "arrow dictionaries": (ARROW, as_dictionaries),
    "ndjson": (NDJSON, as_ndjson),
    "json": (JSON, as_json),
}


PACKED: dict[str | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]),
    "zstd": zstd,
    "ZSTD": lambda data: zstd(data[:100]) + zstd(data[100:]),
}


def decoded(body: bytes, media_type: str, encoding: str | None = None, **limits: int) -> Decoded:
    return decode(bytearray(body), media_type, encoding, PLAN, Limits(**limits))


def refusal(body: bytes, media_type: str, encoding: str | None = None, **limits: int) -> IngestError:
    with pytest.raises(IngestError) as caught:
        decoded(body, media_type, encoding, **limits)
    require_silence(caught.value)
    return caught.value


def require_silence(error: BaseException) -> None:
    """Neither the error nor anything that hangs on it repeats a value."""
    said = [*traceback.format_exception(error), repr(error), repr(error.args), repr(vars(error))]
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not any(secret in text for text in said for secret in SECRETS)


def folded(data: Any, **options: Any) -> bytes:
    trial = fa.Trial(PLAN, key=KEY)
    trial.fold(data, **options)
    return trial.dumps()


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("name", FORMATS)
def test_every_way_in_gives_the_trial_of_a_direct_fold(name: str, encoding: str | None) -> None:
    media_type, write = FORMATS[name]
    found = decoded(PACKED[encoding](write(rows(300))), media_type, encoding)
    assert "other" not in found.records.column_names
    assert folded(found.records, text=True, unreadable=found.ragged) == folded(table(rows(300)))


@pytest.mark.parametrize("name", FORMATS)
def test_a_faulty_batch_has_the_same_faults_in_every_format(name: str) -> None:
    media_type, write = FORMATS[name]
    data = rows(100)
    data[3]["variant"] = "nobody"
    data[50]["revenue"] = None
    data[51]["user_id"] = None
    found = decoded(write(data), media_type)
    with pytest.raises(RecordError) as direct:
        folded(table(data))
    with pytest.raises(RecordError) as caught:
        folded(found.records, text=True, unreadable=found.ragged)
    assert str(caught.value) == str(direct.value)
    require_silence(caught.value)


def test_a_wrong_type_in_json_is_counted_by_record() -> None:
    data = rows(100)
    data[7]["revenue"] = "12"
    data[8]["age"] = [1]
    for name in ("ndjson", "json"):
        media_type, write = FORMATS[name]
        found = decoded(write(data), media_type)
        with pytest.raises(RecordError, match=r"age: 1 wrong type\n  revenue: 1 wrong type"):
            folded(found.records, text=True)


def test_lines_that_are_no_objects_are_counted() -> None:
    found = decoded(as_ndjson(rows(3)) + b"hello\n[1]\nnull\n\n", NDJSON)
    assert (found.records.num_rows, found.ragged) == (3, 3)
    found = decoded(as_json(rows(3)).replace(f"{MARKER}-1".encode(), b"\xff"), JSON)
    assert (found.records.num_rows, found.ragged) == (2, 1)


def test_columns_that_are_missing_are_left_to_the_fold() -> None:
    found = decoded(as_arrow(table(rows(9)).select(["age", "other"])), ARROW)
    assert found.records.column_names == ["age"]
    with pytest.raises(IngestError, match="none of the plan's columns"):
        decoded(as_arrow(pa.table({"other": [1]})), ARROW)
    with pytest.raises(RecordError, match="no column 'variant'"):
        folded(decoded(as_arrow(table(rows(9)).select(["age"])), ARROW).records)


# Empty, marks at the beginning, parameters of the header.


@pytest.mark.parametrize("media_type", [ARROW, NDJSON, JSON])
@pytest.mark.parametrize("encoding", [None, "gzip", "zstd"])
def test_an_empty_body_is_refused(media_type: str, encoding: str | None) -> None:
    assert refusal(b"", media_type, encoding).status == 400


@pytest.mark.parametrize(
    ("body", "media_type"), [(b"[]", JSON), (b" [ ] ", JSON), (b"\n \n", NDJSON), (as_arrow(table(rows(1))[:0]), ARROW)]
)
def test_no_records_are_no_fault(body: bytes, media_type: str) -> None:
    found = decoded(body, media_type)
    assert (found.records.num_rows, found.ragged) == (0, 0)
    folded(found.records, text=True)


@pytest.mark.parametrize("name", ["ndjson", "json"])
def test_a_byte_order_mark_is_skipped(name: str) -> None:
    media_type, write = FORMATS[name]
    body = b"\xef\xbb\xbf" + write(rows(30))
    assert folded(decoded(body, media_type).records) == folded(table(rows(30)))
    assert folded(decoded(gzip.compress(body), media_type, "gzip").records) == folded(table(rows(30)))
    assert "UTF-16" in str(refusal(write(rows(3)).decode().encode("utf-16"), media_type))


@pytest.mark.parametrize(
    "header",
    ["application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"', " application/json ; a=b; charset=UTF8"],
)
def test_the_header_may_name_utf_8(header: str) -> None:
    assert decoded(as_json(rows(3)), header).records.num_rows == 3


@pytest.mark.parametrize(
    "header",
    [
        "",
        "json",
        "text/csv",
        "text/plain",
        "application/vnd.apache.arrow.file",
        "application/json; charset=utf-16",
        "application/json; charset",
        "application/json; charset*0=x;charset*",
        "application/json\r\nX: y",
        f"{MARKER}/{MARKER}",
        f"application/json; charset={MARKER}",
    ],
)
def test_other_media_types_are_refused(header: str) -> None:
    assert refusal(as_json(rows(3)), header).status == 415


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd,gzip", "gzip;q=1", MARKER])
def test_other_encodings_are_refused(encoding: str) -> None:
    assert refusal(gzip.compress(as_json(rows(3))), JSON, encoding).status == 415


def test_an_array_sent_as_lines_is_told_its_name() -> None:
    assert JSON in str(refusal(as_json(rows(3)), NDJSON))


def test_lines_whose_ends_were_lost_are_told_of_curl() -> None:
    """As `curl -d @file` loses them."""
    assert "--data-binary" in str(refusal(b"".join(as_json(row) for row in rows(3)), NDJSON))


def test_a_plan_whose_columns_json_cannot_name_is_told_so() -> None:
    plan = fa.Plan(name="quoted", arm='a"b', arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    for media_type in (JSON, NDJSON):
        with pytest.raises(IngestError, match="quote"):
            decode(bytearray(b"[]"), media_type, None, plan, Limits())
    body = bytearray(as_arrow(pa.table({'a"b': ["a"], "y": [1.0]})))
    assert decode(body, ARROW, None, plan, Limits()).records.num_rows == 1


# Limits.


@pytest.mark.parametrize("encoding", [None, "gzip", "x-gzip", "zstd", "ZSTD"])
@pytest.mark.parametrize("name", ["arrow", "ndjson", "json"])
def test_the_limit_of_the_unpacked_body(name: str, encoding: str | None) -> None:
    media_type, write = FORMATS[name]
    body = write(rows(50))
    assert decoded(PACKED[encoding](body), media_type, encoding, max_decoded=len(body)).records.num_rows == 50
    assert refusal(PACKED[encoding](body), media_type, encoding, max_decoded=len(body) - 1).status == 413


@pytest.mark.parametrize("name", FORMATS)
def test_the_limit_of_records(name: str) -> None:
    media_type, write = FORMATS[name]
    assert decoded(write(rows(50)), media_type, max_records=50).records.num_rows == 50
    assert refusal(write(rows(50)), media_type, max_records=49).status == 413


def test_lines_that_are_no_records_count_against_the_limit() -> None:
    assert refusal(b"x\n" * 50, NDJSON, max_records=49).status == 413


def test_objects_inside_of_records_do_not_count_against_the_limit() -> None:
    data = rows(10, other=[{"a": {}}] * 20)
    assert decoded(as_json(data), JSON, max_records=10).records.num_rows == 10


def zeros(size: int) -> bytes:
    """Blanks, which are no record in NDJSON and stand before a JSON array, packed to almost nothing."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(b" " * 2**20) for _ in range(size // 2**20)) + packer.flush()


def peak(step: Callable[[], Any]) -> int:
    """By how much the process grew at most."""
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # start counting anew
    before = _status("VmRSS")
    step()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


# Made when they are needed: every process that runs tests loads this file.
BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": cache(lambda: zeros(2**28)),
    "x-gzip": cache(lambda: zeros(2**25) * 100),
    "zstd": cache(lambda: zstd(b" " * 2**26) * 20),
    "ZSTD": cache(lambda: zstd(b" " * 2**28)),
}


@pytest.mark.parametrize("media_type", [ARROW, NDJSON, JSON])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_stops_at_the_limit(bomb: str, media_type: str) -> None:
    body = BOMBS[bomb]()
    limits = {"max_body": len(body), "max_decoded": 2**24}

    def explode() -> None:
        assert refusal(body, media_type, bomb, **limits).status == 413

    assert peak(explode) < 3 * 2**24 + 2**25


def test_a_bomb_inside_of_another_stays_packed() -> None:
    packed = gzip.compress(BOMBS["gzip"]())
    assert decoded(packed, NDJSON, "gzip").ragged > 0
    assert refusal(packed, JSON, "gzip").status == 400
    assert refusal(packed, ARROW, "gzip").status == 400


@pytest.mark.parametrize(
    "body",
    [b"[" + b"{}," * 2_000_000 + b"{}]", b"[" + b"0," * 5_000_000 + b"0]", b"[" * 10_000_000, b"[{" * 1_000_000],
    ids=["objects", "numbers", "brackets", "nested"],
)
def test_small_things_in_great_number(body: bytes) -> None:
    assert peak(lambda: refusal(body, JSON, max_records=100_000)) < 3 * len(body) + 2**26
    assert peak(lambda: _try(body, NDJSON)) < 4 * len(body) + 2**26


def _try(body: bytes, media_type: str) -> IngestError | None:
    try:
        decoded(body, media_type)
    except IngestError as error:
        return error
    return None


# Damage.


@pytest.mark.parametrize("encoding", [None, "gzip", "zstd"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_body_that_was_cut_short_is_refused(name: str, encoding: str | None) -> None:
    media_type, write = FORMATS[name]
    whole = PACKED[encoding](write(rows(200)))
    for cut in [1, 2, 7, 8, *range(20, len(whole), len(whole) // 40), len(whole) - 1]:
        if media_type == NDJSON and encoding is None:
            # A line that is cut is no record; HTTP itself tells when a body lacks its end.
            assert decoded(whole[:cut], media_type).ragged <= 1
        else:
            assert refusal(whole[:cut], media_type, encoding).status == 400


@pytest.mark.parametrize("name", ["arrow", "arrow lz4", "json"])
def test_what_comes_after_the_end_is_refused(name: str) -> None:
    media_type, write = FORMATS[name]
    for more in (b"x", write(rows(3))):
        assert refusal(write(rows(3)) + more, media_type).status == 400


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_what_comes_after_a_packed_body_is_refused(encoding: str) -> None:
    assert refusal(PACKED[encoding](as_json(rows(3))) + MARKER.encode(), JSON, encoding).status == 400


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_that_is_not_packed_as_it_says_is_refused(name: str, encoding: str) -> None:
    media_type, write = FORMATS[name]
    assert refusal(write(rows(3)), media_type, encoding).status == 400


@pytest.mark.parametrize(
    "body", [b'{"a": 1}', b"null", b'"x"', b"17", b"[1]", b"[[]]", b"[null]", b'[{"a":1}', b"\xff"]
)
def test_json_that_is_not_an_array_of_objects_is_refused(body: bytes) -> None:
    assert refusal(body, JSON).status == 400


# One array of objects.

WANTED = WantedColumns(numeric=("n",), text=("t",))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
objects = st.lists(st.fixed_dictionaries({}, optional={"n": values, "t": values, "other": values}), max_size=8)


@fuzz(max_examples=40)
@given(written=objects)
def test_an_array_gives_what_its_objects_give_as_lines(written: list[dict[str, Any]]) -> None:
    lines = "\n".join(json.dumps(row) for row in written).encode()
    found = read_body(json.dumps(written).encode(), JSON, WANTED, Limits(max_records=8))
    assert cells([found], WANTED) == cells([read_body(lines, NDJSON, WANTED, Limits())], WANTED)
    assert found.records.schema.names == ["n", "t"]


def test_a_member_that_is_not_utf_8_makes_its_object_ragged() -> None:
    found = read_body(b'[{"t": "a"}, {"t": "\xff"}, {"n": 2, "other": "\xff"}]', JSON, WANTED, Limits())
    assert (found.records.to_pydict(), found.ragged) == ({"n": [None, 2.0], "t": ["a", None]}, 1)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"[{}, null]", b"[{}", b"[{}]]", b"[{},]", b"[{}] x", b"[" * 9999]
)
def test_what_is_no_array_of_objects_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable, match="array of objects"):
        read_body(data, JSON, WANTED, Limits(max_records=3))


def test_the_most_objects_that_are_taken() -> None:
    data = json.dumps([{"n": 1, "other": {"a": {}}}] * 5).encode()
    assert read_body(data, JSON, WANTED, Limits(max_records=5)).records.num_rows == 5
    with pytest.raises(TooLarge):
        read_body(data, JSON, WANTED, Limits(max_records=4))


# Arrow from strangers.


def changed_claim(stream: bytes, true: int, claimed: int) -> bytes:
    """The stream with every int64 of one value replaced by another."""
    assert struct.pack("<q", true) in stream
    return stream.replace(struct.pack("<q", true), struct.pack("<q", claimed))


@pytest.mark.parametrize("claimed", [-1, -(2**63), 2**31, 2**40, 2**62, 2**63 - 1])
@pytest.mark.parametrize(
    "kind", [pa.null(), pa.int8(), pa.string(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())])]
)
def test_lengths_that_cannot_be(kind: pa.DataType, claimed: int) -> None:
    n = 77_777
    data = pa.table({"revenue": pa.nulls(n).cast(kind), "age": pa.nulls(n)})

    def attempt() -> None:
        assert refusal(changed_claim(as_arrow(data), n, claimed), ARROW).status in (400, 413)

    assert peak(attempt) < 2**27


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_buffers_that_claim_to_unpack_to_more_than_allowed(codec: str) -> None:
    n = 500_000
    data = pa.table({"revenue": pa.nulls(n, pa.float64()).fill_null(0.0)})
    body = as_arrow(data, compression=codec)
    assert len(body) < 100_000
    assert decoded(body, ARROW, max_decoded=8 * n).records.num_rows == n

    def attempt() -> None:
        assert refusal(body, ARROW, max_decoded=8 * n - 1).status == 413
        for claimed in (2**33, 2**40, 2**62):
            assert refusal(changed_claim(body, 8 * n, claimed), ARROW).status == 413
        for claimed in (-2, -(2**63)):
            assert refusal(changed_claim(body, 8 * n, claimed), ARROW).status == 400

    assert peak(attempt) < 2**26


def test_a_column_that_is_not_wanted_counts_as_well() -> None:
    body = as_arrow(pa.table({"other": pa.nulls(10**6, pa.float64()).fill_null(0.0)}), compression="zstd")
    assert refusal(body, ARROW, max_decoded=10**6).status == 413


LONG = "x" * 100_000
N = 20_000


def test_a_long_text_that_many_records_name_is_refused() -> None:
    """A dictionary, runs or views hold it once; written out it would fill the memory."""
    indices = pa.array([0] * N, pa.int32())
    view = struct.pack("<i4sii", len(LONG), LONG[:4].encode(), 0, 0)
    views = [None, pa.py_buffer(view * N), pa.py_buffer(LONG.encode())]
    often = {
        "dictionary": pa.DictionaryArray.from_arrays(indices, pa.array([LONG, None])),
        "dictionary of views": pa.DictionaryArray.from_arrays(indices, pa.array([LONG, "a"], pa.string_view())),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([N], pa.int32()), pa.array([LONG])),
        "views": pa.Array.from_buffers(pa.string_view(), N, views),
        "views of bytes": pa.Array.from_buffers(pa.binary_view(), N, views),
    }
    for name, column in often.items():
        body = as_arrow(pa.table({"user_id": column}))
        assert len(body) < 10**6, name
        assert peak(lambda body=body: refusal(body, ARROW)) < 2**26, name  # type: ignore[misc]
    short = {name: column.slice(0, 3) for name, column in often.items()}
    for column in short.values():
        assert decoded(as_arrow(pa.table({"user_id": column})), ARROW).records.num_rows == 3


def test_a_run_that_ends_after_the_array_takes_no_memory() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2**27], pa.int32()), pa.array(["a", "b"])).slice(0, 5)
    whole = pa.RunEndEncodedArray.from_buffers(runs.type, 5, [None], children=[runs.run_ends, runs.values])
    assert peak(lambda: decoded(as_arrow(pa.table({"user_id": whole})), ARROW)) < 2**26


def test_dictionaries_that_grow_with_every_message_add_up() -> None:
    schema = pa.schema([("user_id", pa.dictionary(pa.int32(), pa.string()))])
    sink = pa.BufferOutputStream()
    known: list[str] = []
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for i in range(300):
            known.append(f"{i:01000d}")
            column = pa.DictionaryArray.from_arrays(pa.array([i], pa.int32()), pa.array(known))
            writer.write_batch(pa.record_batch([column], schema=schema))
    body = bytes(sink.getvalue())
    assert len(body) < 10**6
    assert decoded(body, ARROW).records.num_rows == 300
    assert refusal(body, ARROW, max_decoded=10 * len(body)).status == 413


def test_too_many_pieces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_claims, "_MOST_MESSAGES", 2000)
    batch = pa.record_batch({"age": pa.array([], pa.int8())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(2):
            writer.write_batch(batch)
    body = bytes(sink.getvalue())
    start = body.index(b"\xff\xff\xff\xff", 4)  # after the schema come two pieces and the end mark
    piece = body[start : start + (len(body) - 8 - start) // 2]
    assert decoded(body[:start] + piece * 1000 + body[-8:], ARROW).records.num_rows == 0
    assert "pieces" in str(refusal(body[:start] + piece * 2100 + body[-8:], ARROW))


def test_too_many_columns_are_refused() -> None:
    body = as_arrow(pa.table({f"column {i:050d}": pa.nulls(0) for i in range(50_000)}))
    assert refusal(body, ARROW).status == 413


def test_a_wanted_column_that_stands_twice_is_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["age", "age"])
    assert "more than one column named 'age'" in str(refusal(as_arrow(twice), ARROW))


@pytest.mark.parametrize("column", ["user_id", "revenue", "variant", "country"])
def test_types_that_no_record_has_are_faults_and_no_crash(column: str) -> None:
    n = 6
    odd = [
        pa.array([[1]] * n),
        pa.array([{"a": MARKER}] * n),
        pa.array([[(MARKER, 1)]] * n, pa.map_(pa.string(), pa.int8())),
        pa.UnionArray.from_sparse(pa.array([0] * n, pa.int8()), [pa.array([MARKER] * n)]),
        pa.array([0] * n, pa.timestamp("ns")),
        pa.array([None] * n, pa.null()),
        pa.array([1] * n, pa.decimal256(50, 3)),
        pa.array([[1, 2]] * n, pa.list_view(pa.int8())),
        pa.DictionaryArray.from_arrays(pa.array([0] * n), pa.array([[1]])),
        pa.RunEndEncodedArray.from_arrays(pa.array([n], pa.int32()), pa.array([None], pa.null())),
    ]
    refused = 0
    for array in odd:
        data = table(rows(n)).drop_columns(["other", column]).append_column(column, array)
        found = decoded(as_arrow(data), ARROW)
        try:
            folded(found.records, text=True)
        except RecordError as error:
            require_silence(error)
            refused += 1
    assert refused >= len(odd) - 2  # a decimal is a number, and a timestamp names somebody


def test_offsets_and_indices_out_of_bounds_are_refused() -> None:
    text = pa.array(["abc", "def"])
    wild = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 2**30, 6)), text.buffers()[2]]
    )
    index = pa.Array.from_buffers(pa.int32(), 2, [None, pa.py_buffer(struct.pack("<2i", 0, 2**30))])
    far = pa.DictionaryArray.from_arrays(index, text, safe=False)
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    for column in (wild, far, broken):
        assert refusal(as_arrow(pa.table({"user_id": column})), ARROW).status == 400


def test_want_of_memory_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("foldaway.sources.formats.body.read_arrow", refuse)
    assert refusal(as_arrow(rows(3)), ARROW).status == 413


# Wiping.


@pytest.mark.parametrize("encoding", [None, "gzip"])
def test_wiping_overwrites_what_the_records_lie_in(encoding: str | None) -> None:
    body = bytearray(PACKED[encoding](as_arrow(table(rows(3)).drop_columns("other"))))
    found = decode(body, ARROW, encoding, PLAN, Limits())
    kept = found.records.column("revenue")
    assert kept[0].as_py() == NUMBER
    found.wipe()
    wipe(body)
    assert found.records is None
    assert kept.to_pylist() == [0.0] * 3
    assert not body.strip(b"\0")
    del kept
    wipe(body)
    assert body == b""


# Anything at all.


def outcome(body: bytes, media_type: str, encoding: str | None) -> None:
    refused = None
    try:
        found = decoded(body, media_type, encoding, max_decoded=2**20, max_records=1000)
    except IngestError as error:
        refused = error
    if refused is not None:
        require_silence(refused)
        assert refused.status in (400, 413)
        return
    found.records.validate(full=True)
    try:
        folded(found.records, text=True, unreadable=found.ragged)
    except RecordError as error:
        require_silence(error)


media_types = st.sampled_from([ARROW, NDJSON, JSON])
encodings = st.sampled_from([None, "gzip", "zstd"])


@fuzz(max_examples=60)
@given(body=st.binary(max_size=200), media_type=media_types, encoding=encodings, packed=st.booleans())
@example(body=b"\xff\xff\xff\xff\x10\0\0\0", media_type=ARROW, encoding=None, packed=False)
def test_random_bytes(body: bytes, media_type: str, encoding: str | None, packed: bool) -> None:
    outcome(PACKED[encoding](body) if packed else body, media_type, encoding)


changes = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["set", "cut", "drop", "insert"]),
        st.binary(min_size=1, max_size=8)
        | st.sampled_from(
            [b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\0\0\0\0", b'"', b"\n", b"{", b"]"]
        ),
    ),
    min_size=1,
    max_size=3,
)
VALID = {name: write(rows(40)) for name, (_, write) in FORMATS.items()}


@pytest.mark.parametrize("name", FORMATS)
@fuzz(max_examples=25)
@given(how=changes, encoding=encodings, before=st.booleans())
def test_changed_bodies(name: str, how: list[tuple[float, str, bytes]], encoding: str | None, before: bool) -> None:
    body = VALID[name] if before else PACKED[encoding](VALID[name])
    for place, kind, new in how:
        at = int(place * len(body))
        after = {"set": at + len(new), "cut": len(body), "drop": at + len(new), "insert": at}[kind]
        body = body[:at] + (new if kind in ("set", "insert") else b"") + body[after:]
    outcome(PACKED[encoding](body) if before else body, FORMATS[name][0], encoding)


@pytest.mark.slow
def test_the_limits_hold_in_good_time() -> None:
    """As large as is allowed, of the slowest kind."""
    started = time.monotonic()
    assert refusal(b"[" + b"{}," * 80_000_000 + b"{}]", JSON, max_body=2**28).status == 413
    assert time.monotonic() - started < 30


GOOD = b'{"variant": "control", "revenue": 1, "age": 3, "country": "de", "user_id": "u", "w": 1}'


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        (JSON, b"[" + GOOD + b"]"),
        (JSON, b"[" + GOOD + b"] [1]"),
        (JSON, b"[" + GOOD + b", 7]"),
        (NDJSON, GOOD),
        (NDJSON, GOOD + b"\r\n\n" + GOOD + b"\n"),
        (NDJSON, GOOD + GOOD),
        (NDJSON, GOOD + b"{\n}\n"),
        (NDJSON, GOOD.replace(b", ", b",\n") + b"\n"),
        (NDJSON, GOOD + b"\nhello\n"),
        (NDJSON, b"[" + GOOD + b"]"),
        (NDJSON, b"\xef\xbb\xbf" + GOOD),
    ],
)
def test_what_is_decoded_together_is_what_is_decoded_alone(media_type: str, body: bytes) -> None:
    """Whether a body is taken must not depend on who else is sending."""
    other = bytearray(b"[" + GOOD + b"]" if media_type == JSON else GOOD)
    together = decode_together({0: (bytearray(body), media_type), 1: (other, media_type)}, PLAN, 100)
    assert together[1].records.num_rows == 1
    try:
        alone = decode(bytearray(body), media_type, None, PLAN, Limits())
    except IngestError:
        assert 0 not in together
        return
    assert (0 in together) <= (alone.ragged == 0)
    if 0 in together:
        assert together[0].records.to_pylist() == alone.records.to_pylist()


def test_empty_lines_take_no_memory_for_records() -> None:
    """Places are made for as many records as there are braces."""
    begun = pa.total_allocated_bytes()
    assert decode(bytearray(b"\n" * 2**19 + GOOD), NDJSON, None, PLAN, Limits()).records.num_rows == 1
    assert pa.total_allocated_bytes() - begun < 2**20
    assert most_objects(np.frombuffer(b"\n" * 1000 + GOOD + b"\n", dtype=np.uint8)) == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_unpacks_to_a_hundred_times_its_length_or_a_megabyte(encoding: str) -> None:
    small, large = (PACKED[encoding](GOOD + b" " * size) for size in (2**20 - len(GOOD), 2**24))
    assert decoded(small, NDJSON, encoding).records.num_rows == 1
    refused = refusal(large, NDJSON, encoding)
    assert refused.status == 413
    assert "once unpacked" in str(refused)
    other = b'{"more": "%b", ' % random.Random(1).randbytes(2**20).hex().encode()  # twice as long once unpacked
    packed = PACKED[encoding](GOOD.replace(b"{", other, 1))
    assert decoded(packed, NDJSON, encoding).records.num_rows == 1


SLOW = GOOD.replace(b'"revenue": 1', b'"revenue": "1"')


@pytest.mark.parametrize(
    ("media_type", "slow"),
    [
        (NDJSON, SLOW),
        (JSON, SLOW),
        (NDJSON, b"no object"),
        (NDJSON, b""),
    ],
)
def test_few_records_may_be_read_one_by_one(media_type: str, slow: bytes) -> None:
    """One that is not as expected makes all of a body slow, and blank lines take as long as others."""

    def body(most: int) -> bytes:
        lines = [GOOD] * (most - 1) + [slow]
        return b"[" + b",".join(lines) + b"]" if media_type == JSON else b"\n".join([*lines, b""])

    limits = {"max_records": 200} if not slow else {"max_slow": 200}
    decoded(body(200), media_type, None, **limits)
    assert refusal(body(202), media_type, None, **limits).status == 413


def test_numbers_as_text_are_slow_in_arrow_too() -> None:
    for count, taken in ((200, True), (201, False)):
        table = pa.table({"variant": ["control"] * count, "revenue": ["1"] * count})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body = sink.getvalue().to_pybytes()
        if taken:
            assert decoded(body, ARROW, max_slow=200).records.num_rows == count
        else:
            assert refusal(body, ARROW, max_slow=200).status == 413
