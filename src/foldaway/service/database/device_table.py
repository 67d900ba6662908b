"""The tables of federated trials: who has joined, which numbers are used, what was published.

A number is 16 random bytes that a device has made. What is stored is its hash, in a row with whether it is used or
withdrawn, the server that has its report, and hashes of it with its arm and of its report: no time, and neither arm nor
content for those who do not have the number. It becomes used in the transaction that makes its content durable.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Self

import sqlalchemy as sa

from foldaway.errors import Conflict, TrialEnded
from foldaway.federated.coordinator.ending import Ending, Situation
from foldaway.federated.messages import DeviceMessage, HelpersHalf, Stage, encoded
from foldaway.federated.modes.share import Devices
from foldaway.federated.summands.summands import Half
from foldaway.plan import Plan
from foldaway.service.database.invitation_table import spend
from foldaway.service.database.seals import SealedTable
from foldaway.service.database.shard_table import read_versions, write_shard
from foldaway.service.database.tables import DEVICES, ENDINGS, NUMBERS, TRIALS, Change, insert_new, parts
from foldaway.service.database.token_table import units_by_site
from foldaway.service.database.trial_table import read_trial


@dataclass
class Arrivals:
    """What a commit makes durable besides the state.

    Attributes:
        used: Enrolled numbers whose reports are in it, each with a hash of its report.
        fresh: Numbers that were not enrolled, of moments and of sites.
        out: Numbers whose reports were durable, and are no longer in it.
        reported: Reports by arm, less those that are taken out.
        withdrawn: Those that are taken out, by arm.
        enrolled: Devices that join with it: the units of a site.
        also: What else is changed with it.
        waiting: In mode shares, of each report that is used, the leader's half, and the helper's to forward.
        leaving: The same of each report that is taken out.
    """

    used: dict[bytes, bytes] = field(default_factory=dict)
    fresh: set[bytes] = field(default_factory=set)
    out: set[bytes] = field(default_factory=set)
    reported: Counter[str] = field(default_factory=Counter)
    withdrawn: Counter[str] = field(default_factory=Counter)
    enrolled: Counter[str] = field(default_factory=Counter)
    also: list[Change] = field(default_factory=list)
    waiting: dict[bytes, tuple[Half, HelpersHalf]] = field(default_factory=dict)
    leaving: dict[bytes, tuple[Half, HelpersHalf]] = field(default_factory=dict)

    def __copy__(self) -> Self:
        counts = Counter(self.reported), Counter(self.withdrawn), Counter(self.enrolled)
        return type(self)(
            dict(self.used),
            set(self.fresh),
            set(self.out),
            *counts,
            list(self.also),
            dict(self.waiting),
            dict(self.leaving),
        )

    def add(self, number: bytes, arm: str, report: bytes | None) -> None:
        """A message of this number is to be folded: a report, of which there is a hash, or moments."""
        if report is None:
            self.fresh.add(number)
        else:
            self.used[number] = report
            self.reported[arm] += 1

    def take_out(self, number: bytes, arm: str) -> None:
        """The report of this number is withdrawn, be it durable or pending here."""
        self.reported[arm] -= 1
        if self.used.pop(number, None) is None:
            self.out.add(number)
            self.withdrawn[arm] += 1


def hashed(plan: Plan, number: bytes) -> bytes:
    """What is stored of a number; the same number in two trials cannot be told to be the same."""
    return blake2b(number, digest_size=16, key=bytes.fromhex(plan.fingerprint), person=b"foldaway-number").digest()


class Enrolled(NamedTuple):
    """An arm that a device joins, and its mark, which is stored."""

    arm: str
    mark: bytes

    @classmethod
    def of(cls, plan: Plan, number: bytes, arm: str) -> Self:
        """Of a device's number."""
        key = bytes.fromhex(plan.fingerprint)
        return cls(arm, blake2b(number + arm.encode(), digest_size=16, key=key, person=b"foldaway-arm").digest())


