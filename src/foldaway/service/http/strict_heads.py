"""Heads of requests that say one thing to every reader. h11 also takes such as a proxy may read in another way."""

from __future__ import annotations

import re

import h11
from h11._receivebuffer import ReceiveBuffer

_OTHER_VERSION = re.compile(rb"\S+ \S.* HTTP/(?!1\.[01]$)[0-9.]+")
_ONCE = re.compile(
    rb"(authorization|content-encoding|content-length|content-type|foldaway-[a-z-]+|host|transfer-encoding)[ \t]*:",
    re.IGNORECASE,
)


class StrictHeads(ReceiveBuffer):
    """What has come of a connection, for h11, from which no head comes that can be read in two ways.

    Refused are another version than HTTP/1.0 or 1.1, lines that go on in the next one (obs-fold, RFC 9112, 5.2), and
    fields that the server goes by and that come twice.
    """

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """The lines of a head or a trailer, once it is whole."""
        lines = super().maybe_extract_lines()
        if not lines:
            return lines
        once = [match[1].lower() for line in lines if (match := _ONCE.match(line))]
        if (
            _OTHER_VERSION.fullmatch(lines[0])
            or any(line.startswith((b" ", b"\t")) for line in lines)
            or len(set(once)) < len(once)
        ):
            raise h11.RemoteProtocolError("the head of the request can be read in two ways")
        return lines
