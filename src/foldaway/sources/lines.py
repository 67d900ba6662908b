"""Cut a stream of bytes into blocks of whole lines."""

from collections.abc import Callable, Iterator

from foldaway.sources.batch import Unreadable
from foldaway.sources.streams import Peekable, Stream

BLOCK = 4 * 2**20
"""Bytes read at a time: some tens of thousands of usual lines."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs begin a file in UTF-8 with it; it is no part of the first line
_LONGEST = 64 * 2**20  # a longer line is no line: without a limit, a file without line ends would fill the memory


def blocks(stream: Stream | Peekable, whole: Callable[[bytes], int], size: int = BLOCK) -> Iterator[bytes]:
    """Blocks of whole lines, of about `size` bytes; the last may lack its line end.

    Args:
        stream: Where the bytes come from.
        whole: How many of the given bytes are whole lines.
        size: How many bytes to read at a time.
    """
    if stream.peek(3) == _BYTE_ORDER_MARK:
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
