"""Connections: none may wait for ever, keep others from being served, or keep what nobody has asked for."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any, ClassVar, cast

import h11
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol

from foldaway.service.http.bodies import WHOLE
from foldaway.service.http.plain_requests import LONGEST_HEAD, Head, PlainCycle, plain_head
from foldaway.service.http.problems import MEDIA_TYPE, Problem
from foldaway.service.http.strict_heads import StrictHeads
from foldaway.sources.formats.body import wipe

# Seconds between requests, and for the head of one. Bodies have their own time.
IDLE_SECONDS = 20.0

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


class Connection(asyncio.BufferedProtocol, H11Protocol):  # type: ignore[misc] # both do nothing at an end of file
    """A connection that is closed if no whole head of a request comes in time.

    If there are too many, the one that has idled longest makes room. One that is answered before the end of a body is
    closed, and nothing of the body stays in this process: see `leave`.
    """

    most: ClassVar[int] = 512
    _idle: ClassVar[dict[Connection, float]] = {}  # since when, of all, in the order in which they fell idle
    _watched: ClassVar[asyncio.AbstractEventLoop | None] = None  # which has a timer for the first of them
    _left = False
    _in_place = False  # what comes goes to the place where it is wanted …
    _lent = False  # … or to `_COMING`, and it was not said how much

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new one."""
        super().connection_made(transport)
        self.conn._receive_buffer = StrictHeads()  # there is no other way to it
        # Without this, the second piece of an answer waits until the first is acknowledged, which the other side puts
        # off: 40 ms for every answer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._later = bytearray()  # what came before the answer to what it follows
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
        room = self.cycle.room() if isinstance(self.cycle, PlainCycle) and not self._left else b""
        self._in_place = len(room) > 0
        self._lent = not self._in_place
        return cast(memoryview, room) if self._in_place else _COMING

    def buffer_updated(self, nbytes: int) -> None:
        """Something has come. After the last answer it is let go of unread."""
        if self._in_place:
            cast(PlainCycle, self.cycle).has_come(nbytes)
            return
        try:
            if not self._left:
                self._take(_COMING[:nbytes])
        finally:
            _COMING[:nbytes] = _ZEROS[:nbytes]
            self._lent = False

    def _take(self, data: memoryview) -> None:
        cycle = self.cycle
        if isinstance(cycle, PlainCycle):
            self._later += data[cycle.take(data) :]
            if self._later or (cycle.come > HIGH_WATER_LIMIT and not cycle.wanted):
                self.flow.pause_reading()
            return
        fresh = self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE
        if fresh and not self.conn.trailing_data[0]:
            text, end, _ = bytes(data[:LONGEST_HEAD]).partition(b"\r\n\r\n")
            if end and (head := plain_head(text)) is not None:
                rest = data[len(text) + len(end) :]
                self._begin(head, whole=len(rest) >= head.length)
                self._take(rest)
                return
        super().data_received(bytes(data))

    def _begin(self, head: Head, *, whole: bool) -> None:
        """Begin to answer a plain request, as uvicorn begins with one that h11 has read."""
        self._wake()
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": cast(Any, self.scheme),
            "method": "POST",
            "root_path": "",
            "path": head.path.decode("ascii"),
            "raw_path": head.path,
            "query_string": b"",
            "headers": head.fields,
            "state": self.app_state.copy(),
        }
        if whole:
            cast(Any, self.scope)[WHOLE] = True
        self.cycle = PlainCycle(
            scope=self.scope,
            conn=self.conn,
            transport=cast(Any, _Line(self)),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        self.cycle.missing = head.length
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def handle_events(self) -> None:
        """Something has come: the timer stops when it is the head of a request."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._wake()
            self.cycle.transport = cast(Any, _Line(self))

    def on_response_complete(self) -> None:
        """Answered: the next request must come in time."""
        cast(Any, self.cycle.transport).flush()  # before anything is said about the request that follows
        if self._left or self.transport.is_closing():
            return
        if isinstance(self.cycle, PlainCycle):
            self.cycle = cast(Any, None)
        self._fall_idle()
        self.flow.resume_reading()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.DONE:
            self.conn.start_next_cycle()
            self.handle_events()
        if self._later:
            later, self._later = self._later, bytearray()
            with memoryview(later) as data:
                self._take(data)
            wipe(later)

    def leave(self) -> None:
        """Close it after the last answer, without what was not read.

        If the body is still coming, a close would make the system send a reset, which can take the answer away from
        whoever is still sending. So only our side is closed; what comes is dropped until they close theirs, or the
        time is up.
        """
        self._left = True
        self._forget()
        whole = isinstance(self.cycle, PlainCycle) and not self.cycle.missing
        if whole or self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
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
        """Overwrite what has come and was not read."""
        wipe(self.conn._receive_buffer._data)  # there is no other way to it
        wipe(self._later)
        if self.cycle is not None:
            wipe(self.cycle.body)

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
        """What is not HTTP is refused in the same shape as all else."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is under way
            self.drop()
            return
        body = msgspec.json.encode(
            Problem("Bad Request", 400, "This is not an HTTP/1.1 request, or it can be read in two ways.")
        )
        headers = [
            ("content-type", MEDIA_TYPE),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        events = (h11.Response(status_code=400, headers=headers, reason="Bad Request"), h11.Data(data=body))
        for event in (*events, h11.EndOfMessage()):
            self.transport.write(cast(bytes, self.conn.send(cast(Any, event))))
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
