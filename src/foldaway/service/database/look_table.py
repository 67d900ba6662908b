"""The looks' table: each planned look that was taken of a trial, once for all servers."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from foldaway.effects.looks_taken import Look
from foldaway.errors import Conflict, TrialEnded
from foldaway.service.database.seals import SealedTable, Sealing, header_of
from foldaway.service.database.tables import LOOKS, insert_new
from foldaway.service.database.trial_table import read_trial


class LookTable(SealedTable):
    """What each look found, sealed, by trial and number."""

    def read(self, trial: str) -> tuple[Look, ...]:
        """The looks of a trial, in order.

        Raises:
            TrialEnded: It has ended, and its final effects name them.
        """
        found = self._rows(sa.select(LOOKS).where(LOOKS.c.trial == trial).order_by(LOOKS.c.number))
        if any(row.look is None for row in found):
            raise _ended(trial)
        opened = (self._seals.opened(row.look, LOOKS.c.look, trial, row.number) for row in found)
        return tuple(msgspec.json.decode(each, type=Look) for each in opened)

    def take(self, trial: str, number: int, look: Look) -> None:
        """Keep a look under its number, unless a server has taken that one.

        Raises:
            TrialEnded: It is too late for a look.
        """
        with self._seals.sealing(self._engine, "trials") as (connection, sealing):
            if read_trial(connection, trial, lock="update").status != "open":
                raise _ended(trial)
            taken = sa.select(LOOKS.c.number).where(LOOKS.c.trial == trial, LOOKS.c.number == number)
            if connection.execute(taken).one_or_none() is None:
                sealed = sealing.seal(msgspec.json.encode(look), LOOKS.c.look, trial, number)
                insert_new(connection, LOOKS, [{"trial": trial, "number": number, "look": sealed}])


def forget_looks(connection: sa.Connection, sealing: Sealing, trial: str) -> None:
    """Empty the looks of a trial that ends: its final effects say what they found."""
    its = LOOKS.c.trial == trial, LOOKS.c.look.is_not(None)
    sealing.replaces(connection.execute(sa.select(header_of(LOOKS.c.look)).where(*its)).scalars().all())
    connection.execute(LOOKS.update().where(*its).values(look=None))


def require_looks(connection: sa.Connection, trial: str, taken: int) -> None:
    """Make sure that so many looks were taken of a trial that ends: its final effects name them all.

    Raises:
        Conflict: A server has taken one since.
    """
    query = sa.select(sa.func.count()).select_from(LOOKS).where(LOOKS.c.trial == trial)
    if connection.execute(query).scalar_one() != taken:
        raise Conflict(f"another server has taken a look while {trial} was ending; end it once more.")


def _ended(trial: str) -> TrialEnded:
    return TrialEnded(f"the trial {trial} has ended; its final effects name its looks.")
