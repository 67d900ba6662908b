"""Cut a stream of bytes into blocks of whole lines."""

from collections.abc import Callable, Iterator

from foldaway.sources.formats.chunk import Unreadable
from foldaway.sources.formats.streams import Peekable, Stream

BLOCK = 4 * 2**20
"""Bytes read at a time: some tens of thousands of usual lines."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs begin a file in UTF-8 with it; it is no part of the first line
_LONGEST = 64 * 2**20  # a longer line is no line: without a limit, a file without line ends would fill the memory


class LineNumbers:
    r"""Counts lines as blocks of them go by.

    Example:
        >>> numbers = LineNumbers()
        >>> numbers.of(b"a,b\n", 1), numbers.of(b"1,2\n3,4\n", 2), numbers.of(b'5,"6\n7"\n', 1)
        (1, 2, None)
        >>> numbers.of(b"8,9", 1)
        6
    """

    def __init__(self) -> None:
        self.passed: int | None = 0

    def of(self, block: bytes, records: int) -> int | None:
        """The number of the block's first line, or None if the block is not one record to a line."""
        if self.passed is None:
            return None
        first, ends = self.passed + 1, block.count(b"\n")
        # Line ends of another kind make every later number unsure.
        self.passed = None if block.count(b"\r") != block.count(b"\r\n") else self.passed + ends
        lines = ends + (not block.endswith(b"\n"))
        return first if self.passed is not None and records and records == lines else None


def blocks(stream: Stream | Peekable, whole: Callable[[bytes], int], size: int = BLOCK) -> Iterator[bytes]:
    """Blocks of whole lines, of about `size` bytes; the last may lack its line end.

    How many of some bytes are whole lines, `whole` says.
    """
    if stream.peek(3) == BYTE_ORDER_MARK:
        stream.read(3)
    rest = b""
    while data := stream.read(size):
        rest += data
        end = whole(rest)
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > _LONGEST:
            raise Unreadable("has a line that does not end; check the format, and that every quote is closed")
    if rest:
        yield rest
