"""What can be asked of a server: about its trials and its tokens."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from foldaway.asking import Asking
from foldaway.evidence.signing import canonical

_TOML = {"Content-Type": "application/toml"}


class Questions:
    """Asks a server."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def create(self, plan_text: str) -> dict[str, Any]:
        """Register a plan, given as TOML or JSON; answers with an ingest token and a read token."""
        return self._asking.ask_json("POST", "/v1/trials", content=plan_text.encode(), headers=_TOML)

    def trials(self) -> list[dict[str, Any]]:
        """All trials with their status."""
        return cast(list[dict[str, Any]], self._asking.ask_json("GET", "/v1/trials"))

    def status(self, trial: str) -> dict[str, Any]:
        """The status of a trial."""
        return self._asking.ask_json("GET", f"/v1/trials/{trial}")

    def plan(self, trial: str) -> dict[str, Any]:
        """A trial's plan."""
        return self._asking.ask_json("GET", f"/v1/trials/{trial}/plan")

    def effects(self, trial: str, *, exact: bool = False) -> dict[str, Any]:
        """The effects so far, rounded for others; an admin may ask for exact ones, and the server counts that."""
        return self._asking.ask_json("GET", f"/v1/trials/{trial}/effects" + ("/exact" if exact else ""))

    def report(self, trial: str, *, exact: bool = False) -> str:
        """The same as a page."""
        return self._asking.ask("GET", f"/v1/trials/{trial}/report" + ("/exact" if exact else "")).decode()

    def certificate(self, trial: str) -> bytes:
        """The certificate of a trial that has ended, as the file that `foldaway verify` checks."""
        return canonical(self._asking.ask_json("GET", f"/v1/trials/{trial}/certificate"), indent=1) + b"\n"

    def remove(self, trial: str) -> None:
        """Remove a trial that has ended from the server, with all that is stored of it and its tokens."""
        self._asking.ask_json("DELETE", f"/v1/trials/{trial}")

    def outlook(
        self, trial: str, *, records: int | None = None, days: float | None = None, width: float | None = None
    ) -> dict[str, Any]:
        """What the trial can still find by so many records or days, and when intervals will be as narrow as `width`."""
        wanted = _said(records=records, days=days, width=width)
        return self._asking.ask_json("GET", f"/v1/trials/{trial}/outlook", params=wanted)

    def tokens(self) -> list[dict[str, Any]]:
        """All tokens, without their secrets."""
        return cast(list[dict[str, Any]], self._asking.ask_json("GET", "/v1/tokens"))

    def issue_token(
        self,
        scope: str,
        trial: str | None = None,
        *,
        units: int | None = None,
        team: str | None = None,
        label: str | None = None,
        expires_in: int | None = None,
    ) -> dict[str, Any]:
        """A new token.

        Args:
            scope: ``"admin"``, ``"metrics"``, ``"team"``, or for one trial ``"ingest"``, ``"site"``, ``"invite"`` or
                ``"read"``.
            trial: The trial's name.
            units: Of a site's, how many units the site may bring at most.
            team: Of a team's, the team's name.
            label: What it is for.
            expires_in: After how many seconds it is no longer good.
        """
        wanted = _said(scope=scope, trial=trial, units=units, team=team, label=label, expires_in=expires_in)
        return self._asking.ask_json("POST", "/v1/tokens", json=wanted)

    def invite(self, trial: str, count: int) -> list[str]:
        """New invitations for devices of a trial that asks for them."""
        answer = self._asking.ask_json("POST", f"/v1/trials/{trial}/invitations", json={"count": count})
        return cast(list[str], answer["invitations"])

    def revoke_token(self, id: str) -> None:
        """Revoke a token, by its id."""
        self._asking.ask_json("DELETE", f"/v1/tokens/{quote(id, safe='')}")

    def end(
        self,
        trial: str,
        *,
        deadline: float | None = None,
        share: float | None = None,
        without_effects: bool = False,
        exact: bool = False,
    ) -> dict[str, Any]:
        """End a trial; answers with its final effects.

        Args:
            trial: The trial's name.
            deadline: Where records stay on devices, seconds in which their reports still count: until then the answer
                is not ``final``, and the same call again, without a deadline, says how far it is.
            share: The share of the devices whose reports are enough.
            without_effects: End it even if effects would be withheld, which is refused otherwise.
            exact: Answer with exact effects; those that are stored and shown to others are rounded. Refused if this
                call would not end the trial, but begin to wait for devices.
        """
        flags = {"without_effects": without_effects or None, "exact": exact or None}
        wanted = _said(deadline=deadline, share=share, **flags)
        return self._asking.ask_json("POST", f"/v1/trials/{trial}/end", **({"json": wanted} if wanted else {}))


def _said(**settings: object) -> dict[str, object]:
    """Those that are not left out."""
    return {name: value for name, value in settings.items() if value is not None}
