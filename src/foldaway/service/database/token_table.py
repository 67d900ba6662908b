"""The tokens' table: issued once, kept without their secrets."""

from __future__ import annotations

import time
from functools import partial

import msgspec
import sqlalchemy as sa

from foldaway.errors import MessageError, ServerError, instead_of
from foldaway.service.database.seals import SealedTable
from foldaway.service.database.tables import TOKENS, TRIALS, Change, insert_new
from foldaway.service.database.trial_table import read_trial
from foldaway.service.keys.tokens import SENDING, TokenRow, Wanted, issue, row_of, verify


class TokenTable(SealedTable):
    """The tokens of a database."""

    def issue(self, wanted: Wanted) -> tuple[TokenRow, str]:
        """A new token; if it is for a trial, there must be one.

        Returns:
            What is kept of it, and its text, which is told this once.
        """
        row, text = issue(wanted)
        if wanted.trial is not None:
            with self._engine.begin() as connection:
                read_trial(connection, wanted.trial)
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
            row = row_of(text, Wanted("admin"))
        with self._writing.begin() as connection:
            insert_new(connection, TOKENS, [msgspec.structs.asdict(row)])
        kept = self.find(row.id)
        if not verify(text, kept) or kept is None or kept.scope != "admin":
            raise ServerError("the preset admin token was revoked, or is that of another; make a new one.")

    def replace_admins(self, wanted: Wanted) -> str:
        """A new admin token, in place of all others."""
        others = self.admins()
        _, text = self.issue(wanted)
        for row in others:
            self.revoke(row.id)
        return text

    def find(self, id: str) -> TokenRow | None:
        """A token by the public part of its text, if there is one."""
        if not id.isprintable():  # not every database takes such text in a question
            return None
        return next((TokenRow(**row._mapping) for row in self._rows(sa.select(TOKENS).where(TOKENS.c.id == id))), None)

    def all(self, team: str | None = None) -> list[TokenRow]:
        """All tokens, the oldest first; of a team, those for its trials."""
        query = sa.select(TOKENS).order_by(TOKENS.c.created, TOKENS.c.id)
        if team is not None:
            query = query.where(_of_team(team))
        return [TokenRow(**row._mapping) for row in self._rows(query)]

    def admins(self) -> list[TokenRow]:
        """The tokens for everything that are good."""
        return [row for row in self.all() if row.scope == "admin" and row.status == "valid"]

    def revoke(self, id: str, team: str | None = None) -> bool:
        """Revoke a token; whether there is one with this id, for a team's trial if it must be."""
        if not id.isprintable():
            return False
        change = TOKENS.update().where(TOKENS.c.id == id).values(revoked=True)
        with self._writing.begin() as connection:
            return connection.execute(change if team is None else change.where(_of_team(team))).rowcount == 1

    def note_use(self, id: str, day: str) -> None:
        """Note the day of a token's last use; of those that records come with, nothing is noted."""
        change = TOKENS.update().where(TOKENS.c.id == id, TOKENS.c.scope.not_in(SENDING)).values(used=day)
        with self._writing.begin() as connection:
            connection.execute(change)


def _of_team(team: str) -> sa.ColumnElement[bool]:
    return TOKENS.c.trial.in_(sa.select(TRIALS.c.name).where(TRIALS.c.team == team))


def spent() -> sa.ColumnElement[bool]:
    """Whether a token is no longer good: its producers' names are free for another."""
    return TOKENS.c.revoked | sa.func.coalesce(TOKENS.c.expires <= time.time(), sa.false())


def units_by_site(connection: sa.Connection, trial: str) -> dict[str, int]:
    """The units that each site of a trial has brought; a site is called by the label of its tokens, or by their id."""
    query = (
        sa.select(TOKENS).where(TOKENS.c.trial == trial, TOKENS.c.brought > 0).order_by(TOKENS.c.created, TOKENS.c.id)
    )
    units: dict[str, int] = {}
    for row in connection.execute(query):
        site = row.label or f"site {row.id[:6]}"
        units[site] = units.get(site, 0) + row.brought
    return units


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
