"""Whatever is wrong with a file, the reader ends in batches or a SourceError, and no value of a record gets out."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldaway.errors import SourceError
from foldaway.sources.formats.chunk import Chunk, WantedColumns
from foldaway.sources.formats.files import ReadOptions, read
from sizes import mostly_slow
from source_files import SCHEMA, WANTED, WRITERS, put, rows

MARKER = "MARKER7731"
NUMBER = 7731773177.25
SECRETS = (MARKER, "7731773177")

# Every way in: by suffix, and by first bytes for a name that says nothing.
NAMES = [*WRITERS, "data"]


def marked(name: str, n: int = 300) -> bytes:
    """A file with the marker in many places, some of them wrong: as a number, in a line that is too long."""
    data = [{**row, "arm": MARKER, "unit": f"{MARKER}-{i}", "y": NUMBER} for i, row in enumerate(rows(n))]
    written = WRITERS[name](data)
    if name in ("a.csv", "crlf.csv", "a.tsv"):
        written += f"{MARKER},{MARKER},{MARKER},{MARKER},{MARKER}\n{MARKER},{MARKER}\n".encode()
    return written


def outcome(path: Path, wanted: WantedColumns = WANTED) -> SourceError | None:
    try:
        for batch in read(path, wanted):
            assert isinstance(batch, Chunk)
            batch.records.validate(full=True)
    except SourceError as error:
        return error
    return None


def everything_said(error: BaseException) -> str:
    said = [*traceback.format_exception(error), repr(error), str(error), repr(error.args), repr(vars(error))]
    for other in (error.__cause__, error.__context__):
        said += [everything_said(other)] if other is not None else []
    return "\n".join(said)


@pytest.mark.parametrize("name", mostly_slow(WRITERS, *list(WRITERS)[::3]))
def test_a_damaged_file_says_nothing_of_its_records(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = marked(name)
    refused = 0
    for i in range(1, 14):
        cut = len(whole) * i // 14
        scratched = whole[:cut] + bytes(byte ^ 0xFF for byte in whole[cut : cut + 40]) + whole[cut + 40 :]
        for data in (whole[:cut], whole[cut:], scratched, whole[: cut // 2] + whole[cut:]):
            error = outcome(put(tmp_path, name, data))
            if error is not None:
                refused += 1
                said = everything_said(error).replace(str(tmp_path), "")
                assert not any(secret in said for secret in SECRETS)
                assert str(error).startswith(str(tmp_path / name))
    assert not any(secret in text for text in capfd.readouterr() for secret in SECRETS)
    assert refused or name.endswith(("json", "jsonl"))


def test_wrong_types_say_nothing_either(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    swapped = WantedColumns(numeric=("arm", "unit"), text=("y", "x"))
    for name in WRITERS:
        assert outcome(put(tmp_path, name, marked(name)), swapped) is None
    assert not any(secret in text for text in capfd.readouterr() for secret in SECRETS)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.zst", "a.csv.bz2", "a.ndjson.gz", "a.parquet", "a.arrow", "a.ipc"])
def test_a_file_that_was_cut_short_is_refused(name: str, tmp_path: Path) -> None:
    data = WRITERS[name](rows(2000))
    for cut in (len(data) - 100, len(data) // 2):
        error = outcome(put(tmp_path, name, data[:cut]))
        assert error is not None
        assert "cut short" in str(error)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "data"])
def test_an_empty_file_is_refused(name: str, tmp_path: Path) -> None:
    assert outcome(put(tmp_path, name, b"")) is not None


def test_a_spreadsheet_is_recognised(tmp_path: Path) -> None:
    assert "zip archive or a spreadsheet" in str(outcome(put(tmp_path, "book.xlsx", b"PK\x03\x04 and so on")))


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    twice = SCHEMA.append(SCHEMA.field("y"))
    with pa.ipc.new_file(tmp_path / "a.arrow", twice) as file:
        file.write_table(twice.empty_table())
    assert "more than one column named 'y'" in str(outcome(tmp_path / "a.arrow"))


def test_files_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not there" in str(outcome(tmp_path / "gone.csv"))
    assert "is a folder" in str(outcome(tmp_path))
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    assert "cannot be opened" in str(outcome(tmp_path / "loop.csv"))

    def refuse(*_: object) -> None:  # root, who runs some tests, may open everything
        raise PermissionError(13, "denied")

    path = put(tmp_path, "a.csv", b"y\n1\n")
    monkeypatch.setattr(Path, "open", refuse)
    assert "check its permissions" in str(outcome(path))


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="csv, tsv, parquet, arrow, ndjson"):
        next(read(tmp_path / "a.csv", WANTED, ReadOptions("xls")))


def test_want_of_memory_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("foldaway.sources.formats.files.join", refuse)
    with pytest.raises(SourceError, match="more memory than there is"):
        list(read(put(tmp_path, "a.csv", b"y\n1\n"), WANTED, whole=True))


fuzzing = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", mostly_slow(NAMES, *list(NAMES)[::3]))
@fuzzing
@given(data=st.binary(max_size=200))
def test_random_bytes(name: str, data: bytes, tmp_path: Path) -> None:
    for start in (
        b"",
        b"PAR1",
        b"ARROW1\0\0",
        b"\xff\xff\xff\xff\x10\0\0\0",
        b"\x1f\x8b\x08",
        b"y,x,arm,unit\n",
        b'{"y":',
    ):
        outcome(put(tmp_path, name, start + data))


VALID = {name: WRITERS[name](rows(40)) for name in WRITERS}
changes = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["set", "cut", "drop", "insert"]),
        st.binary(min_size=1, max_size=8)
        | st.sampled_from([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\0\0\0\0", b'"', b"\n"]),
    ),
    min_size=1,
    max_size=3,
)


def changed(data: bytes, how: list[tuple[float, str, bytes]]) -> bytes:
    for place, kind, new in how:
        at = int(place * len(data))
        after = {"set": at + len(new), "cut": len(data), "drop": at + len(new), "insert": at}[kind]
        data = data[:at] + (new if kind in ("set", "insert") else b"") + data[after:]
    return data


@pytest.mark.parametrize("name", mostly_slow(WRITERS, *list(WRITERS)[::3]))
@fuzzing
@given(how=changes)
def test_changed_files(name: str, how: list[tuple[float, str, bytes]], tmp_path: Path) -> None:
    outcome(put(tmp_path, name, changed(VALID[name], how)))


def test_nothing_is_left_open(tmp_path: Path) -> None:
    for name in WRITERS:  # Arrow opens a pipe of its own once, on first use
        outcome(put(tmp_path, name, VALID[name]))
    before = set(os.listdir("/proc/self/fd"))
    for name in WRITERS:
        outcome(put(tmp_path, name, VALID[name]))
        outcome(put(tmp_path, name, VALID[name][: len(VALID[name]) // 2]))
    assert set(os.listdir("/proc/self/fd")) <= before  # others' may have been closed meanwhile
