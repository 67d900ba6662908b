"""Connections: none may wait for ever, or keep others from being served."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any, ClassVar, cast

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from foldaway.service.http.problems import MEDIA_TYPE, Problem

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

    If there are too many, the one that has idled longest makes room.
    """

    most: ClassVar[int] = 512
    _idle: ClassVar[dict[Connection, asyncio.TimerHandle]] = {}  # of all, in the order in which they fell idle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new one."""
        super().connection_made(transport)
        # An answer is written in two pieces, its head and its body. Without this the second waits until the first is
        # acknowledged, which the other side puts off: 40 ms for every answer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fall_idle()
        if len(self.connections) > self.most:
            next(iter(self._idle)).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._wake()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Something has come: the timer stops when it is the head of a request."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._wake()

    def on_response_complete(self) -> None:
        """Answered: what is left of the request, and the next one, must come in time."""
        self._fall_idle()
        super().on_response_complete()

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
        self.transport.close()
