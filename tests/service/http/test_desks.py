"""Past the framework or through it, bodies come to one desk: whoever comes by either is answered the same."""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

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

NUMBER = base64.b64encode(bytes(16)).decode()
JOINS = json.dumps({"number": NUMBER, "arm": "a"}).encode()
MESSAGES: dict[str, tuple[dict[str, str], bytes]] = {
    "good": ({}, JOINS),
    "another kind": ({"Content-Type": "text/csv"}, JOINS),
    "no kind": ({"Content-Type": ""}, JOINS),
    "no JSON": ({}, b"[{]"),
    "another arm": ({}, JOINS.replace(b'"a"', b'"b"')),
    "too large": ({}, JOINS.ljust(2**20)),
    "no token": ({"Authorization": "Bearer fa_nobody"}, JOINS),
}

# The second address is the same to the framework, which then is asked.
WAYS = ("", "/")


def said(server: Served, address: str, fields: dict[str, str], body: bytes) -> bytes:
    """The answer but for its date."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    head = f"POST {address} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 30) as line:
        line.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: line.recv(65_536), b""))
    return re.sub(rb"date: [^\r]*\r\n", b"", answer)


def logged(server: Served, kind: str = "records") -> list[tuple[Any, ...]]:
    """What was logged of requests with such bodies, but for their times, once all of it is there."""
    server.ask("GET", "/health")
    eventually(lambda: server.events("request")[-1]["route"] == "/health")
    asked = [event for event in server.events("request") if event["route"].endswith(f"/{kind}")]
    return [tuple(value for name, value in event.items() if name not in ("time", "seconds")) for event in asked]


@pytest.mark.parametrize("name", REQUESTS)
def test_every_way_is_answered_and_logged_the_same(server: Served, token: str, name: str) -> None:
    odd, body = REQUESTS[name]
    fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **odd}
    # An answer tells whether any records wait for their cohort: so both come in the middle of one.
    for count in (10, 1):
        server.ask("POST", f"/v1/trials/{TRIAL}/records", token, json=rows(count))
    before = len(logged(server))
    answers = {said(server, f"/v1/trials/{TRIAL}/records{way}", fields, body) for way in WAYS}
    assert len(answers) == 1, answers
    lines = logged(server)[before:]
    assert len(lines) == len(WAYS)
    assert len(set(lines)) == 1


def test_so_are_messages_of_devices(server: Served) -> None:
    token = server.create("phones", federated="delta")["ingest_token"]
    address = "/v1/trials/phones/enrolments"
    assert said(server, address, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}, JOINS)
    for odd, body in MESSAGES.values():
        fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **odd}
        answers = {said(server, address + way, fields, body) for way in WAYS}
        assert len(answers) == 1, answers
    assert len(set(logged(server, "enrolments"))) == 5  # 200, 401, 415, and 422 for two reasons
