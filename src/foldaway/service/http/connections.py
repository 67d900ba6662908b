"""Connections: none may wait for ever, keep others from being served, or keep what nobody has asked for."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any, ClassVar, cast

import msgspec
from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from foldaway.service.http.heads import LONGEST_HEAD, require_one_meaning
from foldaway.service.http.problems import MEDIA_TYPE, Problem

# Seconds between requests, and for the head of one. Bodies have their own time.
IDLE_SECONDS = 20.0

_MOST_AHEAD = 64  # requests that wait for the answers to those before them on their connection

_FOR_OTHERS = 256  # files that the database, the logs and Python need

# Where all that comes is read to, by one connection at a time, and wiped as soon as it was taken. Memory that is made
# for each read would be overwritten whole, twice, however little has come.
_COMING = memoryview(bytearray(2**18))
_ZEROS = memoryview(bytes(len(_COMING)))


def most_connections() -> int:
    """How many connections there may be: raises the limit of open files as far as it goes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65_536 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(most - _FOR_OTHERS, most // 2)


class Connection(asyncio.BufferedProtocol, HttpToolsProtocol):  # type: ignore[misc] # both do nothing at an end of file
    """A connection that is closed if no whole head of a request comes in time.

    If there are too many, the one that has idled longest makes room. One that is answered before the end of a body is
    closed, and nothing of the body stays in this process: see `leave`.
    """

    most: ClassVar[int] = 512
    _idle: ClassVar[dict[Connection, float]] = {}  # since when, of all, in the order in which they fell idle
    _watched: ClassVar[asyncio.AbstractEventLoop | None] = None  # which has a timer for the first of them
    _deaf = False  # what comes now is let go of unread …
    _left = False  # … for the last answer was given
    _in_head = False
    _unclear = 0  # bytes that have come since the parser last knew what they are
    _lent = False  # `_COMING`, and it was not said how much has come

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new one."""
        super().connection_made(transport)
        # Without this, the second piece of an answer waits until the first is acknowledged, which the other side puts
        # off: 40 ms for every answer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fall_idle()
        if len(self.connections) > self.most:
            next(iter(self._idle)).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, and so is what it brought that nobody has read."""
        self._wake()
        super().connection_lost(exc)
        self._forget()
        if self._lent:  # if its encryption broke, nobody was told what had been decrypted by then
            _COMING[:] = _ZEROS

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what comes."""
        self._lent = True
        return _COMING

    def buffer_updated(self, nbytes: int) -> None:
        """Something has come."""
        try:
            if not self._deaf:
                self._take(_COMING[:nbytes])
        finally:
            _COMING[:nbytes] = _ZEROS[:nbytes]
            self._lent = False

    def _take(self, data: memoryview) -> None:
        self._unclear += len(data)
        try:
            while len(data):
                try:
                    self.parser.feed_data(data)
                    break
                except HttpParserUpgrade as stopped:  # no other protocol is spoken here, so the next request follows
                    data = data[stopped.args[0] :]
            if self._unclear > LONGEST_HEAD:
                raise HttpParserError
        except HttpParserError:
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """A request begins."""
        if len(self.pipeline) >= _MOST_AHEAD:
            raise HttpParserError
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of a head; those after a body, which would be added to it, are passed over."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head of a request is whole, so its time is over."""
        self._in_head, self._unclear = False, 0
        parser = self.parser
        version, upgrades = parser.get_http_version(), parser.should_upgrade()
        require_one_meaning(parser.get_method(), version, self.headers, upgrades=upgrades)
        super().on_headers_complete()
        self.cycle.transport = cast(Any, _Line(self))
        self._wake()

    def on_body(self, body: bytes) -> None:
        """A piece of a body, which is not copied if nothing waits to be read before it."""
        self._unclear = 0
        cycle = cast(Any, self.cycle)
        if isinstance(cycle.body, bytes):
            cycle.body = bytearray(cycle.body)
        elif not cycle.body and not cycle.response_complete:
            cycle.body, body = body, b""
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._unclear = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Answered: the next request must come in time."""
        self.server_state.total_requests += 1
        if self._left or self.transport.is_closing():
            return
        cast(Any, self.cycle.transport).flush()
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._fall_idle()

    def leave(self) -> None:
        """Close it after the last answer, without what was not read.

        If the body is still coming, a close would make the system send a reset, which can take the answer away from
        whoever is still sending. So only our side is closed; what comes is dropped until they close theirs, or the
        time is up.
        """
        self._deaf = self._left = True
        whole = self.cycle is not None and not self.cycle.more_body
        self._forget()
        if whole:
            self.transport.close()
            return
        if self.transport.can_write_eof():  # not with TLS
            try:
                self.transport.write_eof()
            except OSError:  # they have closed it already
                self.drop()
                return
        self._fall_idle()
        self.flow.resume_reading()

    def _forget(self) -> None:
        """Let go of what has come and was not read: freed memory is overwritten."""
        for cycle in (self.cycle, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None:
                cycle.body = bytearray()
        self.pipeline.clear()

    def drop(self) -> None:
        """Close it, whatever it has still to say or to hear."""
        self._wake()
        self.transport.abort()

    def _fall_idle(self) -> None:
        self._wake()
        if not self.transport.is_closing():
            self._idle[self] = self.loop.time()
            if Connection._watched is not self.loop:
                self._watch(IDLE_SECONDS, self.loop)

    def _wake(self) -> None:
        self._idle.pop(self, None)

    @classmethod
    def _watch(cls, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        Connection._watched = loop
        loop.call_later(seconds, cls._drop_idle, loop)

    @classmethod
    def _drop_idle(cls, loop: asyncio.AbstractEventLoop) -> None:
        """Drop those that have idled too long, and look again when the next will have: one timer for all."""
        Connection._watched = None
        for connection, since in list(cls._idle.items()):
            rest = since + IDLE_SECONDS - loop.time()
            if rest > 0:
                cls._watch(rest, loop)
                return
            connection.drop()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused in the same shape as all else, after the answers to what came before it."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:  # it follows a request that is whole, and that is answered yet
                cycle.keep_alive, self._deaf = False, True
                return
            if cycle.response_started or self.pipeline:
                self.drop()
                return
            cycle.disconnected = True  # nobody hears its answer
            cycle.message_event.set()
        sentence = "This is not an HTTP/1.1 request, or it can be read in two ways."
        body = msgspec.json.encode(Problem("Bad Request", 400, sentence))
        head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[400] + head.encode() + body)
        self.cycle = cast(Any, None)
        self.leave()


class _Line:
    """What uvicorn writes an answer to: the connection's transport, but for how it is closed.

    The head of an answer and its body are written one after the other, and go out as one.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._written: list[bytes] = []
        self.is_closing = connection.transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._written:
            self._connection.loop.call_soon(self.flush)
        self._written.append(data)

    def flush(self) -> None:
        written, self._written = self._written, []
        if written and not self.is_closing():
            self._connection.transport.write(b"".join(written))

    def close(self) -> None:
        self.flush()
        self._connection.leave()
