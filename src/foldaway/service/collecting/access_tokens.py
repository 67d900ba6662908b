"""The tokens of one database: issued once, listed without their secrets."""

from __future__ import annotations

import msgspec

from foldaway.service.database.store import Store
from foldaway.service.keys.tokens import Scope, issue


class TokenWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be issued."""

    scope: Scope
    trial: str | None = None


class Issued(msgspec.Struct, frozen=True):
    """A new token; it is told this once."""

    id: str
    token: str


class TokenAbout(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    id: str
    scope: str
    trial: str | None
    created: float
    revoked: bool


class AccessTokens:
    """Issues tokens, and lists them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def issue(self, wanted: TokenWanted) -> Issued:
        """A new token. Those for admin are for all trials, the others for one."""
        if wanted.trial is not None:
            self._store.trial(wanted.trial)
        row, text = issue(wanted.scope, wanted.trial)
        self._store.tokens.add(row)
        return Issued(row.id, text)

    def all(self) -> list[TokenAbout]:
        """All tokens, without their secrets."""
        rows = self._store.tokens.all()
        return [TokenAbout(row.id, row.scope, row.trial, row.created, row.revoked) for row in rows]
