"""A port on this machine before another one, which counts the bytes that come back through it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Counted:
    """Forwards one connection to a port, as long as the block lasts.

    Attributes:
        port: Where to connect.
        bytes: How many bytes have come back.
    """

    def __init__(self, target: int) -> None:
        self._target, self.bytes = target, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._connect, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listening, *self._ends):
            end.close()

    def _connect(self) -> None:
        client, _ = self._listening.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        self._ends += [client, server]
        threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
        self._forward(server, client, counted=True)

    def _forward(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with suppress(OSError):  # either side may close first
            while data := source.recv(1 << 16):
                self.bytes += len(data) if counted else 0
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
