from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldaway.errors import SourceError
from foldaway.sources.formats import ndjson
from foldaway.sources.formats.chunk import Unreadable, WantedColumns
from foldaway.sources.formats.files import read
from foldaway.sources.formats.streams import Stream
from source_files import cells, put

WANTED = WantedColumns(numeric=("n",), text=("t",))


def found(lines: bytes, folder: Path) -> tuple[dict[str, list[Any]], int]:
    return cells(read(put(folder, "a.ndjson", lines), WANTED), WANTED)


@pytest.mark.parametrize(
    ("line", "n", "t"),
    [
        (b'{"n": 1.5, "t": "007", "other": [1, {"n": 2}]}', 1.5, "007"),
        (b'{"t": "a"}', None, "a"),
        (b"{}", None, None),
        (b'{"n": null, "t": null}', None, None),
        (b'{"n": true, "t": true}', 1.0, "true"),
        (b'{"n": false, "t": ""}', 0.0, ""),
        (b'{"n": 12, "t": 12345678901234567890123}', 12.0, "12345678901234567890123"),
        (b'{"n": -0, "t": -0}', 0.0, "0"),
        (b'{"n": 1e400, "t": 1.50}', float("inf"), "1.50"),
        (b'{"n": "12", "t": "NA"}', '"12"', "NA"),
        (b'{"n": {"a": 1}, "t": "b"}', '{"a": 1}', "b"),
        (b'{"n": 1, "n": 2, "\\u0074": "\\u00e9\\n\\u0000"}', 2.0, "é\n\0"),
        (b'  {"n": 3, "t": "\xc3\xa9"}\t\r', 3.0, "é"),
        (b'{"n": 3, "t": ' + b"9" * 5000 + b"}", 3.0, "9" * 5000),
        (b'{"n": 3, "other": "\xff"}', 3.0, None),
    ],
)
@pytest.mark.parametrize("neighbour", [b"", b'{"n": 1, "t": "b"}\n', b'{"n": "bad"}\n', b"not json\n"])
def test_a_value_arrives_as_found_whatever_its_neighbours(
    line: bytes, n: Any, t: Any, neighbour: bytes, tmp_path: Path
) -> None:
    columns, ragged = found(neighbour + line, tmp_path)
    assert (columns["n"][-1], columns["t"][-1], ragged) == (n, t, int(neighbour == b"not json\n"))


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"[1]",
        b"1",
        b'"a"',
        b"{",
        b'{"n": NaN}',
        b'{"n": 01}',
        b'{"n": 1}{"n": 2}',
        b'{"n": 1} x',
        b'{"n":f',
        b'{"t": "\xff"}',
        b'{"n": "\xff"}',
        b'{"t": "\\ud800"}',
        b'{"t": [1, 2]}',
        b'{"t": {"id": 5}}',
        b'{"other": ' + b"[" * 100_000 + b"}",
        b"\xff",
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_that_is_not_one_object_is_counted(line: bytes, end: bytes, tmp_path: Path) -> None:
    assert found(line + end, tmp_path)[1] == 1
    columns, ragged = found(b'\n{"n": 1}\n \n' + line + b'\n{"n": 2}\n', tmp_path)
    assert (columns["n"], ragged) == ([1.0, 2.0], 1)


def test_types_do_not_depend_on_the_values_of_a_text_column(tmp_path: Path) -> None:
    path = put(tmp_path, "a.ndjson", b'{"t": 1, "n": true}\n{"t": 2.5}\n{"t": "x"}\n')
    for block in (1, 10_000):
        with Stream(path) as stream:
            for batch in ndjson.chunks(stream, WANTED, block=block):
                assert batch.records.schema.types == [pa.float64(), pa.string()]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert found(b'\xef\xbb\xbf{"n": 1}\n', tmp_path) == ({"n": [1.0], "t": [None]}, 0)


@pytest.mark.parametrize("data", [b'[{"n": 1},\n{"n": 2}]', b'[\n  {"n": 1}\n]\n', b'\xef\xbb\xbf[{"n":1}]'])
@pytest.mark.parametrize("name", ["a.json", "data"])
def test_a_json_array_is_refused_with_the_way_out(data: bytes, name: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="jq"):
        list(read(put(tmp_path, name, data), WANTED))


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_a_name_that_cannot_be_looked_up_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="rename it"):
        list(read(put(tmp_path, "a.ndjson", b"{}\n"), WantedColumns(numeric=(name,), text=())))


def test_names_with_blanks_and_accents(tmp_path: Path) -> None:
    wanted = WantedColumns(numeric=("größe in cm", "f1"), text=("f0", ""))
    path = put(tmp_path, "a.ndjson", json.dumps({"größe in cm": 1, "f1": 2, "f0": "x", "": "y"}).encode())
    assert cells(read(path, wanted), wanted) == ({"größe in cm": [1.0], "f1": [2.0], "f0": ["x"], "": ["y"]}, 0)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
members = st.fixed_dictionaries({}, optional={"n": values, "t": values, "other": values})
objects = members.map(json.dumps) | members.map(
    lambda each: json.dumps(each, ensure_ascii=False, separators=(",", ":"))  # as a program writes that is in a hurry
)
numerals = st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,4})?|tru|truex|\.5|-|\+1", fullmatch=True)
texts = st.from_regex(r'"[a\\"/u0d é\t]{0,6}"', fullmatch=True)
written_badly = st.builds(
    "{{{}{}:{}{}{}".format,
    st.sampled_from(["", " ", ","]),
    st.sampled_from(['"n"', '"t" ', '"other"', '"\\u006e"', "n", '"né"']),
    numerals | texts,
    st.sampled_from(["", " ", ",", ',"n": 1', ' "t": 2', ',"t":null,"t":null']),
    st.sampled_from(["}", "} ", "}}", ""]),
)
strange = st.sampled_from(["", " ", "nope", "null", "{}{}", '{"n":\r1}', "{,}"])
lines = st.lists(objects | written_badly | strange, max_size=12)


@settings(max_examples=300, deadline=None)
@given(written=lines, block=st.integers(1, 60), end=st.sampled_from(["\n", "\r\n"]))
def test_any_block_size_gives_the_same(written: list[str], block: int, end: str) -> None:
    def outcome(size: int) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = put(Path(folder), "a.ndjson", end.join(written).encode())
            with Stream(path) as stream:
                return cells(ndjson.chunks(stream, WANTED, block=size), WANTED)

    assert outcome(block) == outcome(10_000)


def test_a_line_that_does_not_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldaway.sources.formats.lines._LONGEST", 1000)
    path = put(tmp_path, "a.ndjson", b'{"t": "' + b"x" * 10_000)
    with Stream(path) as stream, pytest.raises(Unreadable, match="does not end"):
        list(ndjson.chunks(stream, WANTED, block=100))
