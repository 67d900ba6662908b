"""Connections as the operating system has them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from foldaway.errors import IngestError
from foldaway.service.http import connections
from foldaway.service.http.bodies import WHOLE, read_body
from foldaway.service.http.connections import Connection
from foldaway.service.http.plain_requests import PlainCycle
from foldaway.service.server import _listen
from served import Served, rows
from servers import Nursery


async def _app(scope: object, receive: object, send: object) -> None:
    raise NotImplementedError


def test_an_answer_does_not_wait_for_an_acknowledgement_and_no_half_read_stays() -> None:
    """An answer's head and body are two writes; with Nagle's algorithm every answer would take 40 ms.

    If the encryption of a connection breaks in the middle of a read, nobody says how much had come until then.
    """

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
            made[0].get_buffer(-1)[:6] = b"secret"
            made[0].drop()
            while made[0] in made[0].connections:
                await asyncio.sleep(0)
            writer.close()
        return int(found)

    assert asyncio.run(connected())
    assert b"secret" not in bytes(connections._COMING)


def test_room_for_a_body_grows_with_what_has_come_of_it() -> None:
    cycle = PlainCycle.__new__(PlainCycle)
    cycle.body, cycle.missing, cycle.message_event = bytearray(), 2**27, asyncio.Event()
    assert not cycle.room()
    cycle.wanted = True
    rooms = []
    while cycle.missing:
        rooms.append(len(cycle.room()))
        cycle.room()[:3] = b"abc"
        cycle.has_come(rooms[-1])
    assert rooms[0] == 2**20
    assert all(room <= 63 * sum(rooms[:i]) for i, room in enumerate(rooms) if i)
    assert len(cycle.body) == sum(rooms) == 2**27
    assert cycle.body.count(b"abc") == len(rooms) == 3


def test_whoever_leaves_after_a_whole_request_is_no_bug() -> None:
    async def left() -> dict[str, str]:
        return {"type": "http.disconnect"}

    scope: Any = {"headers": [], WHOLE: True}
    with pytest.raises(IngestError, match="broke"):
        asyncio.run(read_body(scope, cast(Any, left), 100, 1))


def test_an_answer_comes_before_that_of_what_follows_it(served_from: Nursery, tmp_path: Path) -> None:
    with Served(tmp_path, served_from) as server:
        tokens = server.create("known")
        body = json.dumps(rows(1)).encode()
        head = (
            "POST /v1/trials/known/records HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {tokens['ingest_token']}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        with socket.create_connection(("127.0.0.1", server.port), 30) as line:
            line.sendall(head + body + b"this is no request\r\n\r\n")  # as if the length were too short
            said = b"".join(iter(lambda: line.recv(65_536), b""))
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"202", b"400"]
