"""Messages: the same records in every form, and whatever bytes come, records or a sentence without a value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bodies import as_arrow, as_json, as_ndjson
from consuming import FORMS, people
from foldaway.sources.brokers.messages import decode_message
from foldaway.sources.formats.body import ARROW, JSON, NDJSON
from foldaway.sources.formats.chunk import Chunk, Unreadable, WantedColumns

WANTED = WantedColumns(numeric=("y", "x"), text=("group", "unit"))


@pytest.mark.parametrize(("kind", "write"), FORMS)
@pytest.mark.parametrize("n", [1, 7])
def test_every_form_gives_the_same_records(kind: str | None, write, n: int) -> None:  # type: ignore[no-untyped-def]
    records = people(n)
    found = decode_message(write(records), kind, WANTED)
    assert found.records.to_pydict() == records.select(WANTED.names).to_pydict()
    assert found.ragged == 0


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "", "nonsense; x"])
def test_a_kind_that_is_none_of_ours_says_nothing(kind: str) -> None:
    records = people(3)
    for write in (as_arrow, as_json, as_ndjson):
        assert decode_message(write(records), kind, WANTED).records.num_rows == 3


def test_lines_that_are_no_records_are_counted() -> None:
    found = decode_message(b'{"y": 1, "x": 2, "group": "a"}\nnonsense\n[1]\n', None, WANTED)
    assert (found.records.num_rows, found.ragged) == (1, 2)


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (b"", None, "empty"),
        (b"\xef\xbb\xbf ", None, "empty"),
        ("[]".encode("utf-16"), None, "UTF-16"),
        (b"ARROW1\0\0", None, "Arrow file"),
        (b"[{]", None, "not one JSON array"),
        (b"{} {}", JSON, "not one JSON array"),
        (as_arrow(people(5))[:-9], None, "not one whole Arrow stream"),
        (as_arrow(people(5).select([]).append_column("z", [[1] * 5])), ARROW, "none of the plan's columns"),
    ],
)
def test_what_holds_no_records_is_told(body: bytes, kind: str | None, told: str) -> None:
    with pytest.raises(Unreadable, match=told):
        decode_message(body, kind, WANTED)


def test_an_entry_without_a_wanted_field_is_told() -> None:
    with pytest.raises(Unreadable, match="none of the plan's columns"):
        decode_message({"other": "1"}, None, WANTED)


@given(st.binary(max_size=60), st.sampled_from([None, ARROW, JSON, NDJSON]))
def test_any_bytes_give_records_or_a_sentence(body: bytes, kind: str | None) -> None:
    found: Chunk | Unreadable
    try:
        found = decode_message(b"SECRET" + body, kind, WANTED)
    except Unreadable as error:
        found = error
    if isinstance(found, Unreadable):
        assert "SECRET" not in str(found)
        assert found.__context__ is None
