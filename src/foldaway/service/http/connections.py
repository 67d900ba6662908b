"""Connections: none may wait for ever, keep others from being served, or keep what nobody has asked for."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any, ClassVar, cast

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from foldaway.service.http.problems import MEDIA_TYPE, Problem
from foldaway.sources.formats.body import wipe

# Seconds between requests, and for the head of one. Bodies have their own time.
IDLE_SECONDS = 20.0

_FOR_OTHERS = 256  # files that the database, the logs and Python need


def most_connections() -> int:
    """How many connections there may be: raises the limit of open files as far as it goes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65_536 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(most - _FOR_OTHERS, most // 2)


class Connection(H11Protocol):
    """A connection that is closed if no whole head of a request comes in time.

    If there are too many, the one that has idled longest makes room. One that is answered before the end of a body is
    closed, and nothing of the body stays in this process: see `leave`.
    """

    most: ClassVar[int] = 512
    _idle: ClassVar[dict[Connection, asyncio.TimerHandle]] = {}  # of all, in the order in which they fell idle
    _left = False

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

    def data_received(self, data: bytes) -> None:
        """Something has come. After the last answer it is let go of unread."""
        if not self._left:
            super().data_received(data)

    def handle_events(self) -> None:
        """Something has come: the timer stops when it is the head of a request."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._wake()
            self.cycle.transport = cast(Any, _Line(self))

    def on_response_complete(self) -> None:
        """Answered: the next request must come in time."""
        cast(Any, self.cycle.transport).flush()  # before anything is said about the request that follows
        if self._left:
            return
        self._fall_idle()
        super().on_response_complete()

    def leave(self) -> None:
        """Close it after the last answer, without what was not read.

        If the body is still coming, a close would make the system send a reset, which can take the answer away from
        whoever is still sending. So only our side is closed; what comes is dropped until they close theirs, or the
        time is up.
        """
        self._left = True
        self._forget()
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
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
        if self.cycle is not None:
            wipe(self.cycle.body)

    def drop(self) -> None:
        """Close it, whatever it has still to say or to hear."""
        self._wake()
        self.transport.abort()

    def _fall_idle(self) -> None:
        self._wake()
        if not self.transport.is_closing():
            self._idle[self] = self.loop.call_later(IDLE_SECONDS, self.drop)

    def _wake(self) -> None:
        timer = self._idle.pop(self, None)
        if timer is not None:
            timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused in the same shape as all else."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is under way
            self.drop()
            return
        body = msgspec.json.encode(Problem("Bad Request", 400, "This is not an HTTP request."))
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
