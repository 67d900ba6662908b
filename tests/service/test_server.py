"""A server in operation: failures within, pressure from without, and its end."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from litestar.testing import TestClient

from certificates import HERE, certificate
from foldaway.client import Client
from foldaway.errors import FoldawayError, ServerError, UntrustedServer
from foldaway.service.collecting.service import Service
from foldaway.service.database.databases import postgres_engine
from foldaway.service.http.app import make_app
from foldaway.service.keys.tokens import Wanted
from foldaway.service.server import Settings, _in_the_clear, password_of
from foldaway.sources.formats.body import Limits
from postgres import Postgres
from served import Served, eventually, rows
from servers import Nursery
from stores import Place

SECRET = "SECRET-16180"
SLOW = 10_000


@pytest.fixture
def server(served_from: Nursery, tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path, served_from, measured=True) as server:
        yield server


# Failures within


def test_a_bug_is_told_to_the_log_by_type_and_place_alone(
    folder: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    service = Service(folder.open(), "main", Limits())
    token = service.store.tokens.issue(Wanted("admin"))[1]

    def broken(*_: Any) -> None:
        value = SECRET
        raise RuntimeError(f"no more {value}")

    ticks = threading.Semaphore(0)

    def broken_tick() -> None:
        ticks.release()
        broken()

    monkeypatch.setattr(service, "statuses", broken)
    monkeypatch.setattr(service, "tick", broken_tick)
    with TestClient(cast(Any, make_app(service))) as http:
        answer = http.get("/v1/trials", headers={"Authorization": f"Bearer {token}"})
        for _ in range(3):  # a failure does not end them; when the third begins, two have been logged
            assert ticks.acquire(timeout=60)
    assert answer.status_code == 500
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert set(answer.json()) == {"title", "status", "detail"}
    out, err = capfd.readouterr()
    assert SECRET not in answer.text + out + err
    lines = [json.loads(line) for line in err.splitlines()]
    failed = [line for line in lines if line["event"] == "failed"]
    assert [(line["error"], "test_server.py:" in line["place"]) for line in failed] == [("RuntimeError", True)]
    assert len([line for line in lines if line["event"] == "tick"]) >= 2
    assert [line["status"] for line in lines if line["event"] == "request"] == [500]


# The end


def test_sigterm_answers_what_is_under_way_and_stores_what_the_cohort_allows(
    served_from: Nursery, tmp_path: Path
) -> None:
    with Served(tmp_path, served_from, measured=True) as server:
        trial = server.create("ending")
        path = "/v1/trials/ending/records"
        assert server.ask("POST", path, trial["ingest_token"], json=rows(9)).json()["pending"] is True

        def slowly() -> Iterator[bytes]:
            body = json.dumps(rows(5)).encode()
            yield body[:20]
            begun.set()
            told.wait(10)
            yield body[20:]

        begun, told = threading.Event(), threading.Event()
        headers = {"Content-Type": "application/json"}
        with ThreadPoolExecutor(1) as thread:
            ask = thread.submit(server.ask, "POST", path, trial["ingest_token"], content=slowly(), headers=headers)
            begun.wait(10)
            time.sleep(0.3)
            os.kill(server.pid, signal.SIGTERM)
            time.sleep(0.3)
            told.set()
            answer = ask.result(20)
        assert (answer.status_code, answer.json()["pending"]) == (200, False)
        eventually(lambda: not server.runs())
        assert server.events("stopped")
        assert not server.events("library")
        server.start()
        status = server.ask("GET", "/v1/trials/ending").json()
        assert status["records"] == 14
        numbered = {"Foldaway-Producer": "till-7", "Foldaway-Sequence": "1"}
        for count, headers, status in ((3, {}, 202), (2, numbered, 200)):
            answer = server.ask("POST", path, trial["ingest_token"], json=rows(count), headers=headers)
            assert answer.status_code == status
            assert ("lost if the server stops" in (answer.json()["note"] or "")) == (status == 202)
        server.stop()
        (given_up,) = server.events("given up")
        del given_up["time"]
        expected = {"trial": "ending", "records": 5, "unnumbered": 3, "producers": ["till-7"]}
        assert given_up == {"event": "given up", "level": "warning", **expected}
        server.start()
        assert server.ask("GET", "/v1/trials/ending").json()["records"] == 14  # 5 are too few to be stored


@pytest.mark.once
def test_a_folder_serves_one_server_which_can_start_again_as_soon_as_it_was_killed(
    served_from: Nursery, tmp_path: Path
) -> None:
    with Served(tmp_path / "first", served_from) as first:
        other = Served(tmp_path / "second", served_from, "--data", first.data, "--shard", "other", measured=True)
        other.start(wait=False)
        eventually(lambda: not other.runs())
        assert f"error: another server is using {first.data}, and a folder serves only one." in other.said()
        assert "--database postgresql://" in other.said()
        assert first.ask("GET", "/v1/trials").status_code == 200
        first.kill()
        with other:
            assert httpx.get(f"{other.url}/health").text == "alive"
            other.stop()
    assert not (first.data / "server.lock").exists()


# Pressure from without


def test_a_full_queue_says_when_to_come_back(served_from: Nursery, tmp_path: Path) -> None:
    with Served(tmp_path, served_from, "--queue", 4, measured=True) as server, ThreadPoolExecutor(8) as threads:
        token = server.create("pressed")["ingest_token"]
        with sqlite3.connect(server.data / "foldaway.db", isolation_level=None) as other:
            other.execute("BEGIN EXCLUSIVE")  # for less long than the store waits
            ask = [
                threads.submit(httpx.post, f"{server.url}/v1/trials/pressed/records", json=rows(10), headers=headers)
                for headers in [{"Authorization": f"Bearer {token}"}] * 8
            ]
            time.sleep(1)
            assert httpx.get(f"{server.url}/health").text == "alive"
            other.execute("ROLLBACK")
        other.close()
        answers = [task.result() for task in ask]
        refused = [answer for answer in answers if answer.status_code == 503]
        assert len([answer for answer in answers if answer.status_code == 200]) == 8 - len(refused) >= 2
        for answer in refused:
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert int(answer.headers["Retry-After"]) >= 1
        assert server.ask("GET", "/v1/trials/pressed").json()["records"] == 10 * (8 - len(refused))


def request_head(server: Served, path: str, token: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def connect(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 30)


def test_bodies_that_do_not_come(served_from: Nursery, tmp_path: Path) -> None:
    with Served(tmp_path, served_from, "--patience", 2, "--queue", 4, measured=True) as server:
        token = server.create("slow")["ingest_token"]
        path = "/v1/trials/slow/records"
        body = json.dumps(rows(10)).encode()
        assert server.ask("POST", path, token, json=rows(10)).status_code == 200
        slow = [connect(server) for _ in range(2)]
        for each in slow:
            each.sendall(request_head(server, path, token, len(body)) + body[:30])
        eventually(lambda: "foldaway_batches_queued 2.0" in server.ask("GET", "/metrics").text)
        assert server.ask("POST", path, token, json=rows(10)).status_code == 503
        for each in slow:
            answer = each.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"application/problem+json" in answer
            each.close()
        assert server.ask("POST", path, token, json=rows(10)).status_code == 200
        broken = connect(server)
        broken.sendall(request_head(server, path, token, len(body)) + body[:-1])
        broken.close()
        eventually(lambda: server.events("request")[-1]["status"] == 400)
        assert server.ask("GET", "/v1/trials/slow").json()["records"] == 20
        assert not server.events("library")


@pytest.mark.parametrize("rubbish", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET /\r\n\r\n" + bytes(100), b"x" * 70_000])
def test_what_is_not_http_is_refused_in_the_same_shape(server: Served, rubbish: bytes) -> None:
    with connect(server) as line:
        line.sendall(rubbish + b"\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(10_000), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 400


def test_many_slow_connections_do_not_stop_the_others(served_from: Nursery, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < SLOW + 500:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        server = stack.enter_context(Served(tmp_path, served_from))
        token = server.create("busy")["ingest_token"]
        for i in range(SLOW):
            line = stack.enter_context(connect(server))
            line.sendall((b"", b"GET /he", b"GET /health HTTP/1.1\r\nHost: ")[i % 3])
        took = []
        for _ in range(20):
            start = time.perf_counter()
            assert server.ask("POST", "/v1/trials/busy/records", token, json=rows(10)).status_code == 200
            took.append(time.perf_counter() - start)
        assert max(took) < 5
        assert server.ask("GET", "/v1/trials/busy").json()["records"] == 200


def test_slow_connections_are_closed_in_time_and_make_room(tmp_path: Path) -> None:
    """In a process of its own, in which time is short and room scarce."""
    program = """