def hashed_report(plan: Plan, message: DeviceMessage) -> bytes:
    """What is stored of a report, so that nothing else can be taken out under its number."""
    key = bytes.fromhex(plan.fingerprint)
    return blake2b(encoded(message), digest_size=16, key=key, person=b"foldaway-report").digest()


class Known(NamedTuple):
    """What is known of a number.

    Attributes:
        used: Whether it is used.
        mark: The mark of its arm, if it was enrolled for one.
        report: The hash of its report, if one is counted.
        out: Whether it was withdrawn.
    """

    used: bool
    mark: bytes | None
    report: bytes | None = None
    out: bool = False

    def fits(self, enrolled: Enrolled) -> bool:
        """Whether it may be used for this arm."""
        return self.mark in (None, enrolled.mark)


class DeviceTable(SealedTable):
    """The devices of a database's federated trials."""

    def situation(self, plan: Plan) -> Situation:
        """Where a trial stands now; what waits in a server's memory is for the server to add."""
        with self._engine.begin() as connection:
            return _situation(connection, plan)

    def known(self, name: str, numbers: Iterable[bytes]) -> dict[bytes, Known]:
        """Those of the numbers that are known."""
        with self._engine.begin() as connection:
            return _known(connection, name, numbers)

    def look(self, plan: Plan, numbers: Iterable[bytes]) -> tuple[Stage, dict[bytes, Known]]:
        """The trial's stage, and those of the numbers that are known."""
        with self._engine.begin() as connection:
            # The stage first: what was durable when the trial moved on is then found among the numbers.
            stage = _situation(connection, plan).stage
            return stage, _known(connection, plan.name, numbers)

    def enrol(
        self, plan: Plan, numbers: Mapping[bytes, Enrolled], invitations: Mapping[bytes, bytes]
    ) -> tuple[dict[bytes, Known], set[bytes]]:
        """Register numbers, each with the arm that gains a device, and use up the invitations that a plan asks for.

        Returns:
            Those that were known already, and those that came without a good invitation.

        Raises:
            TrialEnded: The trial takes no more devices.
            Conflict: Another server has registered one of them at this moment; the same call again will find it.
        """
        with self._writing.begin() as connection:
            if _situation(connection, plan, lock=True).stage != "open":
                raise TrialEnded(f"the trial {plan.name} has ended and takes no more devices.")
            known = _known(connection, plan.name, numbers)
            new = {number: enrolled for number, enrolled in numbers.items() if number not in known}
            uninvited: set[bytes] = set()
            if plan.federated is not None and plan.federated.invited:
                # In one order everywhere, so that two servers wait for each other and not crosswise.
                for number in sorted(new, key=lambda number: invitations.get(number, b"")):
                    if not spend(connection, plan.name, invitations.get(number)):
                        uninvited.add(number)
                        del new[number]
            _insert(connection, plan.name, {number: enrolled.mark for number, enrolled in new.items()}, used=False)
            _count(connection, plan.name, Arrivals(enrolled=Counter(enrolled.arm for enrolled in new.values())))
        return known, uninvited

    def withdraw(self, plan: Plan, numbers: Iterable[bytes]) -> None:
        """Mark enrolled numbers whose report is not durable, so that it never will be.

        Raises:
            TrialEnded: The trial takes no more messages.
            Conflict: Another server has just taken one of the reports, or a withdrawal; nothing was changed.
        """
        with self._writing.begin() as connection:
            if _situation(connection, plan, lock=True).stage == "ended":
                raise TrialEnded(f"the trial {plan.name} has ended and takes no more of these messages.")
            _mark(connection, plan.name, numbers, ~NUMBERS.c.used & ~NUMBERS.c.out, out=True)

    def shards_of(self, name: str, numbers: Iterable[bytes]) -> set[str]:
        """The shards that these numbers' reports are in."""
        with self._engine.begin() as connection:
            rows = (
                row
                for some in parts(numbers)
                for row in connection.execute(
                    sa.select(NUMBERS.c.shard).where(NUMBERS.c.trial == name, NUMBERS.c.number.in_(some)).distinct()
                )
            )
            return {row.shard for row in rows if row.shard is not None}

    def commit(
        self,
        plan: Plan,
        shard: str,
        *,
        version: int,
        n: int,
        state: bytes,
        arrivals: Arrivals,
        emptied: Mapping[str, tuple[int, bytes]],
    ) -> int:
        """Make a share durable together with the numbers of the messages in it, and what else there is: all or nothing.

        Other shards that have gone into this one are emptied: given are the version of each, and its new state.

        Returns:
            The new version.

        Raises:
            TrialEnded: The trial takes no more of these messages: moments must be in what is published, and sites,
                as devices, join while it is open.
            Conflict: Another server has taken one of the messages; nothing was changed.
        """
        stages = ("open",) if arrivals.fresh else ("open", "replying")
        with self._seals.sealing(self._engine, "trials") as (connection, sealing):
            if _situation(connection, plan, lock=True).stage not in stages:
                raise TrialEnded(f"the trial {plan.name} has ended and takes no more of these messages.")
            write_arrivals(connection, plan.name, arrivals, shard)
            for other, (was, nothing) in sorted(emptied.items()):
                write_shard(connection, sealing, plan.name, other, version=was, n=0, state=nothing)
                moved = NUMBERS.update().where(NUMBERS.c.trial == plan.name, NUMBERS.c.shard == other)
                connection.execute(moved.values(shard=shard))
            write_shard(connection, sealing, plan.name, shard, version=version, n=n, state=state)
        return version + 1

    def begin_ending(self, plan: Plan, ending: Ending, published: bytes | None, versions: Mapping[str, int]) -> None:
        """Take no more enrolments and moments, and publish; nothing happens if that was done before.

        Raises:
            Conflict: A server has committed since the shards of these versions: compute what is published again.
        """
        with self._seals.sealing(self._engine, "trials") as (connection, sealing):
            read_trial(connection, plan.name, lock="update")
            if _situation(connection, plan).stage != "open":
                return
            if read_versions(connection, plan.name) != dict(versions):
                raise Conflict(f"reports have come in while {plan.name} was ending; end it once more.")
            sealed = None if published is None else sealing.seal(published, ENDINGS.c.published, plan.name)
            connection.execute(ENDINGS.insert().values(trial=plan.name, published=sealed, **ending._asdict()))

    def change_ending(self, name: str, ending: Ending) -> None:
        """Wait for reports longer, or not as long."""
        with self._writing.begin() as connection:
            connection.execute(ENDINGS.update().where(ENDINGS.c.trial == name).values(**ending._asdict()))

    def endings(self) -> list[str]:
        """The trials that are ending."""
        query = sa.select(ENDINGS.c.trial).join(TRIALS).where(TRIALS.c.status == "open").order_by(ENDINGS.c.trial)
        return [row.trial for row in self._rows(query)]

    def published(self, name: str) -> bytes | None:
        """What was published, if anything was."""
        rows = self._rows(sa.select(ENDINGS).where(ENDINGS.c.trial == name, ENDINGS.c.published.is_not(None)))
        return self._seals.opened(rows[0].published, ENDINGS.c.published, name) if rows else None


