from __future__ import annotations

import csv
import io
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foldaway.errors import SourceError
from foldaway.sources.formats import delimited, ndjson
from foldaway.sources.formats.chunk import Unreadable, WantedColumns
from foldaway.sources.formats.delimited import first_line, is_open, whole_lines
from foldaway.sources.formats.files import ReadOptions, read
from foldaway.sources.formats.streams import Stream
from source_files import cells, put

WANTED = WantedColumns(numeric=("n",), text=("t",))
HEADER = b"n,t,other\n"


def found(lines: bytes, folder: Path) -> tuple[dict[str, list[Any]], int]:
    return cells(read(put(folder, "a.csv", HEADER + lines), WANTED), WANTED)


@pytest.mark.parametrize(
    ("line", "n", "t"),
    [
        (b"1.5,007,z", 1.5, "007"),
        (b" 2 , a ,z", 2.0, " a "),
        (b"+3e2,true,z", 300.0, "true"),
        (b"true,a,z", 1.0, "a"),
        (b"FALSE,a,z", 0.0, "a"),
        (b",,z", None, None),
        (b'"",""," "', None, None),
        (b"NA,NA,z", None, None),
        (b"null,null,z", None, None),
        (b'"NA","NA",z', None, "NA"),
        (b'"NaN","NaN",z', None, "NaN"),
        (b"nan,nan,z", "NaN", "nan"),
        (b"inf,inf,z", float("inf"), "inf"),
        (b'"1.25","a ""b"", c",z', 1.25, 'a "b", c'),
        (b'"1\n","a\r\nb",z', 1.0, "a\r\nb"),
        (b'1,5" pipe,z', 1.0, '5" pipe'),
        (b'1,"a"b,z', 1.0, "ab"),
        (b"old,a,z", "old", "a"),
        (b"1_0,a,z", "1_0", "a"),
        (b"0x10,a,z", "0x10", "a"),
        ("١,é,z".encode(), "١", "é"),
        (b"1,a\0b,\xff", 1.0, "a\0b"),
    ],
)
@pytest.mark.parametrize("neighbour", [b"", b"4,b,z\n", b"bad,b,z\n"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_cell_arrives_as_found_whatever_its_neighbours(
    line: bytes, n: Any, t: Any, neighbour: bytes, end: bytes, tmp_path: Path
) -> None:
    columns, ragged = found(neighbour + line + end, tmp_path)
    assert (columns["n"][-1], columns["t"][-1], ragged) == (n, t, 0)


def test_a_column_is_text_only_in_blocks_with_a_bad_cell(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", HEADER + b"1,a,z\n" * 3 + b"old,a,z\n" + b"3,a,z\n" * 3)
    with Stream(path) as stream:
        types = [b.records.schema.field("n").type for b in delimited.chunks(stream, WANTED, block=12) if len(b.records)]
    assert types.count(pa.string()) == 1
    assert set(types) == {pa.float64(), pa.string()}


def test_lines_of_another_width_are_counted(tmp_path: Path) -> None:
    lines = b"1,a,z\n2,b\n3,c,z,z\n\n6,\xe9,z,z\n7,e,\xff\n   \n8,\xc3\xa9,z\n"
    assert found(lines, tmp_path) == ({"n": [1.0, 7.0, 8.0], "t": ["a", "e", "é"]}, 4)


@pytest.mark.parametrize("block", [1, 8, 10_000])
def test_a_line_that_is_not_a_record_has_a_number_unless_lines_cannot_be_told(block: int, tmp_path: Path) -> None:
    csv_file, json_file = (delimited.chunks, b"n,t\n", b"1,a\n", b"7\n"), (ndjson.chunks, b"", b'{"n": 1}\n', b"[1]\n")
    for chunks, header, good, wrong in (csv_file, json_file):
        for blanks in (b"", b"\n"):
            before = header + good + blanks
            with Stream(put(tmp_path, "a", before + wrong + good)) as stream:
                lines = [each.ragged_line for each in chunks(stream, WANTED, block=block) if each.ragged]
            number = before.count(b"\n") + 1
            assert lines == [number] or (blanks and lines == [None])


def test_latin_1_beside_bad_numbers(tmp_path: Path) -> None:
    assert found(b"old,\xc3\xa9,z\n1,NA,\xff\n", tmp_path) == ({"n": ["old", 1.0], "t": ["é", None]}, 0)


def test_the_header_may_have_anything_in_columns_nobody_wants(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b'\n\r\n"same",,same,"n",0,"t","a\nb"\n1,2,3,4,5,6,7\n')
    assert cells(read(path, WANTED), WANTED) == ({"n": [4.0], "t": ["6"]}, 0)


def test_a_byte_order_mark_before_a_quote(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b'\xef\xbb\xbf"a\nb",n,t\n1,2,3\n')
    assert cells(read(path, WANTED), WANTED) == ({"n": [2.0], "t": ["3"]}, 0)


def test_a_column_in_both_roles_is_text(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b"n,t\n1,2\n")
    (batch,) = read(path, WantedColumns(numeric=("n", "t"), text=("t",)))
    assert batch.records.to_pydict() == {"n": [1.0], "t": ["2"]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"n,t,n\n1,2,3\n", "more than one column named 'n'"),
        (b'n,t\n1,"a\n2,b\n', "ends inside a quoted cell"),
        (b'n,t\n1,"a""', "ends inside a quoted cell"),
        ("n,t\n1,a\n".encode("utf-16"), "is UTF-16"),
        (b"n,\xff\n1,a\n", "is not UTF-8; save it"),
        ("n,t\n1,a\n2,ü\n".encode("cp1252"), "is not UTF-8; save it as UTF-8, .*`iconv -f CP1252 -t UTF-8`"),
        (b"n,t\n\xff5,a\n", "is not UTF-8"),
        (b"n,t\0\n1,a\n", "is not text; check"),
        (b"n;t\n1,250;a\n12,500;b\n", "commas in the numbers of column 'n' that may mark decimals or group thousands"),
        (b"n;t\n1,250,000;a\n", "may mark decimals or group thousands"),
        (b"n;t\n1.5;a\n2,5;b\n", "both commas and points as decimal marks in column 'n'"),
        (b"n;t\n1,234.50;a\n1,250;b\n", "both commas and points as decimal marks in column 'n'"),
    ],
)
def test_files_that_cannot_be_read(data: bytes, words: str, tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", data)
    with pytest.raises(SourceError, match=f"{path} .*{words}"):
        list(read(path, WANTED))


@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf", b"\r\n"])
def test_the_first_line_tells_what_separates_cells(mark: str, suffix: str, bom: bytes, tmp_path: Path) -> None:
    path = put(
        tmp_path, f"a.{suffix}", bom + mark.join(['"a, b|c;d"', "n", "t"]).encode() + f"\n0{mark}1{mark}a\n".encode()
    )
    assert cells(read(path, WANTED), WANTED) == ({"n": [1.0], "t": ["a"]}, 0)


def test_a_delimiter_that_the_first_line_does_not_have(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b"n;t\n1;a\n")
    with pytest.raises(SourceError, match="is separated by semicolons, as its first line shows: leave out --delimiter"):
        list(read(path, WANTED, ReadOptions(delimiter=",")))


numbers = st.decimals(-9999, 9999, allow_nan=False, places=2).filter(lambda number: number != int(number))


@given(written=st.lists(numbers, min_size=1, max_size=30), block=st.integers(8, 200))
def test_decimal_commas_are_read_as_points_are(written: list[Decimal], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read = []
        for form, marks in [("", ".,"), ("", ",."), (",", ",.")]:  # 1234.50, 1234,50 and 1.234,50
            lines = "".join(f"{format(number, form).translate(str.maketrans('.,', marks))};a\n" for number in written)
            path = put(Path(folder), "a.csv", b"n;t\n" + lines.encode())
            with Stream(path) as stream:
                read.append(cells(delimited.chunks(stream, WANTED, delimiters=b";", block=block), WANTED))
    assert read[0] == read[1] == read[2]
    assert read[0][0]["n"] == [float(number) for number in written]


@pytest.mark.parametrize(
    ("lines", "n"),
    [
        (b"1,250;a\n0,5;b\n", [1.25, 0.5]),  # another cell of the column tells
        (b"0,5;a\n7;b\n;c\nold,1;d\n", [0.5, 7.0, None, "old,1"]),
        (b"1.250,5;a\n2,5;b\n1.250;c\n1.250.000;d\n", [1250.5, 2.5, 1250.0, 1250000.0]),
        (b"1.25,5;a\n2,5;b\n", ["1.25,5", 2.5]),  # a slip
        (b" -1,5e3 ;a\n", [-1500.0]),
    ],
)
def test_a_comma_is_a_decimal_mark_only_where_it_can_be_nothing_else(
    lines: bytes, n: list[Any], tmp_path: Path
) -> None:
    columns, ragged = cells(read(put(tmp_path, "a.csv", b"n;t\n" + lines), WANTED), WANTED)
    assert (columns["n"], ragged) == (n, 0)


def test_what_a_column_was_is_known_in_later_blocks(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b"n;t\n" + b"0,5;a\n" * 3 + b"1,250;a\n" * 3)
    with Stream(path) as stream:
        read = cells(delimited.chunks(stream, WANTED, delimiters=b";", block=12), WANTED)
    assert read[0]["n"] == [0.5] * 3 + [1.25] * 3


def test_a_line_that_does_not_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldaway.sources.formats.lines._LONGEST", 1000)
    path = put(tmp_path, "a.csv", b"n,t\n" + b'1,"' + b"x" * 10_000)
    with Stream(path) as stream, pytest.raises(Unreadable, match="does not end"):
        list(delimited.chunks(stream, WANTED, block=100))


pieces = [
    b"n",
    b"1",
    b"a",
    b",",
    b",",
    b'"',
    b'"',
    b'""',
    b"\n",
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"NA",
    "é".encode(),
    b"\xff",
]
messy = st.lists(st.sampled_from(pieces), max_size=60).map(b"".join)


@settings(max_examples=60, deadline=None)
@given(body=messy, block=st.integers(1, 40), delimiter=st.sampled_from([b",", b"\t"]))
@example(body=b'1,5" pipe\n2,"a\nb"\n3,c\n', block=5, delimiter=b",")
@example(body=b'1,"a\n"x"\n"\n2,b\n', block=3, delimiter=b",")
@example(body=b'"\r\n","\r"\r1,2\r', block=1, delimiter=b",")
def test_any_block_size_gives_the_same(body: bytes, block: int, delimiter: bytes) -> None:
    data = (b"n,t\n" + body).replace(b",", delimiter)

    def outcome(size: int) -> Any:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            try:
                with Stream(Path(file.name)) as stream:
                    return cells(delimited.chunks(stream, WANTED, delimiters=delimiter, block=size), WANTED)
            except Unreadable as error:
                return str(error)

    assert outcome(block) == outcome(10_000)


@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")), st.integers()), min_size=1
    ),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_pythons_csv_module_writes_comes_back(lines: list[tuple[str, int]], quoting: Any, end: str) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=quoting, lineterminator=end)
    writer.writerows([("t", "n"), *lines])
    nothing = {"", "NA", "NaN", "null"} if quoting == csv.QUOTE_MINIMAL else {""}
    with tempfile.TemporaryDirectory() as folder:
        columns, ragged = cells(read(put(Path(folder), "a.csv", file.getvalue().encode()), WANTED), WANTED)
    assert ragged == 0
    assert columns["t"] == [None if text in nothing else text for text, _ in lines]
    assert columns["n"] == [float(number) for _, number in lines]


# The place where a block is cut, against a reader that goes byte by byte.


def line_ends(block: bytes) -> tuple[list[int], bool]:
    """Where lines end, and whether the block ends inside quotes; by the rules of Arrow's parser, one byte at a time."""
    ends, i, at_start, inside = [], 0, True, False
    while i < len(block):
        byte = block[i : i + 1]
        if inside:
            if byte == b'"':
                if block[i + 1 : i + 2] == b'"':
                    i += 1
                else:
                    inside = False
        elif byte == b'"' and at_start:
            inside = True
        elif byte in b"\r\n":
            if block[i : i + 2] == b"\r\n":
                i += 1
            ends.append(i + 1)
        at_start = not inside and byte in b",\r\n"
        i += 1
    return ends, inside


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet='a,"\n\r', max_size=40))
def test_blocks_are_cut_where_lines_end(text: str) -> None:
    block = text.encode()
    ends, inside = line_ends(block)
    assert first_line(block, b",") == (ends[0] if ends else len(block))
    assert is_open(block, b",") == inside
    cut = whole_lines(block, b",")
    assert cut in {0, *ends}
    # A carriage return at the end may be half of a line end; else nothing is left that could have been taken.
    newlines = [end for end in ends if block[end - 1 : end] == b"\n"]
    returns = [end for end in ends if end < len(block)]
    assert cut == (newlines or returns or [0])[-1]


def test_many_quotes_take_no_longer_than_the_bytes() -> None:
    block = b'1,5" pipe,"a"\n' * 100_000
    assert whole_lines(block, b",") == len(block)
