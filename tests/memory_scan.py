"""What is left of records in a process's memory, in files and in text: planted marks, and a search for them.

All identifiers share a beginning and an end, and all outcomes the upper half of their bits, so that one search for
each of these finds any of thousands; the digits between, and the lower half, tell which one it was.
"""

from __future__ import annotations

import io
import os
import random
import re
import string
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_DIGITS = 7
_APART = 1000  # the lower halves differ by at least this, so that their first digits tell outcomes apart
_CHUNK = 16 * 2**20
_OVERLAP = 64
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NUMBER = re.compile(rb"[0-9.]+")
_TEXT = 15  # so many characters of a number's text tell it from the others


@dataclass
class Hits:
    """Which marks were found, and where."""

    identifiers: set[int] = field(default_factory=set)
    outcomes: set[int] = field(default_factory=set)
    texts: set[int] = field(default_factory=set)
    fragments: int = 0
    places: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.identifiers or self.outcomes or self.texts or self.fragments)

    def add(self, other: Hits) -> None:
        self.identifiers |= other.identifiers
        self.outcomes |= other.outcomes
        self.texts |= other.texts
        self.fragments += other.fragments
        self.places += other.places


class Marks:
    """Identifiers and outcomes that can be found again.

    Args:
        count: How many of each.
        seed: Marks of different seeds do not match; without one they are new every time, as they must be if the
            process that is searched is to know them from nobody but their sender.
    """

    def __init__(self, count: int, seed: int | None = None) -> None:
        chance = random.Random(seed)
        self.count = count
        self.start, self.end = ("".join(chance.choices(string.ascii_letters, k=8)) for _ in range(2))
        # 64 to 128, and no byte of the upper half is zero, so that it stands out.
        self._high = (
            0x40500000 | sum(chance.randrange(1, 256) << shift for shift in (0, 8)) | chance.randrange(16) << 16
        )
        self._high_bytes = struct.pack("<I", self._high)
        # At random: in a row of equal steps, the mean of some outcomes, which a tally may keep, would be another one.
        self._low = [_APART * step + 1 for step in chance.sample(range(2**32 // _APART), count)]
        self._number = {low: i for i, low in enumerate(self._low)}
        texts = [repr(self.outcome(i)) for i in range(count)]
        self._texts = {text[:_TEXT].encode(): i for i, text in enumerate(texts)}
        self._common = os.path.commonprefix(texts).encode()  # noqa: RUF071

    def identifier(self, i: int) -> str:
        return f"{self.start}{i:0{_DIGITS}d}{self.end}"

    def outcome(self, i: int) -> float:
        value: float = struct.unpack("<d", struct.pack("<II", self._low[i], self._high))[0]
        return value

    def find(self, data: bytes | bytearray) -> Hits:
        """The marks in some bytes, at any alignment; a mark cut off at the border is a fragment."""
        hits = Hits()
        for at in _positions(data, self.start.encode()):
            self._identifier(data[at + 8 : at + 8 + _DIGITS], hits)
        for at in _positions(data, self.end.encode()):
            self._identifier(data[max(at - _DIGITS, 0) : at], hits)
        for at in _positions(data, self._high_bytes):
            number = self._number.get(int.from_bytes(data[at - 4 : at], "little")) if at >= 4 else None
            if number is not None:
                hits.outcomes.add(number)
        for at in _positions(data, self._common):
            written = _NUMBER.match(data, at)
            number = self._texts.get(written[0][:_TEXT]) if written else None
            if number is not None:
                hits.texts.add(number)
        return hits

    def _identifier(self, digits: bytes | bytearray, hits: Hits) -> None:
        if len(digits) == _DIGITS and digits.isdigit() and int(digits) < self.count:
            hits.identifiers.add(int(digits))
        else:
            hits.fragments += 1


def scan_process(pid: int, marks: Marks) -> Hits:
    """The marks in all memory that a process can write to. Needs to be root, or its parent where it allows that."""
    hits = Hits()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for name, data in _chunks(pid, memory):
            found = marks.find(data)
            found.places = Counter({name: 1} if found else {})
            hits.add(found)
    return hits


def _chunks(pid: int, memory: io.RawIOBase) -> Iterator[tuple[str, bytes]]:
    for first, last, name in mappings(pid):
        spans = ((at, stop) for start, stop in _held(pid, first, last) for at in range(start, stop, _CHUNK))
        for at, stop in spans:
            try:
                # Into the next chunk, so that no mark is cut in two; what is found twice counts once.
                data = os.pread(memory.fileno(), min(_CHUNK + _OVERLAP, stop - at), at)
            except OSError:
                continue  # unmapped since, or a device's
            yield name, data


def _held(pid: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The spans of some memory that are anywhere: Arrow asks for a gigabyte, of which most was never written to."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pages:
        entries = os.pread(pages.fileno(), (stop - start) // _PAGE * 8, start // _PAGE * 8)
    held = np.flatnonzero(np.frombuffer(entries, dtype=np.uint64) >> np.uint64(62))  # in memory, or swapped
    for run in np.split(held, np.flatnonzero(np.diff(held) > 1) + 1) if len(held) else ():
        yield start + int(run[0]) * _PAGE, start + (int(run[-1]) + 1) * _PAGE


def count_numbers(pid: int, numbers: NDArray[np.float64]) -> int:
    """How many of these numbers are somewhere in the process's memory, where numbers lie: at multiples of eight."""
    wanted = np.unique(numbers.view(np.uint64))
    found = np.zeros(len(wanted), dtype=bool)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for data in (data for _, data in _chunks(pid, memory)):
            words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
            at = np.minimum(np.searchsorted(wanted, words), len(wanted) - 1)
            found[at[wanted[at] == words]] = True
    return int(found.sum())


def mappings(pid: int) -> Iterator[tuple[int, int, str]]:
    """Start, end and name of all memory that a process can write to."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, access, _, _, _, *name = line.split(maxsplit=5)
        if access.startswith("rw"):
            start, stop = (int(address, 16) for address in span.split("-"))
            yield start, stop, name[0] if name else "(anonymous)"


def scan_files(folders: Iterable[Path], marks: Marks) -> Hits:
    """The marks in all files under some folders."""
    hits = Hits()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                found = _scan_file(path, marks)
                found.places = Counter({str(path): 1} if found else {})
                hits.add(found)
    return hits


def _scan_file(path: Path, marks: Marks) -> Hits:
    hits = Hits()
    rest = b""
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                hits.add(marks.find(rest + data))
                rest = data[-_OVERLAP:]
    except OSError:
        pass  # gone since
    return hits


def _positions(data: bytes | bytearray, pattern: bytes) -> Iterator[int]:
    at = data.find(pattern)
    while at >= 0:
        yield at
        at = data.find(pattern, at + 1)
