"""The place where a block is cut, against a reader that goes byte by byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from foldaway.sources.formats.quoting import first_line, is_open, whole_lines


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


@settings(max_examples=500, deadline=None)
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
