from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldaway.sources.formats.chunk import Unreadable, WantedColumns
from foldaway.sources.formats.json_array import TooMany, batch
from foldaway.sources.formats.ndjson import Decoder
from fuzzing import fuzz
from source_files import cells

WANTED = WantedColumns(numeric=("n",), text=("t",))
DECODER = Decoder(WANTED)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
objects = st.lists(st.fixed_dictionaries({}, optional={"n": values, "t": values, "other": values}), max_size=8)


@fuzz(max_examples=200)
@given(written=objects)
def test_an_array_gives_what_its_objects_give_as_lines(written: list[dict[str, Any]]) -> None:
    lines = "\n".join(json.dumps(row) for row in written).encode()
    found = batch(json.dumps(written).encode(), DECODER, 8)
    assert cells([found], WANTED) == cells([DECODER(lines)], WANTED)
    assert found.records.schema.names == ["n", "t"]


def test_a_member_that_is_not_utf_8_makes_its_object_ragged() -> None:
    found = batch(b'[{"t": "a"}, {"t": "\xff"}, {"n": 2, "other": "\xff"}]', DECODER, 3)
    assert (found.records.to_pydict(), found.ragged) == ({"n": [None, 2.0], "t": ["a", None]}, 1)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"[{}, null]", b"[{}", b"[{}]]", b"[{},]", b"[{}] x", b"[" * 9999]
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable, match="array of objects"):
        batch(data, DECODER, 3)


def test_the_most_that_is_taken() -> None:
    data = json.dumps([{"n": 1, "other": {"a": {}}}] * 5).encode()
    assert batch(data, DECODER, 5).records.num_rows == 5
    with pytest.raises(TooMany):
        batch(data, DECODER, 4)
