"""The history's table: what was told of each trial, in the order of its records."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa

from foldaway.errors import Conflict
from foldaway.service.database.databases import writing
from foldaway.service.database.outages import guarded
from foldaway.service.database.seals import Seals, history_context
from foldaway.service.database.tables import HISTORY
from foldaway.service.database.trial_table import read_trial


class PointRow(msgspec.Struct, frozen=True):
    """What was told after so many records.

    Attributes:
        records: Durable records of all servers.
        time: When it was written, in seconds since 1970.
        estimates: The estimates then, opened.
    """

    records: int
    time: float
    estimates: bytes


class ToldRow(msgspec.Struct, frozen=True):
    """What was told last, opened.

    Attributes:
        records: Durable records of all servers.
        estimates: The estimates, for the course.
        answer: The whole answer.
        census: Who stood behind it.
    """

    records: int
    estimates: bytes
    answer: bytes
    census: bytes


@guarded
class HistoryTable:
    """What was told, by trial and number of records."""

    def __init__(self, engine: sa.Engine, seals: Seals) -> None:
        self._engine = engine
        self._seals = seals

    def last(self, trial: str) -> ToldRow | None:
        """What was told last; none if nothing was, or the trial is closed."""
        with self._engine.begin() as connection:
            return self._last(connection, trial)

    def _last(self, connection: sa.Connection, trial: str) -> ToldRow | None:
        # Only the last has its answer, and none once the trial is closed.
        query = sa.select(HISTORY).where(HISTORY.c.trial == trial, HISTORY.c.answer.is_not(None))
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return ToldRow(row.records, *(self._opened(row, part) for part in ("estimates", "answer", "census")))

    def _opened(self, row: sa.Row[Any], part: str) -> bytes:
        return self._seals.opened(getattr(row, part), history_context(row.trial, row.records, part))

    def append(
        self,
        trial: str,
        told: ToldRow,
        due: Callable[[ToldRow | None], bool],
        also: Callable[[sa.Connection], None],
    ) -> None:
        """Tell something new, unless the trial is closed, or it is not due after what any server has told last.

        Args:
            trial: The trial.
            told: What is told.
            due: Whether it is, after what was told last.
            also: What else is to be written then.
        """
        with writing(self._engine).begin() as connection:
            vault = self._seals.sealing(connection, "trials")
            # Servers take turns here, so that the last is the last for all of them.
            open = read_trial(connection, trial, lock="update").status == "open"
            if not open or not due(self._last(connection, trial)):
                return
            sealed = {
                part: vault.encrypt(getattr(told, part), history_context(trial, told.records, part))
                for part in ("estimates", "answer", "census")
            }
            connection.execute(HISTORY.update().where(HISTORY.c.trial == trial).values(answer=None, census=None))
            point = {"trial": trial, "records": told.records, "time": time.time(), **sealed}
            connection.execute(HISTORY.insert().values(point))
            also(connection)

    def read(self, trial: str) -> list[PointRow]:
        """What was told, oldest first, without the whole answers."""
        query = sa.select(HISTORY).where(HISTORY.c.trial == trial)
        with self._engine.begin() as connection:
            rows = connection.execute(query.order_by(HISTORY.c.records)).all()
        return [PointRow(row.records, row.time, self._opened(row, "estimates")) for row in rows]


def require_last(connection: sa.Connection, trial: str, records: int) -> None:
    """Make sure that what was told after so many records, or nothing if that is 0, is the last for all servers.

    Raises:
        Conflict: A server has told something since.
    """
    query = sa.select(sa.func.max(HISTORY.c.records)).where(HISTORY.c.trial == trial)
    if (connection.execute(query).scalar_one() or 0) != records:
        raise Conflict(f"another server has given an answer while {trial} was being closed; close it once more.")
