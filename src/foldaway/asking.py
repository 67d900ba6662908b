"""Requests to a foldaway server that are repeated while the refusal is one that passes."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from foldaway.backoff import pauses
from foldaway.errors import ServerError, instead_of, not_installed

try:
    import httpx
except ModuleNotFoundError:
    raise ModuleNotFoundError(not_installed("httpx", "client"), name="httpx") from None

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_MORE_THAN_A_MOMENT = 2.0


class Asking:
    """A connection to a server.

    Args:
        url: The server's address.
        token: A token for what is asked.
        patience: Seconds to go on trying while the server does not answer.
        verify: A file with the certificate authority for https, or True for the system's.
        look: Called with every answer's headers; what it raises ends the request.
        told: Called once with what is wrong, if a request has to be repeated for more than a moment.

    Raises:
        ServerError: The address, or the file, cannot be used.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: float = 60.0,
        verify: str | bool = True,
        look: Callable[[Mapping[str, str]], None] | None = None,
        told: Callable[[ServerError], None] | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._http = _connection(url.rstrip("/"), headers, verify)
        if look is not None:
            self._http.event_hooks = {"response": [lambda response: look(response.headers)]}
        self._patience = patience
        self._told = told

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def ask(self, method: str, path: str, *, patience: float | None = None, **request: Any) -> bytes:
        """Ask, and go on asking while the refusal is one that passes.

        Args:
            method: The HTTP method.
            path: What is asked for, below the server's address.
            patience: Seconds for this request, if not the connection's.
            request: Its content, headers and the like, as httpx names them.

        Returns:
            The body of the answer.

        Raises:
            ServerError: The server refuses, or has not answered for as long as that.
        """
        began = time.monotonic()
        until = began + (self._patience if patience is None else patience)
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            pause = next(waits)
            try:
                response = self._http.request(method, path, **request)
            except httpx.TransportError as error:
                # Without what stands before an @, which may be a password.
                address = f"{self._http.base_url.scheme}://{self._http.base_url.netloc.decode()}"
                problem = ServerError(
                    f"the server at {address} cannot be reached ({type(error).__name__}): is it running, and is that "
                    "its address?"
                )
            else:
                if response.is_success:
                    return response.content
                problem = _problem(response)
            if not problem.passes or time.monotonic() + pause > until:
                raise problem
            if time.monotonic() - began > _MORE_THAN_A_MOMENT and self._told is not None:
                self._told(problem)
                self._told = None
            time.sleep(pause)


def _connection(url: str, headers: dict[str, str], verify: str | bool) -> httpx.Client:
    if not url.startswith(("http://", "https://")):
        raise ServerError("a server's address begins with http:// or https://.")
    unusable = ServerError("the server's address, the token, or the certificate authority's file cannot be used.")
    with instead_of((OSError, ValueError, httpx.InvalidURL), unusable):  # ssl.SSLError is an OSError
        # Where nothing is encrypted there is nobody to trust; to load whom one trusts takes longer than a request.
        trusted = (
            ssl.create_default_context(cafile=verify)
            if isinstance(verify, str)
            else verify and url.startswith("https://")
        )
        return httpx.Client(base_url=url, headers=headers, timeout=60.0, verify=trusted)


def _problem(response: httpx.Response) -> ServerError:
    try:
        problem = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        problem = {}
    detail = problem.get("detail") or f"the server answered {response.status_code}."
    return ServerError(detail, response.status_code, problem.get("expected"))