def _situation(connection: sa.Connection, plan: Plan, *, lock: bool = False) -> Situation:
    # Shared: servers commit side by side, but not while the trial is moved on to its next stage.
    row = read_trial(connection, plan.name, lock="share" if lock else None)
    columns = [ENDINGS.c[field] for field in Ending._fields]
    ending = connection.execute(sa.select(*columns).where(ENDINGS.c.trial == plan.name)).one_or_none()
    stage: Stage = "ended" if row.status == "ended" else "open" if ending is None else "replying"
    counts = connection.execute(sa.select(DEVICES).where(DEVICES.c.trial == plan.name)).all()
    enrolled, reported, withdrawn = (dict.fromkeys(plan.arms, 0) for _ in range(3))
    enrolled |= {count.arm: count.enrolled for count in counts}
    reported |= {count.arm: count.reported for count in counts}
    withdrawn |= {count.arm: count.withdrawn for count in counts}
    sites = {} if plan.unit is None else units_by_site(connection, plan.name)
    devices = Devices(enrolled, reported, sites, withdrawn)
    return Situation(stage, None if ending is None else Ending(*ending), devices, Counter(), time.time())


def _known(connection: sa.Connection, trial: str, numbers: Iterable[bytes]) -> dict[bytes, Known]:
    known: dict[bytes, Known] = {}
    for some in parts(numbers):
        query = sa.select(NUMBERS).where(NUMBERS.c.trial == trial, NUMBERS.c.number.in_(some))
        for row in connection.execute(query):
            mark, report = (None if hash_ is None else bytes(hash_) for hash_ in (row.arm, row.report))
            known[bytes(row.number)] = Known(bool(row.used), mark, report, bool(row.out))
    return known


