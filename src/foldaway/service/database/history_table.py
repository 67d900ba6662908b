"""The history's table: what was told of each trial, in the order of its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa

from foldaway.errors import Conflict
from foldaway.service.database.seals import SealedTable, Sealing, header_of
from foldaway.service.database.tables import HISTORY, Change
from foldaway.service.database.trial_table import read_trial


class ToldRow(msgspec.Struct, frozen=True):
    """What was told after so many durable records of all servers, opened.

    Attributes:
        estimates: The estimates then, for the course.
        answer: The whole answer, of the last one.
        census: Who stood behind it, of the last one.
        time: The beginning of the tick on which it was told, in seconds since 1970.
    """

    records: int
    estimates: bytes
    answer: bytes = b""
    census: bytes = b""
    time: float = 0.0


class HistoryTable(SealedTable):
    """What was told, by trial and number of records."""

    def last(self, trial: str) -> ToldRow | None:
        """What was told last; none if nothing was, or the trial has ended."""
        with self._engine.begin() as connection:
            return self._last(connection, trial)

    def _last(self, connection: sa.Connection, trial: str) -> ToldRow | None:
        # Only the last has its answer, and none once the trial has ended.
        query = sa.select(HISTORY).where(HISTORY.c.trial == trial, HISTORY.c.answer.is_not(None))
        row = connection.execute(query).one_or_none()
        return None if row is None else self._opened(row, "estimates", "answer", "census")

    def _opened(self, row: sa.Row[Any], *parts: str) -> ToldRow:
        opened = {p: self._seals.opened(getattr(row, p), HISTORY.c[p], row.trial, row.records) for p in parts}
        return ToldRow(row.records, **opened, time=row.time)

    def append(self, trial: str, told: ToldRow, due: Callable[[ToldRow | None], bool], also: Change) -> None:
        """Tell something new, and write what else there is, unless the trial has ended, or it is not `due` by now.

        Whether it is due depends on what any server has told last.
        """
        with self._seals.sealing(self._engine, "trials") as (connection, sealing):
            # Servers take turns here, so that the last is the last for all of them.
            open = read_trial(connection, trial, lock="update").status == "open"
            if not open or not due(self._last(connection, trial)):
                return
            forget_answers(connection, sealing, trial)
            point = {"trial": trial, **msgspec.structs.asdict(told)}
            for part in ("estimates", "answer", "census"):
                point[part] = sealing.seal(point[part], HISTORY.c[part], trial, told.records)
            connection.execute(HISTORY.insert().values(point))
            also(connection)

    def read(self, trial: str) -> list[ToldRow]:
        """What was told, oldest first, without the whole answers."""
        query = sa.select(HISTORY).where(HISTORY.c.trial == trial).order_by(HISTORY.c.records)
        return [self._opened(row, "estimates") for row in self._rows(query)]


def forget_answers(connection: sa.Connection, sealing: Sealing, trial: str) -> None:
    """Empty the whole answer that was told last, since another takes its place, or the trial ends."""
    for column in (HISTORY.c.answer, HISTORY.c.census):
        its = HISTORY.c.trial == trial, column.is_not(None)
        sealing.replaces(connection.execute(sa.select(header_of(column)).where(*its)).scalars().all())
        connection.execute(HISTORY.update().where(*its).values({column: None}))


def require_last(connection: sa.Connection, trial: str, records: int) -> None:
    """Make sure that what was told after so many records, or nothing if that is 0, is the last for all servers.

    Raises:
        Conflict: A server has told something since.
    """
    query = sa.select(sa.func.max(HISTORY.c.records)).where(HISTORY.c.trial == trial)
    if (connection.execute(query).scalar_one() or 0) != records:
        raise Conflict(f"another server has given an answer while {trial} was ending; end it once more.")
