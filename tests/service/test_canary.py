"""Planted records through the real server: of none of them is anything left, anywhere, a second after the answer."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from bodies import as_ndjson
from canary import PLAN, Batch, Report, batches, drop, record, report
from foldaway.sources.formats.body import NDJSON
from memory_scan import Marks
from postgres import Postgres
from served import Served

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may read another process's memory"
)

# The real server, but a signal takes its care for unread bodies away: an answer then leaves the connection as it is.
SWITCHED = """
import signal
from foldaway import cli
from foldaway.service.http import app, connections

careful, switch = app.closed_if_unread, {"off": False}

def closed_if_unread(wrapped):
    closing = careful(wrapped)
    return lambda *call: (wrapped if switch["off"] else closing)(*call)

def forget(connection, real=connections.Connection._forget):
    switch["off"] or real(connection)

app.closed_if_unread, connections.Connection._forget = closed_if_unread, forget
signal.signal(signal.SIGUSR1, lambda *_: switch.update(off=True))
cli.main()
"""

STATUSES = (400, 401, 403, 404, 409, 413, 503)
"""With which a body is refused before it is read."""

_EACH = 60  # records in a body
_PLACES = 4  # half of the queue


def refused(server: Served, tokens: dict[str, str], marks: Marks, open_for: ExitStack) -> Iterator[tuple[int, bytes]]:
    """Bodies that the server does not want, whole or never ending; their connections stay open.

    Yields:
        The status that each should be refused with, and the answer.
    """
    ways = {
        400: ("canary", tokens["ingest"], "Foldaway-Producer: alone\r\n"),
        401: ("canary", "fa_nobody", ""),
        403: ("canary", tokens["read"], ""),
        404: ("nowhere", server.admin, ""),
        409: ("devices", server.admin, ""),
        413: ("canary", tokens["ingest"], ""),
        503: ("canary", tokens["other"], ""),
    }
    for i in range(marks.count // _EACH):
        status = STATUSES[i // 2 % len(STATUSES)]
        trial, token, more = ways[status]
        body = as_ndjson([record(marks, j) for j in range(i * _EACH, (i + 1) * _EACH)])
        missing = 2**26 if status == 413 else 1_000 * (i % 2)
        head = (
            f"POST /v1/trials/{trial}/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{more}"
            f"Content-Type: {NDJSON}\r\nContent-Length: {len(body) + missing}\r\n\r\n"
        )
        if status == 503:
            held = head.replace(f"Length: {len(body) + missing}", "Length: 100").encode() + b"{"
            for _ in range(_PLACES):  # those that this token may hold; they are given up after a few seconds
                _connected(server, open_for).sendall(held)
            time.sleep(0.3)
        line = _connected(server, open_for)
        line.sendall(head.encode() + body)
        yield status, line.recv(100_000)


def _connected(server: Served, open_for: ExitStack) -> socket.socket:
    return open_for.enter_context(socket.create_connection(("127.0.0.1", server.port), 30))


def sent(server: Served, marks: Marks, *, killed: bool, data: list[Path]) -> tuple[Report, Counter[tuple[str, int]]]:
    """Everything planted, sent; what is found of it while the server runs, or after a SIGKILL."""
    made = server.ask("POST", "/v1/trials", content=PLAN.to_json(), headers={"Content-Type": "application/json"}).json()
    token, said, answers = made["ingest_token"], [], Counter[tuple[str, int]]()
    path = "/v1/trials/canary/records"

    def post(batch: Batch) -> tuple[str, httpx.Response] | None:
        if batch.kind != "dropped":
            return batch.kind, client.post(path, content=batch.body, headers=batch.headers)
        drop(batch, server.port, path, {"Authorization": f"Bearer {token}"})
        return None

    # Several at a time, so that small ones are folded together.
    with server.http(token) as client, ThreadPoolExecutor(_PLACES) as senders:
        for outcome in senders.map(post, batches(marks, ("good", "good", "faulty", "cut", "dropped"))):
            if outcome is not None:
                kind, answer = outcome
                said.append(repr(answer.headers).encode() + answer.content)
                answers[kind, answer.status_code] += 1
        said.append(server.ask("GET", "/v1/trials/canary/effects").content)
        pid = server.pid
        if killed:
            server.kill()
        else:
            time.sleep(1)  # the connection stays open meanwhile, as those of real clients do
        logs = server.out.read_bytes() + server.err.read_bytes()
        temporary = [Path(os.environ.get("TMPDIR", "/tmp")) / "foldaway"]
        found = report(
            marks,
            pid=None if killed else pid,
            data=[server.folder, *data],
            temporary=temporary,
            logs=logs,
            responses=b"".join(said),
        )
    return found, answers


def unread(server: Served) -> tuple[Report, Report]:
    """What is found of bodies that were refused before they were read: as it is, and without the care for them."""
    server.create("devices", federated="one-message")
    tokens = {
        scope: server.ask("POST", "/v1/tokens", json={"scope": kind, "trial": "canary"}).json()["token"]
        for scope, kind in (("ingest", "ingest"), ("other", "ingest"), ("read", "read"))
    }
    found = []
    for _ in range(2):
        with ExitStack() as open_for:
            said, marks = b"", Marks(4 * _EACH * len(STATUSES))
            for status, answer in refused(server, tokens, marks, open_for):
                assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
                said += answer
            time.sleep(2)
            logs = server.out.read_bytes() + server.err.read_bytes()
            found.append(report(marks, pid=server.pid, data=[server.folder], logs=logs, responses=said))
        os.kill(server.pid, signal.SIGUSR1)
    return found[0], found[1]


# Not marked `once`: on a busy machine eight bytes may stay in a freed block, as `forgetting/harden.py` says.
@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
@pytest.mark.parametrize("kept_in", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_nothing_is_left_of_what_was_sent(
    kept_in: str, killed: bool, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres: Postgres | None = request.getfixturevalue("postgres") if kept_in == "postgresql" else None
    address = None if postgres is None else postgres.database()
    marks = Marks(5_000 if postgres is None else 20_000)
    try:
        server = Served(tmp_path / "server", None, "--queue", 2 * _PLACES, database=address)
        server._program = ["-c", SWITCHED]
        with server:
            data = [] if postgres is None else [postgres.folder]
            found, answers = sent(server, marks, killed=killed, data=data)
            careful, careless = (None, None) if killed or postgres else unread(server)
    finally:
        if postgres is not None and address is not None:
            postgres.drop(address)
    with capsys.disabled():
        print(f"\n{kept_in}, {'killed' if killed else 'running'}: {found}")
    assert {kind for kind, status in answers if status == 200} == {"good"}
    assert {status for kind, status in answers if kind == "faulty"} - {503} == {422}  # some may find the queue full
    assert found.clean
    if careful is not None and careless is not None:
        with capsys.disabled():
            print(f"\nrefused unread: {careful}\nand without the care for it: {careless}")
        assert careful.clean
        memory = careless.places["process memory"]
        assert min(len(memory.identifiers), len(memory.texts)) > careless.planted / 2
