"""A real server on loopback for the tests of what it says: trials on it, connections to it, its log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from servers import Nursery, Server

PLAN: dict[str, Any] = {
    "name": "small",
    "arm": "group",
    "arms": {"a": 0.5, "b": 0.5},
    "outcomes": ["y"],
    "privacy": {"cohort": 10, "smallest_cell": 2},
}


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"group": "ab"[i % 2], "y": float(i % 17)} for i in range(start, start + count)]


class Served(Server):
    """A running server that logs every request; `flags` are further ones of `foldaway serve`."""

    def __init__(
        self,
        folder: Path,
        nursery: Nursery | None,
        *flags: object,
        database: str | None = None,
        measured: bool = False,
        unrounded: bool = False,
        tick: float | None = 0.0,
    ) -> None:
        super().__init__(folder, database=database, nursery=nursery, measured=measured, unrounded=unrounded, tick=tick)
        self._http = httpx.Client(timeout=30, verify=False)  # to load whom one trusts takes longer than most requests
        self._arguments = [word for word in self._arguments if word != "--quiet"] + [str(flag) for flag in flags]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return int(self._process.pid)

    def log(self) -> str:
        return self.err.read_text()

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, self.log().splitlines()) if line["event"] == event]

    def http(self, token: str | None = None, **settings: Any) -> httpx.Client:
        """A connection with a token: the admin's, if none is given; none, if it is empty."""
        text = self.admin if token is None else token
        headers = {"Authorization": f"Bearer {text}"} if text else {}
        return httpx.Client(base_url=self.url, headers=headers, **{"verify": False, "timeout": 30, **settings})

    def ask(self, method: str, path: str, token: str | None = None, **request: Any) -> httpx.Response:
        text = self.admin if token is None else token
        headers = {**({"Authorization": f"Bearer {text}"} if text else {}), **request.pop("headers", {})}
        return self._http.request(method, self.url + path, headers=headers, **request)

    def create(self, name: str, token: str | None = None, **settings: Any) -> dict[str, str]:
        """Register a trial, as an admin or with a token; its tokens."""
        answer = self.ask("POST", "/v1/trials", token, json={**PLAN, "name": name, **settings})
        assert answer.status_code == 201, answer.text
        made: dict[str, str] = answer.json()
        return made


def eventually(is_so: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="session")
def served_from() -> Iterator[Nursery]:
    """What servers are forked from."""
    with Nursery() as nursery:
        yield nursery
