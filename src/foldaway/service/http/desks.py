"""Desks: where senders of records and devices hand their bodies in, past the framework.

The framework has their addresses and documents them, and would take longer to find the one for a small body than all
the rest takes. So the desks stand in front of it, and are what it calls, too.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from litestar import Response
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Send

from foldaway.service.http import problems


class Desk(ABC):
    """Where bodies of one kind are handed in: one ASGI application for all of it, refusals as well."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            status, answer = await self.take(scope, receive)
        except Exception as error:
            await problems.send_problem(send, problems.of_any(error, scope["state"]))
            return
        await problems.send_json(send, status, answer)

    @abstractmethod
    async def take(self, scope: Any, receive: Receive) -> tuple[int, Any]:
        """Let the sender in, read the body and take it; the status and the content of the answer."""


class AtDesk(Response[Any]):
    """What a handler of the framework answers with, so that a desk answers in its place."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(None)
        self._desk = desk

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        """The desk."""
        return self._desk


def in_front_of(app: ASGIApp, desks: Mapping[str, Desk]) -> ASGIApp:
    """The application, which is not asked about what is for a desk; desks by the last part of their addresses."""
    address = re.compile(rf"/v1/trials/([^/]+)/({'|'.join(desks)})")

    async def run(scope: Any, receive: Receive, send: Send) -> None:
        found = address.fullmatch(scope["path"]) if scope["type"] == ScopeType.HTTP else None
        if found is None or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        scope["path_params"], scope["path_template"] = {"name": found[1]}, f"/v1/trials/{{name}}/{found[2]}"
        await desks[found[2]](scope, receive, send)

    return run
