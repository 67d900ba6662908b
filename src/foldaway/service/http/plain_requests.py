"""Requests as programs write them, read without a parser for all that HTTP allows.

A head is taken here only if it says one thing to every reader: one line for each field, no field twice, one length. Any
other, be it good or bad, is h11's to judge, so nothing is refused here.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

from foldaway.sources.formats.body import wipe

COME = "foldaway.come"
"""What a message that is not the last of a body has instead of its bytes: how many have come."""

LONGEST_HEAD = 8 * 2**10

_LEAST_ROOM = 2**20
_AHEAD = 63  # room for so many times what has come: to make room twice costs more than the memory is worth

_HEAD = re.compile(rb"POST (/[A-Za-z0-9._/-]*) HTTP/1\.1((?:\r\n[A-Za-z0-9-]+: [!-~](?:[ -~]*[!-~])?)+)")
_FIELD = re.compile(rb"\r\n([^:]+): ([^\r]+)")
_LENGTH = re.compile(rb"[0-9]{1,15}")
# They change where a request ends, or what is expected of its answer.
_ODD = {b"transfer-encoding", b"trailer", b"te", b"expect", b"upgrade", b"http2-settings", b"proxy-connection"}


class Head(NamedTuple):
    """A request without its body: path, fields with their names in small letters, the body's length."""

    path: bytes
    fields: list[tuple[bytes, bytes]]
    length: int


def plain_head(text: bytes) -> Head | None:
    r"""What a head says, given without the empty line at its end; None if it is one for h11.

    Example:
        >>> plain_head(b"POST /v1/trials HTTP/1.1\r\nHost: x\r\nContent-Length: 2")
        Head(path=b'/v1/trials', fields=[(b'host', b'x'), (b'content-length', b'2')], length=2)
        >>> plain_head(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3")
    """
    head = _HEAD.fullmatch(text)
    if head is None:
        return None
    pairs = [(name.lower(), value) for name, value in _FIELD.findall(head[2])]
    fields = dict(pairs)
    if (
        len(fields) < len(pairs)
        or b"host" not in fields
        or _LENGTH.fullmatch(fields.get(b"content-length", b"")) is None
        or not _ODD.isdisjoint(fields)
        or fields.get(b"connection", b"keep-alive").lower() != b"keep-alive"
    ):
        return None
    return Head(head[1], pairs, int(fields[b"content-length"]))


class PlainCycle(RequestResponseCycle):
    """A plain request and its answer, which is written as one, once it is whole.

    Attributes:
        come: Bytes of the body that have come.
        missing: Bytes of it that have not.
        wanted: Whether somebody has asked for the body, so that there is room for it.
    """

    come = 0
    missing = 0
    wanted = False
    _start: Any = None
    _answer = b""

    def take(self, data: memoryview) -> int:
        """Take what there is of the body; how many bytes that was."""
        size = min(self.missing, len(data))
        self.body[self.come : self.come + size] = data[:size]
        self.has_come(size)
        return size

    def has_come(self, size: int) -> None:
        """So many bytes more are in their place."""
        self.come += size
        self.missing -= size
        self.more_body = self.missing > 0
        self.message_event.set()

    def room(self) -> memoryview:
        """Where more of the body goes, without a copy: none until it is wanted, and may be as long as it is.

        It grows with what has come: whoever only says that much will come is given no memory for it.
        """
        if self.wanted and self.missing and self.come == len(self.body):
            begun, self.body = self.body, bytearray(self.come + min(self.missing, max(_AHEAD * self.come, _LEAST_ROOM)))
            self.body[: self.come] = begun
            wipe(begun)
        return memoryview(self.body)[self.come :] if self.wanted else memoryview(b"")

    async def receive(self) -> Any:
        """All of the body once it is there, for whoever asked to wipe; until then how much has come of it."""
        self.wanted = True
        if not self.disconnected and not self.response_complete:
            if self.missing:  # or what follows the request would be read before it is answered
                self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        if self.more_body:
            return {"type": "http.request", "body": b"", "more_body": True, COME: self.come}
        body, self.body = self.body, bytearray()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Any) -> None:
        """Take a part of the answer."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._start, self.response_started = message, True
            return
        self._answer += message.get("body", b"")
        if message.get("more_body", False):
            return
        self.response_complete = True
        self.message_event.set()
        closing = self._write()
        if closing or self.missing or not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _write(self) -> bool:
        """Write the answer; whether the connection is to end with it."""
        status, headers = self._start["status"], [*self.default_headers, *self._start["headers"]]
        if b"content-length" not in dict(headers):
            headers.append((b"content-length", b"%d" % len(self._answer)))
        parts = [b"HTTP/1.1 %d %b\r\n" % (status, STATUS_PHRASES[status])]
        parts += [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([*parts, b"\r\n", self._answer]))
        return CLOSE_HEADER in cast(Any, headers)
