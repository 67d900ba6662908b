"""Connections as the operating system has them, and what they are given to read."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from itertools import accumulate

import pytest
import uvicorn
from uvicorn.server import ServerState

from foldaway.service.http import connections
from foldaway.service.http.connections import Connection
from foldaway.service.http.heads import LONGEST_HEAD
from foldaway.service.server import _listen
from served import Served, rows
from servers import Nursery


async def _app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nobody asks")


def test_an_answer_does_not_wait_for_an_acknowledgement_and_no_half_read_stays() -> None:
    """An answer's head and body can be two writes; with Nagle's algorithm every answer would take 40 ms.

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


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("connections"), served_from) as server:
        yield server


@pytest.fixture(scope="module")
def token(server: Served) -> str:
    return server.create("known")["ingest_token"]


def statuses(server: Served, *pieces: bytes, most: int = 1) -> list[int]:
    """The statuses of answers, up to so many, or until the server closes the connection."""
    said, found = b"", list[bytes]()
    with socket.create_connection(("127.0.0.1", server.port), 30) as line:
        for piece in pieces:
            line.sendall(piece)
            time.sleep(0.05 * (len(pieces) > 1))  # so that they come apart
        while len(found) < most and (more := line.recv(65_536)):
            said += more
            found = re.findall(rb"HTTP/1.1 (\d+)", said)
    return [int(status) for status in found]


USUAL = b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = USUAL.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked").replace(
    b"hello", b"5\r\nhello\r\n0\r\n\r\n"
)


def test_no_head_is_taken_that_may_be_read_in_two_ways(server: Served) -> None:
    changes = [
        (b"1.1", b"0.9"),
        (b"1.1", b"2.0"),
        (b"Host: x\r\n", b""),
        (b": 5", b": +5"),
        (b": 5", b": 5, 5"),
        (b": 5", b":\r\n 5"),
        (b"Length:", b"Length :"),
        (b"\r\nHost", b"\nHost"),
        (b"GET /health", b"CONNECT health:80"),
    ]
    more = [
        b"Content-Length: 5",
        b" folded",
        b"host: y",
        b"Transfer-Encoding: chunked",
        b"Authorization: a\r\nauthorization: a",
        b"Connection: Upgrade\r\nUpgrade: h2c",
        b"X: \x00",
        b"X: a\rb",
        b"X: " + b"a" * 4 * LONGEST_HEAD,
    ]
    odd = [USUAL.replace(was, instead) for was, instead in changes]
    odd += [USUAL.replace(b"\r\n\r\n", b"\r\n" + each + b"\r\n\r\n") for each in more]
    odd += [
        CHUNKED.replace(b"1.1", b"1.0"),
        CHUNKED.replace(b"chunked", b"chunked, identity"),
        CHUNKED.replace(b"chunked", b"chunked\r\nTransfer-Encoding: chunked"),
        b"SECRET" + USUAL,
    ]
    assert statuses(server, USUAL + CHUNKED, most=2) == [200]  # no body is read, so the first ends the connection
    for request in odd:
        assert statuses(server, request) == [400], request[:200]


def test_fields_after_a_body_say_nothing(server: Served, token: str) -> None:
    body = json.dumps(rows(1)).encode()
    head = b"POST /v1/trials/known/records HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(body), body)
    field = b"Authorization: Bearer %b\r\n" % token.encode()
    assert statuses(server, head + field + chunks + field + b"\r\n") == [202]
    assert statuses(server, head + chunks + field + b"\r\n") == [401]
    assert statuses(server, head + field + chunks, *[b"X: " + b"a" * LONGEST_HEAD] * 4) == [400]


def test_another_protocol_is_passed_over(server: Served) -> None:
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n"
    upgrade = get + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert statuses(server, upgrade + get + b"\r\n", most=2) == [200, 200]


def test_requests_in_pieces_and_in_one_are_answered_in_their_order(server: Served, token: str) -> None:
    """However they are cut: a body in two, two requests at once; and what is no request comes after their answers."""

    def request(body: bytes) -> bytes:
        head = f"POST /v1/trials/known/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    good, many = (json.dumps(rows(count)).encode() for count in (1, 4_000))
    texts = [request(body) for body in (good, b"[]x", many, b"[{]", good)]
    stream = b"".join(texts)
    ends = list(accumulate(map(len, texts)))
    for cuts in (ends[-1:], [10, ends[0] - 4, ends[0] + 5, ends[1], ends[2] - 3, ends[3], ends[4]]):
        pieces = [stream[start:stop] for start, stop in zip([0, *cuts], cuts, strict=False)]
        assert statuses(server, *pieces, most=5) == [202, 400, 200, 400, 202]
        pieces[-1] += b"this is no request\r\n\r\n"
        assert statuses(server, *pieces, most=6) == [202, 400, 200, 400, 202]