def write_arrivals(connection: sa.Connection, trial: str, arrivals: Arrivals, shard: str) -> None:
    """Count messages, and mark their numbers as used in this shard, or as withdrawn, each for the first time.

    Raises:
        Conflict: Another server has taken one of them.
    """
    _mark(connection, trial, arrivals.used, ~NUMBERS.c.used & ~NUMBERS.c.out, used=True, shard=shard)
    if arrivals.used:
        rows = [{"in": trial, "of": number, "new": report} for number, report in sorted(arrivals.used.items())]
        connection.execute(_REPORTS, rows)
    _mark(connection, trial, arrivals.out, NUMBERS.c.used & ~NUMBERS.c.out, out=True)
    _insert(connection, trial, dict.fromkeys(arrivals.fresh), used=True)
    _count(connection, trial, arrivals)
    for change in arrivals.also:
        change(connection)


_REPORTS = (
    NUMBERS.update()
    .where(NUMBERS.c.trial == sa.bindparam("in"), NUMBERS.c.number == sa.bindparam("of"))
    .values(report=sa.bindparam("new"))
)


def _mark(
    connection: sa.Connection, trial: str, numbers: Iterable[bytes], of: sa.ColumnElement[bool], **marks: bool | str
) -> None:
    """Mark numbers that are of a kind, each for the first time."""
    # In one order everywhere, so that two servers wait for each other and not crosswise.
    for some in parts(sorted(numbers)):
        change = NUMBERS.update().where(NUMBERS.c.trial == trial, NUMBERS.c.number.in_(some), of)
        if connection.execute(change.values(**marks)).rowcount != len(some):
            raise Conflict("another server has taken one of the same messages; those not yet durable must come again.")


def _insert(connection: sa.Connection, trial: str, numbers: Mapping[bytes, bytes | None], *, used: bool) -> None:
    """Register numbers, each for the first time."""
    for some in parts(sorted(numbers)):
        rows = [{"trial": trial, "number": number, "used": used, "arm": numbers[number]} for number in some]
        if insert_new(connection, NUMBERS, rows) != len(some):
            raise Conflict("another server has taken one of the same messages; those not yet durable must come again.")


def _count(connection: sa.Connection, trial: str, arrivals: Arrivals) -> None:
    counts = {"enrolled": arrivals.enrolled, "reported": arrivals.reported, "withdrawn": arrivals.withdrawn}
    arms = sorted(set[str]().union(*counts.values()))
    insert_new(connection, DEVICES, [{"trial": trial, "arm": arm, **dict.fromkeys(counts, 0)} for arm in arms])
    for arm in arms:
        more = {name: DEVICES.c[name] + count[arm] for name, count in counts.items()}
        connection.execute(DEVICES.update().where(DEVICES.c.trial == trial, DEVICES.c.arm == arm).values(more))
