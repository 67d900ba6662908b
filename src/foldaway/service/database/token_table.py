"""The tokens' table: issued once, kept without their secrets."""

from __future__ import annotations

from functools import partial

import msgspec
import sqlalchemy as sa

from foldaway.errors import MessageError, ServerError, instead_of
from foldaway.service.database.seals import SealedTable
from foldaway.service.database.tables import TOKENS, Change, insert_new
from foldaway.service.database.trial_table import read_trial
from foldaway.service.keys.tokens import Scope, TokenRow, issue, row_of, verify


class TokenTable(SealedTable):
    """The tokens of a database."""

    def issue(self, scope: Scope, trial: str | None = None, units: int | None = None) -> tuple[TokenRow, str]:
        """A new token. Those for admin are for all trials, the others for one; a site's also for so many units at most.

        Returns:
            What is kept of it, and its text, which is told this once.
        """
        if trial is not None:
            with self._engine.begin() as connection:
                read_trial(connection, trial)
        row, text = issue(scope, trial, units)
        self.add(row)
        return row, text

    def add(self, row: TokenRow) -> None:
        """Store a token."""
        with self._writing.begin() as connection:
            connection.execute(TOKENS.insert().values(msgspec.structs.asdict(row)))

    def adopt(self, text: str) -> None:
        """Take a token that was made elsewhere for an admin's; the same one again changes nothing.

        Raises:
            ServerError: It is not one of `foldaway token issue admin --preset`, was revoked, or is another's.
        """
        none = "the preset admin token is not one; make it with `foldaway token issue admin --preset`."
        with instead_of(ValueError, ServerError(none)):
            row = row_of(text, "admin")
        with self._writing.begin() as connection:
            insert_new(connection, TOKENS, [msgspec.structs.asdict(row)])
        kept = self.find(row.id)
        if not verify(text, kept) or kept is None or kept.scope != "admin":
            raise ServerError("the preset admin token was revoked, or is that of another; make a new one.")

    def replace_admins(self) -> str:
        """A new admin token, in place of all others."""
        others = self.admins()
        _, text = self.issue("admin")
        for row in others:
            self.revoke(row.id)
        return text

    def find(self, id: str) -> TokenRow | None:
        """A token by the public part of its text, if there is one."""
        if not id.isprintable():  # not every database takes such text in a question
            return None
        return next((TokenRow(**row._mapping) for row in self._rows(sa.select(TOKENS).where(TOKENS.c.id == id))), None)

    def all(self) -> list[TokenRow]:
        """All tokens, the oldest first."""
        query = sa.select(TOKENS).order_by(TOKENS.c.created, TOKENS.c.id)
        return [TokenRow(**row._mapping) for row in self._rows(query)]

    def admins(self) -> list[TokenRow]:
        """The tokens for everything that are not revoked."""
        return [row for row in self.all() if row.scope == "admin" and not row.revoked]

    def revoke(self, id: str) -> bool:
        """Revoke a token; whether there is one with this id."""
        if not id.isprintable():
            return False
        with self._writing.begin() as connection:
            return connection.execute(TOKENS.update().where(TOKENS.c.id == id).values(revoked=True)).rowcount == 1


def bringing(token: str, units: int) -> Change:
    """Counts, in a transaction, units that a site brings under its token; MessageError if these are too many."""
    return partial(_bring, token=token, units=units)


def _bring(connection: sa.Connection, token: str, units: int) -> None:
    most, brought = TOKENS.c.units, TOKENS.c.brought + units
    change = TOKENS.update().where(TOKENS.c.id == token, most.is_(None) | (brought <= most)).values(brought=brought)
    if connection.execute(change).rowcount != 1:
        raise MessageError(
            "the tallies are of more units than the site's token is still good for. Ask an administrator for a token "
            "with a larger number of units (`foldaway token issue site NAME --units`)."
        )
