"""The server behind nginx, as deploy/nginx.conf has it: at the root and below a path, and no record on nginx's disk."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import msgspec
import pytest

from bodies import as_ndjson
from browser import browser, page_at
from canary import PLAN, record
from foldaway.client import Client
from foldaway.sources.formats.body import NDJSON
from memory_scan import Marks
from postgres import Postgres, quick_folder
from proxies import DEPLOY, Nginx, require_nginx
from served import Served, eventually, rows
from servers import Nursery

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

LIMIT = 32 * 2**20
PREFIXES = ["/", "/trials/"]

# What nginx does if it is told nothing.
DEFAULT = {
    r"proxy_request_buffering off;": "",
    r"proxy_http_version 1.1;": "",
    r'proxy_set_header Connection "";': "",
    r"proxy_max_temp_file_size 0;": "",
}


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    require_nginx()
    with Served(tmp_path_factory.mktemp("behind-nginx"), served_from) as server:
        yield server


@pytest.fixture
def place() -> Iterator[Path]:
    """For what nginx needs: also if it runs as somebody else, who does not get into pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="fa-nginx-", dir=quick_folder()) as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        subprocess.run([DEPLOY / "secrets.sh", f"{folder}/secrets"], check=True, stdout=subprocess.DEVNULL)
        yield Path(folder)


def canary_plan(name: str) -> dict[str, object]:
    return {**msgspec.json.decode(PLAN.canonical()), "name": name}


def written(nginx: Nginx) -> dict[str, int]:
    """When each of nginx's folders last got a file or lost one."""
    return {path.name: path.stat().st_mtime_ns for path in nginx.folder.iterdir() if path.is_dir()}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_records_up_to_the_limit_leave_nothing_with_nginx(server: Served, place: Path, prefix: str) -> None:
    name = f"limit{PREFIXES.index(prefix)}"
    token = server.create(name)["ingest_token"]
    marks = Marks(20_000, seed=7)
    server.ask("POST", "/v1/trials", json=canary_plan(f"canary-{name}"))
    lines = as_ndjson([record(marks, i) for i in range(marks.count)])
    largest = lines + b" " * (LIMIT - len(lines) - 1) + b"\n"
    with Nginx(place, [server.port], place / "secrets", prefix) as nginx:
        before = written(nginx)
        assert "body" in before
        with Client(nginx.url, token, verify=str(nginx.authority), producer="till") as client:
            client.send(name, rows(5_000))
            assert client.durable(name) == 1
        trust = ssl.create_default_context(cafile=nginx.authority)
        http = httpx.Client(verify=trust, timeout=60, headers={"Authorization": f"Bearer {server.admin}"})
        address, kind = f"{nginx.url}/v1/trials/canary-{name}/records", {"Content-Type": NDJSON}

        def pieces() -> Iterator[bytes]:  # of a length that is not told beforehand
            for start in range(0, len(lines), 2**20):
                yield lines[start : start + 2**20]
                assert not marks.find(nginx.files())

        answers = [
            http.post(address, content=largest, headers=kind),
            http.post(address, content=pieces(), headers=kind),
            http.post(address, content=largest + b"\n", headers=kind),
            http.post(address, content=lines, headers={**kind, "Authorization": "Bearer nobody"}),
        ]
        assert [answer.status_code for answer in answers][2:] == [413, 401]
        assert all(
            answer.status_code in (200, 202) and answer.json()["folded"] == marks.count for answer in answers[:2]
        )
        assert written(nginx) == before  # no file was made there, not even for a moment
        assert not marks.find(nginx.files())  # its log is among them


def test_the_default_configuration_writes_records_to_the_disk(server: Served, place: Path) -> None:
    """So that the test above can fail."""
    marks = Marks(2_000, seed=8)
    server.ask("POST", "/v1/trials", json=canary_plan("canary-default"))
    body = as_ndjson([record(marks, i) for i in range(marks.count)])
    with Nginx(place, [server.port], place / "secrets", changes=DEFAULT) as nginx:
        before = written(nginx)
        head = [
            "POST /v1/trials/canary-default/records HTTP/1.1",
            f"Host: localhost\r\nContent-Type: {NDJSON}\r\nContent-Length: {len(body)}",
            f"Authorization: Bearer {server.admin}\r\n\r\n",
        ]
        trust = ssl.create_default_context(cafile=nginx.authority)
        with trust.wrap_socket(
            socket.create_connection(("127.0.0.1", nginx.port)), server_hostname="localhost"
        ) as connection:
            connection.sendall("\r\n".join(head).encode() + body[: len(body) * 2 // 3])
            assert eventually(lambda: len(marks.find(nginx.files()).identifiers) > marks.count // 4)
            connection.sendall(body[len(body) * 2 // 3 :])
            assert b" 20" in connection.recv(64)
        assert written(nginx) != before


def test_the_dashboard_works_below_a_path(browser: Browser, server: Served, place: Path) -> None:
    tokens = server.create("seen")
    server.ask("POST", "/v1/trials/seen/records", tokens["ingest_token"], json=rows(400))
    with (
        Nginx(place, [server.port], place / "secrets", "/trials/", tls=False) as nginx,
        page_at(browser, f"{nginx.url}/") as watched,
    ):
        page = watched.page
        page.set_default_timeout(30_000)
        page.get_by_label("Access token").fill(tokens["read_token"])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("400").first.wait_for()
        assert page.url == f"{nginx.url}/#/trials/seen"
        page.goto(f"{nginx.url}/api")
        page.get_by_role("link", name="openapi.json").click()
        page.wait_for_url("**/schema/openapi.json")
        watched.require_quiet()


@pytest.mark.once
def test_two_servers_behind_nginx_count_every_batch_once(
    served_from: Nursery, postgres: Postgres, place: Path, tmp_path: Path
) -> None:
    require_nginx()
    database = postgres.database()
    servers = [Served(tmp_path / shard, served_from, "--shard", shard, database=database) for shard in ("one", "two")]
    for server in servers:
        server.start(wait=False)
    for server in servers:
        server.wait()
    first = next(server for server in servers if server.admin)  # whoever came to the database first has the token
    token = first.create("shared")["ingest_token"]
    with Nginx(place, [server.port for server in servers], place / "secrets") as nginx:
        for number in range(24):  # that all of them come to one server has a chance of 2⁻²³
            with Client(nginx.url, token, verify=str(nginx.authority), producer=f"till{number}") as client:
                for batch in range(2):
                    client.send("shared", rows(40, 40 * batch))
    for server in servers:
        server.stop()
    shards = dict(postgres.execute("SELECT shard, n FROM foldaway_shards", database.rsplit("/", 1)[1]))
    assert sum(shards.values()) == 24 * 2 * 40
    assert set(shards) == {"one", "two"}
    postgres.drop(database)
