"""The bytes of a file or of standard input, decompressed, with a count of how much of the file they took."""

import io
import os
import re
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO

import pyarrow as pa

from foldaway.sources.formats.paths import Stdin, size

# By content, not by suffix: some programs unpack a file and keep its name, others pack it and do the same.
_PACKED = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17\x72\x45\x38\x50\x90)"),
}


class Peekable(io.RawIOBase):
    """A reader whose next bytes can be looked at without taking them."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._ahead = b""
        self.taken = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def peek(self, count: int) -> bytes:
        """The next bytes, fewer at the end, without taking them."""
        while len(self._ahead) < count and (more := self._source.read(count - len(self._ahead))):
            self._ahead += more
        return self._ahead[:count]

    def read(self, count: int = -1) -> bytes:
        """Take the next bytes, or all that are left; empty at the end."""
        head, self._ahead = (self._ahead, b"") if count < 0 else (self._ahead[:count], self._ahead[count:])
        rest = b"" if len(head) == count else self._source.read(count - len(head) if count >= 0 else -1)
        self.taken += len(head) + len(rest)
        return head + rest if head else rest


class Stream(AbstractContextManager["Stream"]):
    """An open file or standard input.

    Attributes:
        path: What was opened.
        size: Its size in bytes, None for a pipe.
    """

    def __init__(self, path: Path | Stdin) -> None:
        self.path = path
        self.size = size(path)
        self._open = ExitStack()
        raw = sys.stdin.buffer if isinstance(path, Stdin) else self._open.enter_context(path.open("rb"))
        self._file = self._data = Peekable(raw)
        self._at: int | None = None
        head = self._file.peek(10)
        for codec, magic in _PACKED.items():
            if magic.match(head):
                source = pa.PythonFile(self._file, mode="r")
                self._data = Peekable(self._open.enter_context(pa.CompressedInputStream(source, codec)))

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def consumed(self) -> int:
        """How many of the file's bytes have been used so far."""
        return self._file.taken if self._at is None else self._at

    @property
    def packed(self) -> bool:
        """Whether the file is compressed as a whole."""
        return self._data is not self._file

    def reached(self, share: float) -> None:
        """Note how much of the file is used, for readers that jump around in it."""
        self._at = int(share * self.size) if self.size is not None else self._file.taken

    def peek(self, count: int) -> bytes:
        """The next bytes, fewer at the end, without taking them."""
        return self._data.peek(count)

    def read(self, count: int = -1) -> bytes:
        """Take the next bytes, or all that are left; empty at the end."""
        return self._data.read(count)

    def sequential(self) -> pa.NativeFile:
        """The bytes as a file that Arrow reads from start to end."""
        return pa.PythonFile(self._data, mode="r")

    def seekable(self) -> pa.NativeFile:
        """The bytes as a file that Arrow can jump around in.

        Nobody can jump around in a pipe or in a compressed file, so these are first read into memory whole.
        """
        if not self.packed and self.size is not None:
            assert isinstance(self.path, Path)
            return self._open.enter_context(pa.OSFile(os.fsencode(self.path)))  # not every name is text
        return pa.BufferReader(self.read())
