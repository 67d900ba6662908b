"""A site's connection to the coordinator of its trial."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from foldaway.errors import PlanError, ServerError, instead_of, not_installed
from foldaway.plan import Plan

_TRIAL = re.compile(r"(https?://.+?)/v1/trials/([^/?#]+)/?")


class HttpLink:
    """The connection over HTTP; it is made when it is first needed, and kept.

    Args:
        address: The trial's address.
        token: The site's token.
        patience: Seconds to go on trying while the coordinator does not answer.
        verify: A file with the certificate authority for https, or True for the system's.
        told: Called once with what is wrong, if the coordinator does not answer for more than a moment.
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        patience: float = 60.0,
        verify: str | bool = True,
        told: Callable[[ServerError], None] | None = None,
    ) -> None:
        try:
            from foldaway.asking import Asking
        except ModuleNotFoundError:
            raise ServerError(not_installed("httpx", "client")) from None
        self._asking = Asking(address, token, patience=patience, verify=verify, look=self._look, told=told)
        self._fingerprint: str | None = None

    def close(self) -> None:
        """Close the connection."""
        self._asking.close()

    def ask(self, method: str, path: str, **request: Any) -> bytes:
        """Ask for something below the address."""
        return self._asking.ask(method, path, **request)

    def plan(self) -> Plan:
        """The plan of the trial."""
        with instead_of(ServerError, _wrong_token):
            answer = self._asking.ask("GET", "/plan")
        # What it holds is not repeated: it may be anybody's page.
        fault = "the answer is not a trial's plan; is the address right, and does nobody answer in between?"
        with instead_of((PlanError, UnicodeDecodeError), ServerError(fault)):
            return Plan.loads(answer.decode())

    def fingerprint(self) -> str:
        """The fingerprint of the plan that the coordinator has; asked for once, and every answer is held against it."""
        if self._fingerprint is None:
            self._fingerprint = self.plan().fingerprint
        return self._fingerprint

    def _look(self, headers: Mapping[str, str]) -> None:
        answered = headers.get("Foldaway-Fingerprint")
        if None not in (answered, self._fingerprint) and answered != self._fingerprint:
            raise ServerError("the coordinator's plan is no longer the one that it had; a plan never changes.")


def _wrong_token(refused: ServerError) -> ServerError | None:
    """In place of a refusal that names all tokens which may read a plan, the one that devices and sites need."""
    if refused.status not in (401, 403):
        return None
    return ServerError(
        "the coordinator rejects this token, or the trial's name is misspelt. Devices need the trial's ingest token, "
        "which foldaway trial create has shown; a site needs one from foldaway token issue site NAME --units N.",
        refused.status,
    )


def trial_address(address: str, name: str | None = None) -> tuple[str, str]:
    """A trial's full address and its name, from a trial's address, or from a server's and the trial's name.

    Example:
        >>> trial_address("http://localhost:8321/v1/trials/checkout")
        ('http://localhost:8321/v1/trials/checkout', 'checkout')
        >>> trial_address("http://localhost:8321/", "checkout")
        ('http://localhost:8321/v1/trials/checkout', 'checkout')
    """
    parts = _TRIAL.fullmatch(address)
    if parts:
        if name is not None and parts[2] != name:
            raise ServerError(f"the address is that of the trial {parts[2]}, and the plan is that of {name}.")
        return f"{parts[1]}/v1/trials/{parts[2]}", parts[2]
    if name is None:
        raise ServerError("a trial's address has the form https://host/v1/trials/NAME.")
    if not address.startswith(("http://", "https://")):
        # Without what stands before an @, which may be a password.
        raise ServerError(f"a server's address begins with http:// or https://: write http://{address.split('@')[-1]}.")
    return f"{address.rstrip('/')}/v1/trials/{name}", name
