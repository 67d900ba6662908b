"""Requests to a foldaway server that are repeated while the refusal is one that passes."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from foldaway.backoff import pauses
from foldaway.errors import ServerError, UntrustedServer, instead_of, not_installed

try:
    import httpx
except ModuleNotFoundError:
    raise ModuleNotFoundError(not_installed("httpx", "client"), name="httpx") from None

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_MORE_THAN_A_MOMENT = 2.0

# Of a proxy, which does not say it in our words.
_PLAIN = {
    404: "there is no foldaway server at {} (404): check the server's address, and the path in it if a proxy adds one.",
    413: "the request is larger than the server, or a proxy in front of it, accepts; send less at a time.",
}


class Asking:
    """A connection to a server.

    Args:
        patience: Seconds to go on trying while the server does not answer.
        timeout: Seconds that one try waits for an answer.
        verify: A file with the certificate authority for https, or True for the system's.
        look: Called with every answer's headers; what it raises ends the request.
        told: Called with what is wrong, once for every request that has to be repeated for more than a moment.

    Raises:
        ServerError: The address, the token, or the file cannot be used.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: float = 60.0,
        timeout: float = 60.0,
        verify: str | bool = True,
        look: Callable[[Mapping[str, str]], None] | None = None,
        told: Callable[[ServerError], None] | None = None,
    ) -> None:
        url, headers = url.rstrip("/"), {"Authorization": f"Bearer {_usable(token)}"}
        if not url.startswith(("http://", "https://")):
            raise ServerError("a server's address begins with http:// or https://.")
        # Where nothing is encrypted there is nobody to trust; to load whom one trusts takes longer than a request.
        trusted: ssl.SSLContext | bool = bool(verify) and url.startswith("https://")
        unusable = ServerError("the server's address, the token, or the certificate authority's file cannot be used.")
        with instead_of((OSError, ValueError, httpx.InvalidURL), unusable):  # ssl.SSLError is an OSError
            if isinstance(verify, str):
                trusted = ssl.create_default_context(cafile=verify)
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, verify=trusted)
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
        began, told = time.monotonic(), self._told
        until = began + (self._patience if patience is None else patience)
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            pause = next(waits)
            try:
                response = self._http.request(method, path, **request)
            except httpx.TransportError as error:
                problem = self._unreachable(error)
            else:
                if response.is_success:
                    return response.content
                problem = _problem(response)
            # A certificate does not mend itself within a minute.
            if not problem.passes or isinstance(problem, UntrustedServer) or time.monotonic() + pause > until:
                raise problem
            if time.monotonic() - began > _MORE_THAN_A_MOMENT and told is not None:
                told(problem)
                told = None
            time.sleep(pause)

    def ask_json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """The same, with the answer decoded."""
        content = self.ask(method, path, **request)
        return cast(dict[str, Any], msgspec.json.decode(content) if content else None)

    def _unreachable(self, error: BaseException) -> ServerError:
        """Why there is no connection."""
        # Without what stands before an @, which may be a password.
        server = f"the server at {self._http.base_url.scheme}://{self._http.base_url.netloc.decode()}"
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            return UntrustedServer(
                f"the certificate of {server} is not trusted: {cause.verify_message.rstrip('.')}. If it was issued by "
                "an authority of your own, name that authority's file: --ca or FOLDAWAY_CA, in Python verify=."
            )
        if isinstance(cause, ssl.SSLError):
            reason = (cause.reason or "no reason given").replace("_", " ").lower()
            return UntrustedServer(f"no encrypted connection to {server} ({reason}): does it use https?")
        if isinstance(error, httpx.ReadTimeout):
            return ServerError(
                f"{server} accepts connections but has not answered for {self._http.timeout.read:g} seconds. It may "
                "be busy or stuck, or another program may be using that address. Try again later."
            )
        return ServerError(
            f"{server} cannot be reached ({type(error).__name__}): is it running, and is that its address?"
        )


def _usable(token: str) -> str:
    """The token without white space around it, as the lines of a file have it. What is wrong is said without it."""
    token = token.strip()
    fault = "contains a line break" if len(token.splitlines()) > 1 else "contains a blank or an invisible character"
    if token and token.isprintable() and " " not in token:
        return token
    if not token:
        raise ServerError("the token is empty: give one, on the command line as FOLDAWAY_TOKEN or with --token.")
    raise ServerError(f"the token {fault}: give one token and nothing else.")


def _problem(response: httpx.Response) -> ServerError:
    try:
        problem = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        problem = {}
    address = response.request.url
    plain = _PLAIN.get(response.status_code, f"the server answered {response.status_code}.").format(
        f"{address.scheme}://{address.netloc.decode()}{address.path}"
    )
    return ServerError(problem.get("detail") or plain, response.status_code, problem.get("expected"))