import sys
from foldaway.service import server
from foldaway.service.http import connections
connections.IDLE_SECONDS = 1.0
server.most_connections = lambda: 5
server.rehearse = lambda: None
server.serve(server.Settings(data=__import__("pathlib").Path(sys.argv[1]), port=int(sys.argv[2])))
"""
    server = Served(tmp_path, None)
    words = [sys.executable, "-c", program, str(tmp_path / "data"), str(server.port)]
    with server.out.open("ab") as out, server.err.open("ab") as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, env={**os.environ, "FOLDAWAY_HARDENED": "1"})
    try:
        eventually(server._answers, 60)
        start = time.monotonic()
        one = connect(server)
        one.sendall(b"GET /heal")
        while time.monotonic() < start + 0.5:  # each byte does not give it more time
            one.sendall(b"x")
            time.sleep(0.1)
        assert one.recv(100) == b""
        assert 0.8 < time.monotonic() - start < 5
        crowd = [connect(server) for _ in range(12)]
        crowd[-1].sendall(b"GET")
        time.sleep(0.3)
        last = crowd[-1]
        last.sendall(b" /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert last.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert crowd[0].recv(100) == b""
        for each in crowd:
            each.close()
    finally:
        process.terminate()
        assert process.wait(30) == 0


# Failures below


def test_a_full_disk_is_told_and_mended_without_a_restart(server: Served) -> None:
    token = server.create("full")["ingest_token"]
    path = "/v1/trials/full/records"
    assert server.ask("POST", path, token, json=rows(10)).status_code == 200
    headers = {"Foldaway-Producer": "me", "Foldaway-Sequence": "1"}
    unlimited = resource.RLIM_INFINITY
    try:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, unlimited))
    except PermissionError:
        pytest.skip("only root may set another process' limits")
    for _ in range(3):
        answer = server.ask("POST", path, token, json=rows(10, 50), headers=headers)
        assert answer.status_code == 503
        assert "disk is full" in answer.json()["detail"]
        assert "Retry-After" in answer.headers
    assert server.ask("POST", path, token, json=rows(3)).status_code == 202  # it is only kept in memory
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    answer = server.ask("POST", path, token, json=rows(10, 50), headers=headers)
    assert (answer.status_code, answer.json()["durable"]) == (200, 1)
    assert server.ask("GET", "/v1/trials/full").json()["records"] == 24  # 23, rounded


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that holds four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]).returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # the server may still be letting go of its files


def test_a_disk_without_room_is_told_and_mended_without_a_restart(served_from: Nursery, small_disk: Path) -> None:
    with Served(small_disk, served_from, measured=True) as server:
        token = server.create("crowded")["ingest_token"]
        path = "/v1/trials/crowded/records"
        assert server.ask("POST", path, token, json=rows(10)).status_code == 200
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(2**23))
        headers = {"Foldaway-Producer": "me", "Foldaway-Sequence": "1"}
        answer = server.ask("POST", path, token, json=rows(10, 50), headers=headers)
        assert answer.status_code == 503
        assert "disk is full" in answer.json()["detail"]
        assert server.ask("GET", "/v1/trials/crowded").json()["records"] == 10
        filler.unlink()
        answer = server.ask("POST", path, token, json=rows(10, 50), headers=headers)
        assert (answer.status_code, answer.json()["durable"]) == (200, 1)
        assert server.ask("GET", "/v1/trials/crowded").json()["records"] == 20


def test_a_database_that_is_gone_and_comes_back(
    served_from: Nursery, tmp_path: Path, database: Place, postgres: Postgres
) -> None:
    with Served(tmp_path, served_from, database=database.where) as server:
        token = server.create("gone")["ingest_token"]
        path = "/v1/trials/gone/records"
        assert server.ask("POST", path, token, json=rows(10)).status_code == 200
        postgres.stop()
        try:
            for method, where, asker in [
                ("POST", path, token),
                ("GET", "/v1/trials/gone/effects", server.admin),
                ("GET", "/ready", ""),
            ]:
                answer = server.ask(method, where, asker, json=rows(10))
                assert answer.status_code == 503
                assert answer.headers["Content-Type"] == "application/problem+json"
                assert "database is not available" in answer.json()["detail"]
            assert server.ask("GET", "/health", "").status_code == 200
        finally:
            postgres.start()
        assert server.ask("GET", "/ready", "").status_code == 200
        assert server.ask("POST", path, token, json=rows(10)).status_code == 200
        assert server.ask("GET", "/v1/trials/gone").json()["records"] == 20
        eventually(lambda: any(line.get("error") == "Unavailable" for line in server.events("request")))
        assert not server.events("failed")


# Flags


def test_tls(served_from: Nursery, tmp_path: Path) -> None:
    chain, secret = certificate(tmp_path, HERE)
    server = Served(tmp_path, served_from, "--certificate", chain, "--certificate-key", secret, measured=True)
    server.url = f"https://127.0.0.1:{server.port}"
    server.start(wait=False)
    try:
        eventually(lambda: server.out.exists() and "admin token" in server.out.read_text())
        assert f"Listening on {server.url}" in server.out.read_text()
        trust = ssl.create_default_context(cafile=str(chain))
        eventually(lambda: httpx.get(f"{server.url}/health", verify=trust).text == "alive")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/health")
        with Client(server.url, "fa_x", verify=str(chain)) as client, pytest.raises(ServerError, match="is not valid"):
            client.trials()
        for address, words in (
            (server.url, "certificate of the server at .* is not trusted: self-signed certificate"),
            (f"https://localhost:{server.port}", "not trusted: Hostname mismatch"),
        ):
            trusted = str(chain) if "localhost" in address else True
            with Client(address, "fa_x", verify=trusted) as client, pytest.raises(UntrustedServer, match=words):
                client.trials()  # at once, and not after a minute
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("address", "warned"), [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("::", True), ("192.0.2.1", True)]
)
def test_a_warning_where_other_machines_could_send_in_the_clear(address: str, warned: bool, tmp_path: Path) -> None:
    assert bool(_in_the_clear(Settings(data=tmp_path), address)) == warned
    assert not _in_the_clear(Settings(data=tmp_path, certificate=tmp_path / "certificate.pem"), address)


def test_the_database_s_password_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert password_of(Settings()) is None
    monkeypatch.setenv("FOLDAWAY_DATABASE_PASSWORD", "of the environment")
    assert password_of(Settings()) == "of the environment"
    file = tmp_path / "password"
    with pytest.raises(FoldawayError, match="cannot be read"):
        password_of(Settings(password_file=file))
    file.write_text(f"{SECRET}/ %41\n")
    engine = postgres_engine("postgresql://me@127.0.0.1/trials", password_of(Settings(password_file=file)))
    assert engine.url.password == f"{SECRET}/ %41"
    assert SECRET not in str(engine.url)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "say where to keep the trials"),
        (["--data", "here", "--certificate", "none.pem"], "needs both --certificate and --certificate-key"),
        (["--data", "here", "--certificate", "none.pem", "--certificate-key", "none.pem"], "cannot be used"),
        (["--data", "here", "--port", "TAKEN"], "Address already in use. Choose another"),
        (["--data", "here", "--host", "203.0.113.1"], "cannot listen on 203.0.113.1"),
        (["--data", "/dev/null/x"], "cannot"),
        (["--database", f"mysql://{SECRET}@x/y"], "postgresql"),
    ],
)
def test_what_cannot_be_served(served_from: Nursery, tmp_path: Path, flags: list[str], sentence: str) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = str(taken.getsockname()[1])
    words = ["serve", *(str(tmp_path / word) if word in ("here", "none.pem") else word for word in flags)]
    words = [port if word == "TAKEN" else word for word in words]
    if "--port" not in words:
        words += ["--port", "0"]
    served_from.start(words, tmp_path / "out", tmp_path / "err")
    said = eventually(
        lambda: (
            (tmp_path / "err").exists()
            and [
                line for line in (tmp_path / "err").read_text().splitlines() if line.startswith(("error", "unexpected"))
            ]
        )
    )
    taken.close()
    assert sentence in said[0]
    assert said[0].startswith("error: ")
    assert SECRET not in said[0]
