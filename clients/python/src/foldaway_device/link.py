"""Requests to a trial's server, tried again while the refusal may be temporary."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from foldaway_device.errors import PlanError, ServerError

if TYPE_CHECKING:
    from email.message import Message

_TRIAL = re.compile(r"(https?://[^?#]+/v1/trials/([A-Za-z0-9][\w.-]*))/?")

# The most seconds that one try waits for an answer, and the most bytes of one.
_ANSWER, _MOST_BYTES = 30.0, 2**24


class Link(Protocol):
    """How a device talks to its server."""

    def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
        """Ask, and go on asking until then, by the monotonic clock, while the refusal may be temporary.

        Raises:
            ServerError: The server refuses, or cannot be reached.
        """
        ...

    def expect(self, fingerprint: str) -> None:
        """Hold every further answer against this fingerprint."""
        ...


class HttpLink:
    """The connection to a trial's server by HTTP, through the proxy that the environment names, if it names one."""

    def __init__(self, url: str, token: str) -> None:
        token = token.strip()
        if not (token and token.isascii() and token.isprintable() and " " not in token):
            raise PlanError("the token is empty, or has a blank or a line break: give one token, the trial's own.")
        self._url = url
        self._token = token
        self._fingerprint: str | None = None

    def expect(self, fingerprint: str) -> None:
        """Hold every further answer against this fingerprint."""
        self._fingerprint = fingerprint

    def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
        """Ask, and go on asking until then."""
        for pause in pauses(0.05, 2.0):
            try:
                return self._once(method, path, body, until - time.monotonic())
            except ServerError as refused:
                wait = max(pause, refused.retry_after)
                if not refused.passes or time.monotonic() + wait > until:
                    raise
                time.sleep(wait)
        raise AssertionError

    def _once(self, method: str, path: str, body: bytes | None, patience: float) -> bytes:
        # Not for those who never talk.
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class Staying(HTTPRedirectHandler):
            """Follows nobody: the token is for this server alone."""

            def redirect_request(self, *_: object) -> None:
                return None

        headers = {"Authorization": f"Bearer {self._token}", "User-Agent": "foldaway-device"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = Request(self._url + path, body, headers, method=method)
        refused: HTTPError | None = None
        try:
            try:
                answer: Any = build_opener(Staying).open(request, timeout=max(0.1, min(patience, _ANSWER)))
            except HTTPError as error:
                answer = refused = error
            with answer:
                told: Message = answer.headers
                content: bytes = answer.read(_MOST_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            # Without what stands before an @, which may be a password.
            server = self._url.split("/")[2].rpartition("@")[2]
            why = getattr(error, "reason", error)
            raise ServerError(f"the server at {server} cannot be reached ({type(why).__name__}).") from None
        fingerprint = told.get("Foldaway-Fingerprint")
        if None not in (self._fingerprint, fingerprint) and fingerprint != self._fingerprint:
            raise ServerError("the server runs this trial under another plan than this device's.", 409)
        if refused is None:
            return content
        raise _refusal(refused.code, content, told.get("Retry-After", ""))


def _refusal(status: int, content: bytes, retry_after: str) -> ServerError:
    said = f"the server answered {status}."
    with suppress(ValueError, LookupError, TypeError):  # a proxy's page
        said = str(json.loads(content)["detail"])
    # A date is not understood, and not waited for.
    return ServerError(said, status, float(retry_after) if retry_after.isdecimal() else 0.0)


def trial_address(url: str) -> tuple[str, str]:
    """A trial's address without a slash at its end, and the trial's name.

    Example:
        >>> trial_address("https://trials.example/v1/trials/checkout/")
        ('https://trials.example/v1/trials/checkout', 'checkout')
    """
    if parts := _TRIAL.fullmatch(url):
        return parts[1], parts[2]
    raise PlanError("a trial's address has the form https://host/v1/trials/NAME.")


def pauses(first: float, longest: float) -> Iterator[float]:
    """Seconds to wait before each further try: twice as long each time, and shortened at random."""
    while True:
        yield first * random.uniform(0.5, 1)
        first = min(2 * first, longest)
