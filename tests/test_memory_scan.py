"""The scan finds what is planted, wherever that is, and nothing else."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import memory_scan
from memory_scan import Marks, count_numbers, scan_files, scan_process

COUNT = 500
ALL = set(range(COUNT))

# What a child does with the marks it is sent. Then it waits, so that it can be searched.
KEEP = "kept = [bytes(line) for line in data.split(b'\\n')]; del data"
FREE = KEEP + "; del kept"
BEGIN = "import sys; data = bytearray(sys.stdin.buffer.read({length}))"
END = "print('ready', flush=True); sys.stdin.read()"


def identifiers(marks: Marks) -> bytes:
    return "\n".join(marks.identifier(i) for i in range(COUNT)).encode()


def outcomes(marks: Marks) -> bytes:
    return b"".join(struct.pack("<d", marks.outcome(i)) for i in range(COUNT))


def texts(marks: Marks) -> bytes:
    return "\n".join(repr(marks.outcome(i)) for i in range(COUNT)).encode()


@contextmanager
def child(planted: bytes, step: str) -> Iterator[int]:
    """A process that was sent some bytes; only there, not in its arguments, does it know them from."""
    code = "\n".join([BEGIN.format(length=len(planted)), step, END])
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(planted)
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.communicate()


def test_it_finds_what_a_process_holds() -> None:
    marks = Marks(COUNT)
    with child(identifiers(marks), KEEP) as pid:
        hits = scan_process(pid, marks)
    assert hits.identifiers == ALL
    assert not hits.outcomes
    assert hits.places


@pytest.mark.parametrize("shift", range(8))
def test_it_finds_numbers_at_any_alignment(shift: int) -> None:
    marks = Marks(COUNT)
    with child(bytes(shift) + outcomes(marks), "pass") as pid:
        hits = scan_process(pid, marks)
        aligned = count_numbers(pid, np.frombuffer(outcomes(marks)))
    assert hits.outcomes == ALL
    assert not hits.identifiers
    # On the way to the child's buffer they may have lain elsewhere, so this is certain for the shift of none only.
    assert aligned == COUNT or shift


def test_it_finds_numbers_as_text() -> None:
    marks = Marks(COUNT)
    with child(texts(marks), KEEP) as pid:
        assert scan_process(pid, marks).texts == ALL


def test_it_finds_what_was_freed_and_not_overwritten() -> None:
    marks = Marks(COUNT)
    with child(identifiers(marks), FREE) as pid:
        assert len(scan_process(pid, marks).identifiers) > COUNT / 2


def test_it_finds_nothing_in_a_process_that_was_sent_other_marks() -> None:
    marks, others = Marks(COUNT), Marks(COUNT)
    with child(identifiers(others) + outcomes(others) + texts(others), KEEP) as pid:
        assert not scan_process(pid, marks)
        assert count_numbers(pid, np.frombuffer(outcomes(marks))) == 0


def test_a_piece_of_an_identifier_is_a_fragment() -> None:
    marks = Marks(COUNT)
    whole = marks.identifier(7).encode()
    for piece in (whole[:10], whole[-10:], whole[:12] + bytes(20)):
        hits = marks.find(piece)
        assert (hits.identifiers, hits.fragments) == (set(), 1)


def test_it_finds_what_is_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = Marks(COUNT)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "identifiers").write_bytes(identifiers(marks))
    (tmp_path / "outcomes").write_bytes(b"\0" * 3 + outcomes(marks) + texts(marks))
    (tmp_path / "nothing").write_bytes(b"nothing")
    (tmp_path / "loop").symlink_to(tmp_path)
    for chunk in (2**20, 100, 64):
        monkeypatch.setattr(memory_scan, "_CHUNK", chunk)
        hits = scan_files([tmp_path], marks)
        assert (hits.identifiers, hits.outcomes, hits.texts) == (ALL, ALL, ALL)
        assert set(hits.places) == {str(deep / "identifiers"), str(tmp_path / "outcomes")}


def test_marks_cut_in_two_by_a_chunk_are_found_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = Marks(COUNT)
    with child(identifiers(marks), "pass") as pid:
        monkeypatch.setattr(memory_scan, "_CHUNK", 4096)
        assert scan_process(pid, marks).identifiers == ALL
