"""A trial's course: what the estimates were, at points a cohort or more of records apart.

A point is taken from what all servers have made durable, as an answer would be, so it tells no more than an answer at
that moment did. Even where ``max_wait`` lets states come closer to each other, points do not.
"""

from __future__ import annotations

import time

import msgspec

from foldaway.effects.headline import headline
from foldaway.errors import TooEarly
from foldaway.keeping.cohort import least_growth
from foldaway.plan import Plan
from foldaway.service.collecting.collector import Answers
from foldaway.service.database.store import Store

# Points kept of a trial. Enough for a chart of any width; at most this many, however long the trial.
MOST = 500

# Seconds between two points of a trial, at least, and the share of this server's time that points may take.
_EVERY = 1.0
_SHARE = 0.05


class Estimate(msgspec.Struct, frozen=True):
    """One estimate at a point; null where a number cannot be told."""

    outcome: str
    arm: str
    estimator: str
    se_kind: str
    estimate: float | None
    anytime_ci_lower: float | None
    anytime_ci_upper: float | None


class StoredEstimate(Estimate, frozen=True, array_like=True):
    """The same in the database: an array, without the names of its fields."""


class Point(msgspec.Struct, frozen=True):
    """The estimates after so many durable records.

    Attributes:
        records: Durable records, of all servers.
        time: When, in seconds since 1970.
        effects: For each outcome, arm and estimator the row with the kind of error that is shown first.
    """

    records: int
    time: float
    effects: list[Estimate]


class History(msgspec.Struct, frozen=True):
    """A trial's course; two points are at least a cohort of records apart."""

    name: str
    fingerprint: str
    points: list[Point]


class Series(msgspec.Struct, frozen=True):
    """Which estimates are asked for; all, where nothing is said."""

    outcome: str | None = None
    arm: str | None = None
    estimator: str | None = None

    def takes(self, row: Estimate) -> bool:
        """Whether an estimate is asked for."""
        pairs = (self.outcome, row.outcome), (self.arm, row.arm), (self.estimator, row.estimator)
        return all(wanted is None or wanted == name for wanted, name in pairs)


class Historian:
    """Takes the points, not too often; and reads them back."""

    def __init__(self, store: Store, answers: Answers) -> None:
        self._store = store
        self._answers = answers
        self._not_before: dict[str, float] = {}
        self._seen: dict[str, int] = {}

    def look(self, name: str, plan: Plan, durable: int) -> None:
        """Take a point if one is due.

        Args:
            name: The trial.
            plan: Its plan.
            durable: The durable records of this server's shard; as long as they are the same there is nothing to do,
                since other servers look after their own.
        """
        begun = time.monotonic()
        if durable == self._seen.get(name, 0) or begun < self._not_before.get(name, 0.0):
            return
        self._take(name, plan)
        self._seen[name] = durable
        spent = time.monotonic() - begun
        self._not_before[name] = begun + max(_EVERY, spent / _SHARE)

    def _take(self, name: str, plan: Plan) -> None:
        shards = self._store.shards.all(name)
        last = self._store.history.last(name)
        apart = least_growth(plan.privacy, last, MOST)  # no finer than the points that thinning leaves of a long course
        if sum(shard.n for shard in shards) < last + apart:
            return
        try:
            records, effects = self._answers.of(plan, shards)
        except TooEarly:
            return
        fields = StoredEstimate.__struct_fields__
        rows = [StoredEstimate(*(getattr(row, field) for field in fields)) for row in headline(effects)]
        estimates = msgspec.msgpack.encode(rows)
        self._store.history.append(name, records, estimates, apart=apart, most=MOST)

    def read(self, name: str, after: int, series: Series) -> list[Point]:
        """The points after so many records, oldest first."""
        points = []
        for row in self._store.history.read(name, after):
            estimates = msgspec.msgpack.decode(row.estimates, type=list[StoredEstimate])
            named = [Estimate(*msgspec.structs.astuple(each)) for each in estimates if series.takes(each)]
            points.append(Point(row.records, row.time, named))
        return points
