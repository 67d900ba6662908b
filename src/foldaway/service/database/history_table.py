"""The history's table: points of each trial's course, in the order of their records."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from foldaway.service.database.databases import writing
from foldaway.service.database.outages import guarded
from foldaway.service.database.seals import Seals, history_context
from foldaway.service.database.tables import HISTORY
from foldaway.service.database.trial_table import read_trial


class PointRow(msgspec.Struct, frozen=True):
    """A point.

    Attributes:
        records: Durable records of all servers.
        time: When it was written, in seconds since 1970.
        estimates: The estimates then, opened.
    """

    records: int
    time: float
    estimates: bytes


@guarded
class HistoryTable:
    """Points by trial and number of records."""

    def __init__(self, engine: sa.Engine, seals: Seals) -> None:
        self._engine = engine
        self._seals = seals

    def last(self, trial: str) -> int:
        """The records at the last point; 0 before the first."""
        with self._engine.begin() as connection:
            return _last(connection, trial)

    def append(self, trial: str, records: int, estimates: bytes, *, apart: int, most: int) -> bool:
        """Add a point, unless it is less than so many records after the last, or the trial is closed.

        Args:
            trial: The trial.
            records: Durable records of all servers.
            estimates: What is known then.
            apart: The fewest records between two points.
            most: Points to keep; when there are more, every second one goes.

        Returns:
            Whether it was added.
        """
        with writing(self._engine).begin() as connection:
            vault = self._seals.sealing(connection, "trials")
            # Servers take turns here, so that the last point is the last for all of them.
            open = read_trial(connection, trial, lock="update").status == "open"
            if not open or records < _last(connection, trial) + apart:
                return False
            sealed = vault.encrypt(estimates, history_context(trial, records))
            point = {"trial": trial, "records": records, "time": time.time(), "estimates": sealed}
            connection.execute(HISTORY.insert().values(point))
            _thin(connection, trial, most)
        return True

    def read(self, trial: str, after: int = 0) -> list[PointRow]:
        """The points with more records than this."""
        query = sa.select(HISTORY).where(HISTORY.c.trial == trial, HISTORY.c.records > after)
        with self._engine.begin() as connection:
            rows = connection.execute(query.order_by(HISTORY.c.records)).all()
        return [
            PointRow(row.records, row.time, self._seals.opened(row.estimates, history_context(trial, row.records)))
            for row in rows
        ]


def _last(connection: sa.Connection, trial: str) -> int:
    query = sa.select(sa.func.max(HISTORY.c.records)).where(HISTORY.c.trial == trial)
    return int(connection.execute(query).scalar_one() or 0)


def _thin(connection: sa.Connection, trial: str, most: int) -> None:
    query = sa.select(HISTORY.c.records).where(HISTORY.c.trial == trial).order_by(HISTORY.c.records)
    points: Sequence[int] = connection.execute(query).scalars().all()
    if len(points) > most:
        # Neither the first nor the last: the course keeps its ends, and the last is what the next is measured from.
        gone = points[1:-1:2]
        connection.execute(HISTORY.delete().where(HISTORY.c.trial == trial, HISTORY.c.records.in_(gone)))
