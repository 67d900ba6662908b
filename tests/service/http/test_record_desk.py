"""Two ways to the desk that takes records, one law: whoever comes by either is answered the same."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest

from foldaway.service.http.plain_requests import plain_head
from served import Served, eventually, rows
from servers import Nursery

TRIAL = "desk"


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("desk"), served_from, "--max-body", 1) as server:
        yield server


@pytest.fixture(scope="module")
def token(server: Served) -> str:
    made = server.create(TRIAL)["ingest_token"]
    numbered = {"Foldaway-Producer": "till", "Foldaway-Sequence": "1"}
    assert server.ask("POST", f"/v1/trials/{TRIAL}/records", made, json=rows(20), headers=numbered).status_code == 200
    return made


GOOD = json.dumps(rows(1)).encode()
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in rows(2))

# Of each the fields that are not as usual, and the body.
REQUESTS: dict[str, tuple[dict[str, str], bytes]] = {
    "good": ({}, GOOD),
    "lines": ({"Content-Type": "application/x-ndjson"}, LINES),
    "charset": ({"Content-Type": 'application/json; charset="utf-8"'}, GOOD),
    "another charset": ({"Content-Type": "application/json; charset=latin-1"}, GOOD),
    "another kind": ({"Content-Type": "text/csv"}, GOOD),
    "no kind": ({"Content-Type": ""}, GOOD),
    "packed otherwise": ({"Content-Encoding": "br"}, GOOD),
    "packed badly": ({"Content-Encoding": "gzip"}, GOOD),
    "empty": ({}, b""),
    "no JSON": ({}, b"[{]"),
    "faulty": ({}, b'[{"group": "nobody", "y": 1}]'),
    "too large": ({}, GOOD.ljust(2**20 + 1)),
    "repeated": ({"Foldaway-Producer": "till", "Foldaway-Sequence": "1"}, GOOD),
    "gap": ({"Foldaway-Producer": "till", "Foldaway-Sequence": "7"}, GOOD),
    "backwards": ({"Foldaway-Producer": "till", "Foldaway-Sequence": "7-3"}, GOOD),
    "no number": ({"Foldaway-Producer": "till", "Foldaway-Sequence": "0"}, GOOD),
    "no producer": ({"Foldaway-Sequence": "2"}, GOOD),
    "strange producer": ({"Foldaway-Producer": "till 7", "Foldaway-Sequence": "1"}, GOOD),
    "no token": ({"Authorization": "Bearer fa_nobody"}, GOOD),
    "another scheme": ({"Authorization": "Basic QWxhZGRpbg=="}, GOOD),
}

# The same request as programs write it, and so that h11 reads it; in the last, one field stands twice, so that the
# framework is asked, which takes the first.
WAYS = {"short": "Host: x\r\n", "by h11": "Host:  x\r\n", "long": "Host: x\r\nX-Twice: 1\r\nX-Twice: 2\r\n"}


def heard(line: socket.socket, answers: int) -> bytes:
    """So many answers, or all until the other side closes."""
    text = b""
    while len(re.findall(rb"HTTP/1.1 \d.*?\r\n\r\n\{.*?\}(?=$|HTTP)", text, re.DOTALL)) < answers:
        if not (more := line.recv(65_536)):
            break
        text += more
    return text


def said(server: Served, way: str, fields: dict[str, str], body: bytes) -> bytes:
    """The answer but for its date."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    head = f"POST /v1/trials/{TRIAL}/records HTTP/1.1\r\n{WAYS[way]}{lines}Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 30) as line:
        line.sendall(head.encode() + body)
        return re.sub(rb"date: [^\r]*\r\n", b"", heard(line, 1))


def logged(server: Served) -> list[tuple[Any, ...]]:
    """What was logged of requests for records, but for their times, once all of it is there."""
    server.ask("GET", "/health")
    eventually(lambda: server.events("request")[-1]["route"] == "/health")
    asked = [event for event in server.events("request") if event["route"].endswith("/records")]
    return [tuple(value for name, value in event.items() if name not in ("time", "seconds")) for event in asked]


@pytest.mark.parametrize("name", REQUESTS)
def test_every_way_is_answered_and_logged_the_same(server: Served, token: str, name: str) -> None:
    odd, body = REQUESTS[name]
    fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **odd}
    # An answer tells whether any records wait for their cohort: so all three come in the middle of one.
    for count in (10, 1):
        server.ask("POST", f"/v1/trials/{TRIAL}/records", token, json=rows(count))
    before = len(logged(server))
    answers = {said(server, way, fields, body) for way in WAYS}
    assert len(answers) == 1, answers
    lines = logged(server)[before:]
    assert len(lines) == 3
    assert len(set(lines)) == 1


USUAL = b"POST /v1/trials/desk/records HTTP/1.1\r\nHost: x\r\nContent-Length: 5"


@pytest.mark.parametrize(
    "head",
    [
        USUAL.replace(b"POST", b"GET"),
        USUAL.replace(b"1.1", b"1.0"),
        USUAL.replace(b"desk", b"de%73k"),
        USUAL.replace(b"records", b"records?x"),
        USUAL.replace(b"Host: x\r\n", b""),
        USUAL.replace(b"Content-Length: 5", b"Accept: x"),
        USUAL.replace(b"5", b"+5"),
        USUAL.replace(b"5", b"5 "),
        USUAL.replace(b"5", b"5, 5"),
        USUAL.replace(b"Content-Length:", b"Content-Length :"),
        USUAL.replace(b"\r\nHost", b"\nHost"),
        USUAL + b"\r\nContent-Length: 5",
        USUAL + b"\r\n folded",
        USUAL + b"\r\nhost: y",
        USUAL + b"\r\nTransfer-Encoding: chunked",
        USUAL + b"\r\nExpect: 100-continue",
        USUAL + b"\r\nConnection: close",
        USUAL + b"\r\nConnection: Upgrade",
        USUAL + b"\r\nX: \x00",
        USUAL + b"\r\nX: a\rb",
        USUAL + b"\r\nX: \xc3\xa4",
        USUAL + b"\r\nX:y",
    ],
)
def test_a_head_that_might_be_read_in_two_ways_is_left_to_h11(head: bytes) -> None:
    assert plain_head(USUAL) is not None
    assert plain_head(head) is None


def test_requests_in_pieces_and_in_one_are_answered_in_their_order(server: Served, token: str) -> None:
    """However they are cut: a body in two, two requests at once, the usual and the unusual by turns."""

    def request(host: str, body: bytes) -> bytes:
        head = f"POST /v1/trials/{TRIAL}/records HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    many = json.dumps(rows(4_000)).encode()
    texts = [request("x", GOOD), request(" x", b"[]x"), request("x", many), request("x", b"[{]"), request(" x", GOOD)]
    stream = b"".join(texts)
    ends = list(accumulate(map(len, texts)))
    for cuts in (ends[-1:], [10, ends[0] - 4, ends[0] + 5, ends[1], ends[2] - 3, ends[3], ends[4]]):
        with socket.create_connection(("127.0.0.1", server.port), 30) as line:
            at = 0
            for cut in cuts:
                line.sendall(stream[at:cut])
                at = cut
                time.sleep(0.05)  # so that they come apart
            answer = heard(line, len(texts))
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"202", b"400", b"200", b"400", b"202"]
