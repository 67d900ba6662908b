"""What is told of a trial, and was before: its answers, one after each growth by a cohort and a share.

An answer comes from what all servers have made durable. It is recorded in the transaction that decides that it is due,
and stands until the next one: whoever asks in between, on whatever server, gets the same. A trial's course is made of
what was told, so it tells nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from foldaway.effects import Effects
from foldaway.effects.headline import headline
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import Census, may_tell
from foldaway.plan import Plan
from foldaway.service.database.history_table import HistoryTable, ToldRow, require_last
from foldaway.service.database.ledger_table import LedgerTable

# The share of this server's time that looking for something new to tell may take, and seconds between two looks.
_SHARE = 0.05
_EVERY = 0.25

# Seconds of a day, and of the time over which the present rate is taken.
_DAY = 86_400.0
_RECENT = 7 * _DAY


class Estimate(msgspec.Struct, frozen=True):
    """One estimate at a point; null where a number cannot be told."""

    outcome: str
    arm: str
    estimator: str
    se_kind: str
    estimate: float | None
    anytime_ci_lower: float | None
    anytime_ci_upper: float | None


class Point(msgspec.Struct, frozen=True):
    """The estimates after so many durable records.

    Attributes:
        records: Durable records, of all servers, rounded.
        time: When, in seconds since 1970.
        effects: For each outcome, arm and estimator the row with the kind of error that is shown first.
    """

    records: int
    time: float
    effects: list[Estimate]


class History(msgspec.Struct, frozen=True):
    """A trial's course: the answers that were given."""

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


class Candidate(NamedTuple):
    """What could be told now.

    Attributes:
        records: Records of all servers.
        census: Who stands behind it.
        effects: Gives the effects, rounded; asked only if they are to be told.
    """

    records: int
    census: Census
    effects: Callable[[], Effects]


class Told(NamedTuple):
    """What was told: after so many records, these effects; and how many stand behind them, counted as in a census."""

    records: int
    effects: Effects
    behind: int


class Answers:
    """Decides what is told of trials, and when; remembers it."""

    def __init__(self, table: HistoryTable, ledger: LedgerTable) -> None:
        self._table = table
        self._ledger = ledger
        self._seen: dict[str, Hashable] = {}
        self._not_before: dict[str, float] = {}
        self._opened: dict[str, Told] = {}

    def current(
        self, plan: Plan, mark: Hashable, candidate: Callable[[], Candidate], *, at_leisure: bool = False
    ) -> Told | None:
        """What is told of a trial now; none if nothing may be told yet.

        Args:
            plan: The trial's plan.
            mark: What changes whenever something new is durable.
            candidate: Gives what could be told of that.
            at_leisure: Whether nobody waits for it, so that it may take only a share of this server's time.
        """
        begun = time.monotonic()
        early = at_leisure and begun < self._not_before.get(plan.name, 0.0)
        if self._seen.get(plan.name) != mark and not early:
            self._renew(plan, candidate())
            self._seen[plan.name] = mark
            self._not_before[plan.name] = begun + max(_EVERY, (time.monotonic() - begun) / _SHARE)
        return self._last(plan.name)

    def _renew(self, plan: Plan, new: Candidate) -> None:
        last = self._table.last(plan.name)
        if may_tell(plan.privacy, new.census, _census(last)):
            effects = new.effects()
            # In the database, estimates are without the names of their fields.
            rows = [[getattr(row, field) for field in Estimate.__struct_fields__] for row in headline(effects)]
            text, census = effects.to_json(), msgspec.msgpack.encode(new.census)
            told = ToldRow(new.records, msgspec.msgpack.encode(rows), text.encode(), census)
            note = self._ledger.answered(plan.name, text, round_count(new.records), plan.privacy.cohort)
            self._table.append(plan.name, told, lambda row: may_tell(plan.privacy, new.census, _census(row)), note)

    def _last(self, name: str) -> Told | None:
        row = self._table.last(name)
        if row is None:
            return None
        if name not in self._opened or self._opened[name].records != row.records:
            self._opened[name] = Told(
                row.records, Effects.from_json(row.answer), msgspec.msgpack.decode(row.census, type=Census).total
            )
        return self._opened[name]

    def final(self, plan: Plan, whole: Candidate) -> tuple[Told | None, Callable[[sa.Connection], None]]:
        """What is told at the close: all there is, if a cohort has come since the last answer; else that one.

        Returns:
            That, and what makes sure, in the transaction that closes the trial, that no server has told more since.
        """
        last = self._table.last(plan.name)
        unless_told = partial(require_last, trial=plan.name, records=0 if last is None else last.records)
        if may_tell(plan.privacy, whole.census, _census(last), growth=0):
            return Told(whole.records, whole.effects(), whole.census.total), unless_told
        return self._last(plan.name), unless_told

    def drop(self, name: str) -> None:
        """Let go of a trial's answer; a closed one's is in the database."""
        for each in (self._seen, self._not_before, self._opened):
            each.pop(name, None)

    def course(self, name: str, after: int, series: Series) -> list[Point]:
        """What was told after more records than this, oldest first."""
        points = []
        for row in self._table.read(name):
            if (records := round_count(row.records)) > after:
                estimates = [Estimate(*each) for each in msgspec.msgpack.decode(row.estimates)]
                points.append(Point(records, row.time, [each for each in estimates if series.takes(each)]))
        return points

    def rate(self, name: str) -> float | None:
        """Records a day over the last week of answers; None if that is not known."""
        points = self._table.read(name)
        recent = [row for row in points if row.time >= points[-1].time - _RECENT]
        if len(recent) < 2 or recent[-1].time <= recent[0].time:
            recent = points
        if len(recent) < 2 or recent[-1].time <= recent[0].time:
            return None
        first, last = recent[0], recent[-1]
        come = round_count(last.records) - round_count(first.records)
        return come / (last.time - first.time) * _DAY if come > 0 else None


def _census(row: ToldRow | None) -> Census | None:
    return None if row is None else msgspec.msgpack.decode(row.census, type=Census)
