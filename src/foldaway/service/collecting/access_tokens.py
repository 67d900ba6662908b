"""The tokens of one database: issued once, listed without their secrets."""

from __future__ import annotations

import msgspec

from foldaway.errors import ServerError, instead_of
from foldaway.service.database.store import Store
from foldaway.service.keys.tokens import Scope, issue, row_of, verify


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

    def adopt(self, text: str) -> None:
        """Take a token that was made elsewhere for an admin's; the same one again changes nothing.

        Raises:
            ServerError: It is not one of `foldaway token new`, was revoked, or is another's.
        """
        with instead_of(ValueError, ServerError("the preset admin token is not one; make it with foldaway token new.")):
            row = row_of(text, "admin")
        self._store.tokens.add_new(row)
        kept = self._store.tokens.find(row.id)
        if not verify(text, kept) or kept is None or kept.scope != "admin":
            raise ServerError("the preset admin token was revoked, or is that of another; make a new one.")

    def recover(self, *, revoke_others: bool) -> str:
        """A new admin token, for whoever holds the database and its key; on demand in place of all others."""
        others = [row for row in self._store.tokens.all() if row.scope == "admin" and not row.revoked]
        issued = self.issue(TokenWanted("admin"))
        for row in others if revoke_others else ():
            self._store.tokens.revoke(row.id)
        return issued.token

    def all(self) -> list[TokenAbout]:
        """All tokens, without their secrets."""
        rows = self._store.tokens.all()
        return [TokenAbout(row.id, row.scope, row.trial, row.created, row.revoked) for row in rows]
