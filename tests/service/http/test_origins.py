"""Pages of other origins at a real server: what browsers are told, and what a page in Chromium can do and cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser import browser
from foldaway.errors import FoldawayError
from foldaway.service.http.origins import exact_origins
from served import Served, rows
from servers import Nursery

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

SHOP, OTHER = "https://shop.example", "https://other.example"

SENT = {"records": "POST", "enrolments": "POST", "moments": "POST", "reports": "POST"}
ASKED = {"plan": "GET", "coefficients": "GET", "producers/page": "GET"}
CLOSED = ("", "/effects", "/status", "/report", "/history", "/outlook", "/end", "/tallies", "/certificate")


class Elsewhere:
    """A page of another origin: an empty one."""

    def __init__(self, folder: Path) -> None:
        (folder / "index.html").write_text("<!doctype html><title>a page</title>")
        handler = partial(_Quiet, directory=str(folder))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.origin = f"http://localhost:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    page = Elsewhere(tmp_path_factory.mktemp("elsewhere"))
    yield page
    page.end()


@pytest.fixture(scope="module")
def server(served_from: Nursery, elsewhere: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    flags = ("--allow-origin", SHOP, "--allow-origin", elsewhere.origin)
    with Served(tmp_path_factory.mktemp("origins"), served_from, *flags, measured=True) as server:
        yield server


def preflight(server: Served, path: str, method: str, origin: str) -> Any:
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    return server.ask("OPTIONS", path, "", headers=headers)


def test_a_preflight_lets_an_origin_in_to_what_senders_and_devices_ask_and_to_nothing_else(server: Served) -> None:
    for end, method in {**SENT, **ASKED}.items():
        path = f"/v1/trials/any/{end}"
        answer = preflight(server, path, method, SHOP)
        assert answer.status_code == 204
        assert answer.content == b""
        assert answer.headers["Access-Control-Allow-Origin"] == SHOP
        assert answer.headers["Access-Control-Allow-Methods"] == method
        assert "authorization" in answer.headers["Access-Control-Allow-Headers"]
        assert answer.headers["Vary"] == "origin"
        assert preflight(server, path, method, OTHER).status_code == 403
    before = turned_away(server, "origin")
    closed = [f"/v1/trials/any{end}" for end in CLOSED]
    closed += ["/v1/trials", "/v1/tokens", "/v1/tokens/own", "/metrics", "/health", "/", "/dashboard/main.js"]
    for path in closed:
        answer = preflight(server, path, "GET", SHOP)
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert turned_away(server, "origin") == before + len(closed)
    assert "other.example" not in server.log() + server.ask("GET", "/metrics").text


@pytest.mark.parametrize(
    "origin", ["null", "http://shop.example", "https://shop.example:444", "https://a.shop.example", SHOP + ".", "*", ""]
)
def test_an_origin_is_let_in_only_as_it_was_written(server: Served, origin: str) -> None:
    answer = preflight(server, "/v1/trials/any/records", "POST", origin)
    assert answer.status_code == 403
    assert answer.json()["detail"].endswith("see --allow-origin.")


def test_answers_and_refusals_name_the_origin_on_both_ways_to_the_desk(server: Served) -> None:
    made = server.create("shown")
    token = made["ingest_token"]
    for _ in range(2):  # the second time past the framework
        for origin, named in ((SHOP, SHOP), (OTHER, None)):
            headers = {"Origin": origin}
            answer = server.ask("POST", "/v1/trials/shown/records", token, json=rows(1), headers=headers)
            assert answer.status_code == 202
            assert answer.headers.get("Access-Control-Allow-Origin") == named
            shown = answer.headers.get("Access-Control-Expose-Headers")
            assert shown == (None if named is None else "foldaway-fingerprint, retry-after")
    faulty = server.ask("POST", "/v1/trials/shown/records", token, json=[{"y": "x"}], headers={"Origin": SHOP})
    assert faulty.status_code == 422
    unknown = server.ask("POST", "/v1/trials/shown/records", "", json=[], headers={"Origin": SHOP})
    assert unknown.status_code == 401
    for answer in (faulty, unknown):
        assert answer.headers["Access-Control-Allow-Origin"] == SHOP
    for path, right in (("/v1/trials/shown", "read_token"), ("/v1/trials/shown/effects", "read_token")):
        answer = server.ask("GET", path, made[right], headers={"Origin": SHOP})
        assert answer.status_code in (200, 425)
        assert "Access-Control-Allow-Origin" not in answer.headers
    plain = server.ask("POST", "/v1/trials/shown/records", token, json=rows(4))
    assert "Access-Control-Allow-Origin" not in plain.headers


def test_without_the_setting_nobody_is_let_in(served_from: Nursery, tmp_path: Path) -> None:
    with Served(tmp_path, served_from) as server:
        assert preflight(server, "/v1/trials/any/records", "POST", SHOP).status_code == 403
        assert server.ask("OPTIONS", "/v1/trials", "").status_code == 204  # a question that is no browser's


def test_rates_of_tokens_and_addresses(served_from: Nursery, tmp_path: Path) -> None:
    flags = ("--token-rate", 0.1, "--address-rate", 0.3, "--proxies", 1, "--allow-origin", SHOP)
    with Served(tmp_path, served_from, *flags, measured=True) as server:
        tokens = [server.create(f"trial{i}")["ingest_token"] for i in range(3)]

        def send(place: int, address: str) -> Any:
            headers = {"X-Forwarded-For": f"203.0.113.9, {address}", "Origin": SHOP}
            return server.ask("POST", f"/v1/trials/trial{place}/records", tokens[place], json=rows(2), headers=headers)

        assert send(0, "192.0.2.1").status_code == 202
        again = send(0, "192.0.2.2")
        assert again.status_code == 429
        assert again.headers["Content-Type"] == "application/problem+json"
        assert again.headers["Access-Control-Allow-Origin"] == SHOP  # so that the page can read it
        assert 1 <= int(again.headers["Retry-After"]) <= 10
        assert again.json()["detail"] == "more requests came with this token than the server takes; try again later."
        assert send(1, "192.0.2.1").status_code == send(2, "192.0.2.1").status_code == 202
        from_there = send(1, "192.0.2.1")
        assert from_there.status_code == 429
        assert "from this address" in from_there.json()["detail"]
        read = server.ask("POST", "/v1/tokens", json={"scope": "read", "trial": "trial0"}).json()["token"]
        for _ in range(5):  # who reads is not counted
            assert server.ask("GET", "/v1/trials/trial0", read).status_code == 200
        assert turned_away(server, "token") == turned_away(server, "address") == 1
        assert "192.0.2" not in server.log()


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "null",
        "shop.example",
        "https://shop.example/",
        "https://Shop.example",
        "https://shop.example:443",
        "http://",
        "ftp://shop.example",
        "https://shop.example/path",
        "https://a@shop.example",
        "https://shop.example:x",
        "http://ü.de",
    ],
)
def test_an_origin_that_no_browser_writes_is_refused(text: str) -> None:
    with pytest.raises(FoldawayError, match="write an origin as browsers do"):
        exact_origins([text])


def test_origins_of_every_form_are_taken() -> None:
    assert exact_origins(["http://[::1]:8080", "https://shop.example:8443", "http://xn--bcher-kva.example"])


SEND = """async ([url, token, path, method]) => {
    try {
        const headers = {Authorization: `Bearer ${token}`, 'Content-Type': 'application/json'};
        const body = method === 'POST' ? '[{"group":"a","y":1}]' : undefined;
        const answer = await fetch(url + path, {method, headers, body});
        return [answer.status, answer.headers.get('Foldaway-Fingerprint')];
    } catch (error) { return [0, String(error)]; }
}"""


def test_a_page_of_another_origin_sends_records_and_reads_nothing(
    browser: Browser, server: Served, elsewhere: Elsewhere
) -> None:
    made = server.create("paged")
    plan = server.ask("GET", "/v1/trials/paged/plan", made["ingest_token"])
    page = browser.new_context().new_page()
    page.goto(elsewhere.origin)

    def ask(path: str, token: str, method: str) -> tuple[int, str]:
        status, said = page.evaluate(SEND, [server.url, token, path, method])
        return status, said

    fingerprint = plan.headers["Foldaway-Fingerprint"]
    assert ask("/v1/trials/paged/records", made["ingest_token"], "POST") == (202, fingerprint)
    assert ask("/v1/trials/paged/plan", made["ingest_token"], "GET") == (200, fingerprint)
    assert ask("/v1/trials/paged/records", "wrong", "POST")[0] == 401  # which the page can tell from no answer
    for path, token in (("/v1/trials/paged", made["read_token"]), ("/v1/trials", server.admin), ("/metrics", "")):
        status, said = ask(path, token, "GET")
        assert status == 0
        assert "Failed to fetch" in said
    page.goto(elsewhere.origin.replace("localhost", "127.0.0.1"))  # the same page at an origin that is not let in
    before = turned_away(server, "origin")
    assert ask("/v1/trials/paged/records", made["ingest_token"], "POST")[0] == 0
    assert turned_away(server, "origin") == before + 1
    page.close()


def turned_away(server: Served, reason: str) -> int:
    """How many requests the metrics say were refused for this reason."""
    start = f'foldaway_requests_turned_away_total{{for="{reason}"}} '
    lines = server.ask("GET", "/metrics").text.splitlines()
    return sum(int(float(line.removeprefix(start))) for line in lines if line.startswith(start))
