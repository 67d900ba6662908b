"""Connections as the operating system has them."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from uvicorn.server import ServerState

from foldaway.service.http.connections import Connection
from foldaway.service.server import _listen


async def _app(scope: object, receive: object, send: object) -> None:
    raise NotImplementedError


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    """Its head and its body are two writes; with Nagle's algorithm every answer would take 40 ms."""

    async def connected() -> int:
        config = uvicorn.Config(_app, loop="asyncio")
        config.load()
        made: list[Connection] = []

        def make() -> Connection:
            made.append(Connection(config=config, server_state=ServerState(), app_state={}))
            return made[-1]

        listener = _listen("127.0.0.1", 0)
        server = await asyncio.get_running_loop().create_server(make, sock=listener)
        async with server:
            _, writer = await asyncio.open_connection(*listener.getsockname())
            while not made or made[0].transport is None:
                await asyncio.sleep(0)
            accepted = made[0].transport.get_extra_info("socket")
            found = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            made[0].drop()
            writer.close()
        return int(found)

    assert asyncio.run(connected())
