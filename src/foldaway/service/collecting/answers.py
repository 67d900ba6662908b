"""What is told of a trial, and was before: its answers, one after each growth by a cohort and a share.

An answer comes from what all servers have made durable, on a tick. It is recorded in the transaction that decides that
it is due, and stands until the next one: whoever asks in between, on whatever server, gets the same. A trial's course
is made of what was told, so it tells nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self

import msgspec

from foldaway.account.pace import Pace
from foldaway.auditing.finding import Audit
from foldaway.effects import Effects
from foldaway.effects.door import TOLD
from foldaway.effects.headline import headline
from foldaway.effects.withheld import why_withheld
from foldaway.errors import Unreleased, many
from foldaway.federated.coordinator.ending import Course, Situation
from foldaway.federated.messages import PublishedSums, Stage
from foldaway.federated.modes import mode_of
from foldaway.federated.replies.integrity import Integrity
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import Census, may_tell, too_early
from foldaway.plan import Plan
from foldaway.service.database.history_table import ToldRow, require_last
from foldaway.service.database.shard_table import ShardRow, versions
from foldaway.service.database.store import Store
from foldaway.service.database.tables import Change
from foldaway.service.database.trial_table import TrialRow

# Seconds of a day, and of the time over which the present rate is taken.
_DAY = 86_400.0
_RECENT = 7 * _DAY


class Participation(msgspec.Struct, frozen=True):
    """Who takes part in a trial whose records stay on devices, by arm.

    Attributes:
        mode: What devices send: the plan's `federated.mode`.
        stage: ``"open"``, ``"replying"`` while the last reports are waited for, or ``"ended"``.
        enrolled: Devices that have joined. Of a plan with a `release` no devices are counted, and this and the next
            two are empty.
        reported: Those whose report is durable.
        missing: Those whose report is not, or was withdrawn.
        deadline: Until when reports count, in seconds since 1970, once the trial is ending.
        integrity: In mode scores, once it has ended: whether the replies add up to the moments.
        note: Why a trial has ended without effects, if it has; or that it is heading for none, or waits on for that.
        with_moments: In mode scores, until it has ended: devices whose moments are durable, and so in the coefficients.
        sites: Of a plan for sites, the units of each that has reported, by the label of the site's token.
        withdrawn: Devices whose report was counted and then taken out; they are among the missing.
    """

    mode: str
    stage: Stage
    enrolled: dict[str, int]
    reported: dict[str, int]
    missing: dict[str, int]
    deadline: float | None = None
    integrity: Integrity | None = None
    note: str | None = None
    with_moments: dict[str, int] | None = None
    sites: dict[str, int] | None = None
    withdrawn: dict[str, int] = {}

    @classmethod
    def of(cls, plan: Plan, seen: Situation) -> Self:
        """Who takes part, from where the trial stands."""
        devices, deadline = seen.devices, None if seen.ending is None else seen.ending.deadline
        counts = devices.enrolled, devices.reported, devices.missing, devices.withdrawn
        enrolled, reported, missing, withdrawn = (dict(each) if plan.release is None else {} for each in counts)
        note = Course(plan).outlook(seen)
        sites = None if plan.unit is None or plan.release is not None else devices.sites
        mode = mode_of(plan).name
        return cls(mode, seen.stage, enrolled, reported, missing, deadline, None, note, None, sites, withdrawn)

    def rounded(self) -> Self:
        """For whoever may only read: a count that grows by one would tell the arm of the device that just joined."""
        names = ("enrolled", "reported", "missing", "with_moments", "sites", "withdrawn")
        counts = {name: getattr(self, name) for name in names}
        told = {name: n and {each: TOLD.devices(n[each]) for each in n} for name, n in counts.items()}
        return msgspec.structs.replace(self, **told)


class Answer(msgspec.Struct, frozen=True):
    """The effects of a trial as far as it is durable.

    Attributes:
        final: Whether the trial has ended and this is its last word.
        records: Records that the effects are of; with a `release` they contain noise, and null stands before it.
        left_out: Records that the effects are not of; null where the plan has a `release`, which does not tell them.
        federated: Of a trial whose records stay on devices, who is in the effects.
        summands: Of the helper in mode shares, the sums that it has published; nobody can read them without the
            leader's.
    """

    name: str
    fingerprint: str
    final: bool
    records: int | None
    left_out: int | None
    effects: msgspec.Raw
    federated: Participation | None = None
    summands: PublishedSums | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        effects: Effects | None,
        records: int | None,
        left_out: int | None,
        federated: Participation | None = None,
        *,
        final: bool = False,
    ) -> Self:
        """What there is to say about a trial: its effects, if any, and the records in them or left out."""
        body = b"null" if effects is None else effects.to_json().encode()
        return cls(plan.name, plan.fingerprint, final, records, left_out, msgspec.Raw(body), federated)

    @classmethod
    def last_word(cls, final: str) -> Self:
        """The answer of a trial that has ended, as stored: the effects as they were last told, now final."""
        answer = msgspec.json.decode(final, type=cls)
        effects = answer.opened()
        if effects is None:
            return answer
        return msgspec.structs.replace(answer, effects=msgspec.Raw(replace(effects, final=True).to_json().encode()))

    def dumps(self) -> str:
        """As it is stored."""
        return msgspec.json.encode(self).decode()

    def opened(self) -> Effects | None:
        """The effects; none if it ended without."""
        return None if bytes(self.effects) == b"null" else Effects.from_json(self.effects)


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
        time: The beginning of the tick on which they were told, in seconds since 1970.
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


class Shown(NamedTuple):
    """What was told: after so many records, these effects; and how many units had come until then, and gone."""

    records: int
    effects: Effects
    behind: int


class Answers:
    """Decides what is told of trials, and when; remembers it."""

    def __init__(self, store: Store, pace: Pace | None = None) -> None:
        self._store = store
        self._table = store.history
        self.pace = pace or Pace()
        self._looked: dict[str, int] = {}
        self._seen: dict[str, object] = {}
        self._opened: dict[str, Shown] = {}

    def current(
        self, plan: Plan, mark: object, candidate: Callable[[], Candidate], *, on_tick: bool = False
    ) -> Shown | None:
        """What is told of a trial on this tick; none if nothing may be told yet.

        Args:
            plan: The trial's plan.
            mark: What changes whenever something new is durable.
            candidate: Gives what could be told of that.
            on_tick: Whether what has waited for this tick was stored just now, so that it is looked for once more.

        Raises:
            Unreleased: The plan has a `release`: what the gate says depends on exact counts.
        """
        if plan.release is not None:
            raise Unreleased()
        tick = self.pace.tick()
        if self._seen.get(plan.name) != mark and (on_tick or self._looked.get(plan.name) != tick):
            self._renew(plan, candidate())
            self._seen[plan.name] = mark
        self._looked[plan.name] = tick
        return self._last(plan.name)

    def _renew(self, plan: Plan, new: Candidate) -> None:
        last = self._table.last(plan.name)
        if may_tell(plan.privacy, new.census, _census(last)):
            effects = new.effects()
            # In the database, estimates are without the names of their fields.
            rows = [[getattr(row, field) for field in Estimate.__struct_fields__] for row in headline(effects)]
            text, census = effects.to_json(), msgspec.msgpack.encode(new.census)
            now = self.pace.begin(time.time())
            told = ToldRow(new.records, msgspec.msgpack.encode(rows), text.encode(), census, now)
            note = self._store.ledger.answered(plan.name, text, round_count(new.records), plan.privacy.cohort)
            self._table.append(plan.name, told, lambda row: may_tell(plan.privacy, new.census, _census(row)), note)

    def _last(self, name: str) -> Shown | None:
        row = self._table.last(name)
        if row is None:
            return None
        if name not in self._opened or self._opened[name].records != row.records:
            self._opened[name] = Shown(
                row.records, Effects.from_json(row.answer), msgspec.msgpack.decode(row.census, type=Census).moved
            )
        return self._opened[name]

    def final(self, plan: Plan, whole: Candidate) -> tuple[Shown | None, Change]:
        """What is told at the end: all there is, if a cohort has come since the last answer; else that one.

        A release is told whoever stands behind it: in its effects, noise decides what has numbers.

        Returns:
            That, and what makes sure, in the transaction that ends the trial, that no server has told more since.
        """
        last = self._table.last(plan.name)
        unless_told = partial(require_last, trial=plan.name, records=0 if last is None else last.records)
        if plan.release is not None or may_tell(plan.privacy, whole.census, _census(last), growth=0):
            return Shown(whole.records, whole.effects(), whole.census.moved), unless_told
        told = self._last(plan.name)
        late, what = whole.records - (told.records if told else 0), "record"
        if plan.federated is not None:
            late, what = whole.census.moved - (told.behind if told else 0), "report"
            what += " or withdrawal" if whole.census.gone else ""
        if told is not None and late:
            told = told._replace(
                effects=replace(told.effects, notes=[*told.effects.notes, _left_out(plan, late, what)])
            )
        return told, unless_told

    def end(
        self, answer: Answer, audited: Audit | None, shards: Sequence[ShardRow], also: Iterable[Change]
    ) -> TrialRow:
        """End a trial with its last answer.

        Raises:
            Conflict: A server has committed since these shards were read, and would be missing from the answer.
        """
        effects = bytes(answer.effects).decode()
        told = None if effects == "null" else effects
        note = self._store.ledger.ended(answer.name, told, answer.records, audited)
        row = self._store.end_trial(answer.name, answer.dumps(), versions(shards), [*also, note])
        self.drop(answer.name)
        return row

    def drop(self, name: str) -> None:
        """Let go of a trial's answer; one that has ended is in the database."""
        for each in (self._seen, self._looked, self._opened):
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
        for some in ([row for row in points if row.time >= points[-1].time - _RECENT], points):
            if some and (elapsed := some[-1].time - some[0].time) > 0:
                come = round_count(some[-1].records) - round_count(some[0].records)
                return come / elapsed * _DAY if come > 0 else None
        return None


def why_none(plan: Plan, told: Shown | None) -> str | None:
    """Why a trial that ended with this would have no effects; None if it has some, or a release's noise decides."""
    if plan.release is not None:
        return None
    return str(too_early(plan.privacy)) if told is None else why_withheld(told.effects)


def _left_out(plan: Plan, late: int, what: str) -> str:
    """Why what came after the last answer is not in the final one."""
    return (
        f"Left out at the end: about {many(TOLD.devices(late), what)}, which came after the effects were last "
        f"shown. Fewer than a cohort ({plan.privacy.cohort:,}) had come since then, so the effects of that time are "
        "final. To avoid this, do not ask for effects shortly before the end."
    )


def _census(row: ToldRow | None) -> Census | None:
    return None if row is None else msgspec.msgpack.decode(row.census, type=Census)
