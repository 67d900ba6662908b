"""Only the plan's columns are read: what stands in another column cannot even hurt."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldaway as fa
from foldaway.sources.formats.files import FORMATS

PLAN = fa.Plan(name="few", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
N = 2000
TABLE = pa.table(
    {
        "group": ["ab"[i % 2] for i in range(N)],
        "diary": [f"a secret of patient {i} " * 5 for i in range(N)],
        "y": [float(i % 7) for i in range(N)],
    }
)


def column_bytes(path: Path, column: int) -> list[tuple[int, int]]:
    """Where the pages of a Parquet column lie."""
    metadata = pq.read_metadata(path)
    found = []
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(column)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        found.append((start, start + chunk.total_compressed_size))
    return found


def spoil(path: Path, ranges: list[tuple[int, int]]) -> None:
    data = bytearray(path.read_bytes())
    for start, stop in ranges:
        data[start:stop] = b"\xff" * (stop - start)
    path.write_bytes(data)


def test_the_pages_of_other_parquet_columns_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=250)
    whole = fa.fold_files(path, PLAN)
    spoil(path, column_bytes(path, 1))
    for processes in (1, 2):
        assert fa.fold_files(path, PLAN, processes=processes).dumps() == whole.dumps()
    spoil(path, column_bytes(path, 2))
    with pytest.raises(fa.SourceError, match="damaged"):
        fa.fold_files(path, PLAN)


@pytest.mark.parametrize("opened", [pa.ipc.new_file, pa.ipc.new_stream])
def test_the_buffers_of_other_arrow_columns_are_not_read(tmp_path: Path, opened: object) -> None:
    """Compressed buffers that are spoilt cannot be unpacked: whoever reads them fails."""
    path = tmp_path / "t.arrow"
    with opened(path, TABLE.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:  # type: ignore[operator]
        file.write_table(TABLE)
    whole = fa.fold_files(path, PLAN)
    data = bytearray(path.read_bytes())
    frames = [at for at in range(len(data) - 4) if data[at : at + 4] == b"\x28\xb5\x2f\xfd"]
    largest = max(zip(frames, [*frames[1:], len(data)], strict=True), key=lambda ends: ends[1] - ends[0])[0]
    data[largest : largest + 4] = b"\0\0\0\0"  # the diaries, by far the longest
    path.write_bytes(data)
    assert fa.fold_files(path, PLAN).dumps() == whole.dumps()
    with pytest.raises((OSError, pa.ArrowException)):
        pa.ipc.open_file(path).read_all() if opened is pa.ipc.new_file else pa.ipc.open_stream(path).read_all()


def test_cells_and_members_of_other_columns_may_be_anything(tmp_path: Path) -> None:
    """In text formats every byte goes by, but only the wanted cells are made into columns and judged."""
    rows = TABLE.to_pylist()
    lines = b"".join(f'{row["group"]},"'.encode() + b'\xff\n""",' + f"{row['y']}\n".encode() for row in rows)
    (tmp_path / "t.csv").write_bytes(b"group,diary,y\n" + lines)
    objects = "".join(json.dumps({**row, "diary": {"deep": [[row["diary"]]]}}) + "\n" for row in rows)
    (tmp_path / "t.ndjson.gz").write_bytes(gzip.compress(objects.encode()))
    whole = fa.Trial(PLAN)
    whole.fold(TABLE)
    for name in ("t.csv", "t.ndjson.gz"):
        trial = fa.fold_files(tmp_path / name, PLAN)
        assert trial.counts == whole.counts
        ours, theirs = trial.effects()[0], whole.effects()[0]
        assert ours.estimate == pytest.approx(theirs.estimate, rel=1e-12)


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
def test_a_delimiter_of_ones_own(tmp_path: Path, delimiter: str) -> None:
    text = f'group{delimiter}y\na{delimiter}"1"\nb{delimiter}2\n'
    (tmp_path / "t.csv").write_text(text)
    assert fa.fold_files(tmp_path / "t.csv", PLAN, delimiter=delimiter).n == 2
    (tmp_path / "t.txt").write_text(text)
    assert fa.fold_files(tmp_path / "t.txt", PLAN, delimiter=delimiter, format="csv").n == 2
    with pytest.raises(fa.FoldawayError, match="delimiter"):
        fa.fold_files(tmp_path / "t.csv", PLAN, delimiter="!")


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n", "ü"])
def test_what_is_no_delimiter(tmp_path: Path, delimiter: str) -> None:
    (tmp_path / "t.csv").write_text("group,y\na,1\n")
    with pytest.raises(fa.SourceError, match="one character"):
        fa.fold_files(tmp_path / "t.csv", PLAN, delimiter=delimiter)
    assert "csv" in FORMATS
    with pytest.raises(fa.SourceError, match="not for parquet"):
        fa.fold_files(tmp_path / "t.csv", PLAN, delimiter=";", format="parquet")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("group,y\na,1\nb,x\n", ", first in line 3: "),
        ("\n\ngroup,y\r\na,1\r\nb,2\r\nc,3\r\n", ", first in line 6: "),
        ('group,y\n"a",1\n"a\n",2\n', ": "),  # a record of two lines: which is which cannot be told
        ("group,y\na,1\n\nb,x\n", ": "),
        ("group,y\ra,1\rb,x\r", ": "),
    ],
)
def test_the_line_of_the_first_fault(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    with pytest.raises(fa.RecordError) as caught:
        fa.fold_files(path, PLAN)
    assert str(caught.value).startswith(f"{path}{where}The batch was rejected")


def test_the_line_of_the_first_fault_far_into_the_file(tmp_path: Path) -> None:
    lines = [f'{{"group": "a", "y": {i}}}' for i in range(200_000)]
    lines[177_776] = '{"group": "a", "y": null}'
    (tmp_path / "t.ndjson").write_text("\n".join(lines))
    with pytest.raises(fa.RecordError, match="first in line 177,777: "):
        fa.fold_files(tmp_path / "t.ndjson", PLAN)
    (tmp_path / "t.csv").write_text("group,y\n" + "".join(f"a,{'x' if i == 177_775 else i}\n" for i in range(200_000)))
    with pytest.raises(fa.RecordError, match="first in line 177,777: "):
        fa.fold_files(tmp_path / "t.csv", PLAN)


def test_a_saved_state_is_no_file_of_records(tmp_path: Path) -> None:
    trial = fa.Trial(PLAN)
    trial.fold(TABLE)
    trial.save(tmp_path / "state")
    with pytest.raises(fa.SourceError, match="as --resume"):
        fa.fold_files(tmp_path / "state", PLAN)
