"""A device's connection to its coordinator: made when it is first needed, and only to one with the device's plan."""

from __future__ import annotations

import os

from foldaway.errors import ServerError
from foldaway.federated.link import HttpLink, Link, trial_address
from foldaway.plan import Plan


class Connection:
    """How a device reaches its coordinator.

    Args:
        server: The address of the coordinator, or of the trial there; may be given later.
        token: The trial's ingest token; ``FOLDAWAY_TOKEN`` by default.
        patience: Seconds to go on trying while the coordinator does not answer.
        verify: A file with the certificate authority for https, or True for the system's.
        link: How to talk to the coordinator in place of HTTP.
    """

    def __init__(
        self, server: str | None, token: str | None, patience: float, verify: str | bool, link: Link | None
    ) -> None:
        self.server = server
        self.link = link
        self._token = token
        self._patience = patience
        self._verify = verify
        self._own: HttpLink | None = None

    @property
    def is_known(self) -> bool:
        """Whether the device knows its coordinator."""
        return self.server is not None or self.link is not None

    def coordinator(self, trial: str | None = None) -> Link:
        """The coordinator, for the trial of this name, or the one in its address.

        Raises:
            ServerError: The device does not know it, or has no token for it.
        """
        if self.link is None:
            if self.server is None:
                raise ServerError("this device does not know its coordinator: give it as server=.")
            address, _ = trial_address(self.server, trial)
            token = self._token or os.environ.get("FOLDAWAY_TOKEN")
            if not token:
                raise ServerError("the coordinator wants a token: give it as token=, or in FOLDAWAY_TOKEN.", 401)
            self.link = self._own = HttpLink(address, token, patience=self._patience, verify=self._verify)
        return self.link

    def agreed(self, plan: Plan, patience: float | None = None) -> Link:
        """The coordinator, if it runs the trial under this device's plan: nothing is sent to any other."""
        link = self.coordinator(plan.name)
        if link.fingerprint(patience=patience) != plan.fingerprint:
            raise ServerError(
                f"the coordinator runs {plan.name} under another plan than this device's, so nothing was sent; "
                "compare the two with foldaway plan check, and take the trial's plan from its address.",
                409,
            )
        return link

    def close(self) -> None:
        """Close the connection; it is made anew if it is needed again."""
        if self._own is not None:
            self._own.close()
            self._own = self.link = None
