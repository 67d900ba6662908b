from __future__ import annotations

import os
from pathlib import Path

import pytest

from foldaway.errors import SourceError
from foldaway.sources.formats.paths import Stdin, expand, size


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("deep/er").mkdir(parents=True)
    for name in ("b.csv", "a.csv", "a[1].csv", "deep/er/c.csv", "x.parquet"):
        Path(name).write_bytes(b"12345")
    Path("same.csv").symlink_to("a.csv")
    Path("folder.csv").mkdir()


@pytest.mark.parametrize(
    ("patterns", "files"),
    [
        (["b.csv", "a.csv"], ["a.csv", "b.csv"]),
        (["?.csv"], ["a.csv", "b.csv"]),
        (["a.csv", "./a.csv", "deep/../a.csv", "same.csv"], ["a.csv"]),
        (["a[1].csv"], ["a[1].csv"]),
        (["**/c.csv", "deep/er/*"], ["deep/er/c.csv"]),
        (["~/b.csv"], ["b.csv"]),
        (["-", "x.parquet", "-"], ["x.parquet", "standard input"]),
        ([], []),
    ],
)
def test_patterns_give_files_sorted_and_each_once(patterns: list[str], files: list[str], tmp_path: Path) -> None:
    assert [os.path.relpath(p, tmp_path) if isinstance(p, Path) else str(p) for p in expand(patterns)] == files


@pytest.mark.parametrize("pattern", ["nothing*.csv", "nothing.csv", "folder.c*", "a[2].csv", ""])
def test_a_pattern_without_a_file_is_refused(pattern: str) -> None:
    with pytest.raises(SourceError, match="matches no file"):
        expand(["a.csv", pattern])


def test_a_folder_is_refused_with_the_way_out() -> None:
    with pytest.raises(SourceError, match=r"deep is a folder; .* deep/\*\.csv"):
        expand(["deep"])


def test_size() -> None:
    assert size(Path("a.csv")) == 5
    assert size(Stdin()) is None
    with pytest.raises(SourceError, match=r"gone\.csv is not there") as caught:
        size(Path("gone.csv"))
    assert caught.value.__context__ is None
