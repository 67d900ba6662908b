"""How the leader of a trial in mode shares reaches its helper."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from foldaway.errors import Unavailable
from foldaway.federated.messages import MEDIA_TYPE

HEADER = "Foldaway-Pair"
"""What proves a request to be the leader's, and an answer the helper's."""

Post = Callable[[str, bytes, str], tuple[int, bytes, str]]
"""Posts a body with a proof to an address; the answer's status, content and proof. Unavailable if there is none."""

# Seconds for which an answer is waited for, and after which a helper that gave none is asked again.
_PATIENCE, _AGAIN = 10.0, 5.0


class HttpPost:
    """By HTTP. Who could not be reached is not tried again for some seconds: others wait for the thread that asks."""

    def __init__(self) -> None:
        self._not_before: dict[str, float] = {}

    def __call__(self, url: str, data: bytes, proof: str) -> tuple[int, bytes, str]:
        """Post once."""
        host = url.split("/")[2]
        if time.monotonic() < self._not_before.get(host, 0.0):
            raise Unavailable(f"the helper at {host} could not be reached just now; try again in some seconds.")
        request = Request(url, data, {"Content-Type": MEDIA_TYPE, HEADER: proof}, method="POST")
        try:
            try:
                found: Any = build_opener(_Staying).open(request, timeout=_PATIENCE)
            except HTTPError as refused:
                found = refused
            with found:
                return found.status, found.read(), found.headers.get(HEADER, "")
        except (OSError, HTTPException) as error:
            self._not_before[host] = time.monotonic() + _AGAIN
            raise Unavailable(f"the helper at {host} cannot be reached ({type(error).__name__}).") from None


class _Staying(HTTPRedirectHandler):
    """Follows nobody: the helper's address is in the plan."""

    def redirect_request(self, *_: Any) -> None:
        return None
