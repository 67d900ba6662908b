"""Random schedules of everything that can go wrong between devices and the two servers of mode shares, in one process.

Both servers are real, on real stores, without HTTP. A crash throws away what a server has in memory: the leader's may
come while the helper adds a batch up, or publishes. Requests between them are lost, delayed, repeated and overtaken,
and so are answers and devices' messages. Devices are the real ones, killed at any change of what they keep.

Device i has one record, 2^i. So the sum of all says who is in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import foldaway as fa
from devices import state_of
from foldaway.errors import FoldawayError, IngestError, Unavailable
from foldaway.federated.messages import PublishedSums
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.summands.publishing import joined, publish
from foldaway.federated.summands.summands import Summands
from foldaway.federated.summands.words import packed
from foldaway.service.collecting.answers import Answer
from foldaway.service.collecting.device_trials import PAIRED
from foldaway.service.database.device_table import hashed
from foldaway.service.database.tables import NUMBERS
from foldaway_device import ServerError, StateError
from foldaway_device.floats import from_base64
from foldaway_device.state import MemoryStore
from in_process import DirectLink
from mishaps import Killed, Mishaps, Seen
from two_servers import GROUPS, OneServer, TwoServers, device_of, shared

DEVICES = 2 * GROUPS


class LeaderDied(BaseException):
    """The leader's process has been killed while it waited for the helper."""


@dataclass
class PairTale(Seen):
    """What became of the devices of some schedules; those are counted that are in both servers' sums, once.

    Attributes:
        published: Schedules whose trials had effects.
    """

    published: int = 0


def plan_of(cohort: int) -> fa.Plan:
    """Sixteen groups, of which the devices fill eight once these are joined."""
    largest = 2.0**DEVICES
    return shared(
        outcomes=[fa.Mean("y", bounds=(0, largest))],
        cohort=cohort,
        smallest_cell=1,
        expected_units=DEVICES,
        device_records=1,
    )


class PairSchedule(Mishaps[PairTale]):
    """One trial in which things go wrong."""

    def __init__(self, folder: Path, seed: int) -> None:
        chance, stores = random.Random(seed), [MemoryStore() for _ in range(DEVICES)]
        plan = plan_of(chance.choice([1, 1, 2, 4]))
        super().__init__(chance, plan, stores, PairTale(schedules=1, devices=DEVICES), kills=0.01)
        self.both = TwoServers(folder, self.plan, self._between)
        self._asked: list[Callable[[], Any]] = []
        self._sent: list[tuple[str, bytes]] = []
        self._numbers: list[bytes] = []
        self._leaving = set[int]()
        for i, store in enumerate(stores):
            device = device_of(self.plan, "ab"[i % 2], i // 2 % GROUPS, store=store)
            self._numbers.append(hashed(self.plan, from_base64(state_of(device).number)))

    # What goes wrong.

    def _between(self, ask: Callable[[], tuple[int, bytes, str]]) -> tuple[int, bytes, str]:
        """The network from the leader to the helper."""
        self._asked.append(ask)  # it may come again, or only then, at any time
        if self._happens("request between servers lost or late", 0.15):
            raise Unavailable("the helper cannot be reached.")
        if self._happens("helper crashed before a request", 0.05):
            self.both.helper.crash()
        answer = ask()
        if self._happens("helper crashed after a request", 0.05):
            self.both.helper.crash()
        if self._happens("leader crashed while the helper had answered", 0.15):
            raise LeaderDied
        if self._happens("helper's answer lost", 0.15):
            raise Unavailable("the helper cannot be reached.")
        return answer

    def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
        """The network from a device to the leader."""
        if body is not None:
            self._sent.append((path, body))
            if self._happens("message lost or late", 0.05):
                raise ServerError("the server cannot be reached (ReadTimeout).")
        answer = self._delivered(method, path, body)
        if self._happens("leader crashed after a message", 0.02):
            self.both.leader.crash()
        if self._happens("answer lost", 0.05):
            raise ServerError("the server cannot be reached (ReadError).")
        return answer

    def _delivered(self, method: str, path: str, body: bytes | None) -> bytes:
        try:
            return DirectLink(self.both.leader.trials, self.plan).ask(method, path, body, until=0.0)
        except LeaderDied:
            self.both.leader.crash()
            raise ServerError("the server cannot be reached (RemoteProtocolError).") from None

    def _overtaken(self) -> None:
        """An old message, or an old request between the servers, comes once more."""
        if self._sent and self._chance.random() < 0.5:
            self.tale.events["old message came again"] += 1
            with suppress(ServerError):
                self._delivered("POST", *self._chance.choice(self._sent))
        elif self._asked:
            self.tale.events["old request between servers came again"] += 1
            self._chance.choice(self._asked)()

    # What devices do.

    def _live(self, i: int) -> None:
        try:
            device = self._device(i)
            if device.status.state in ("new", "enrolled") and not device.status.records:
                device.record({"y": 2.0**i})
            if i in self._leaving:
                device.withdraw()
            else:
                device.report(keep_report=True)
                if self._happens("withdrawn", 0.03):
                    self._leaving.add(i)
        except Killed:
            self._devices[i] = None
        except ServerError as refused:
            self._require(refused.status in (None, 409, 503), str(refused))

    def _rough(self, steps: int) -> None:
        for _ in range(steps):
            if self._chance.random() < 0.1:
                self._overtaken()
            else:
                self._live(self._chance.randrange(DEVICES))

    def run(self) -> PairTale:
        """Run it to its end, and judge."""
        self._rough(self._chance.randint(DEVICES, 4 * DEVICES))
        if self._chance.random() < 0.7:  # those that are missing come
            for i in 5 * list(range(DEVICES)):
                self._live(i)
        numbers = self._used(self.both.leader)
        try:
            settled, total = self._settled()
            self._require(settled == numbers, "the servers have not added up the same reports")
            self._require(total == self._sum(numbers), "a report is lost, or counted twice")
        except FoldawayError as lost:
            self._require(False, str(lost))
        self._end()
        for _ in range(10):
            self._overtaken()
        self._calm = True
        self._judge()
        return self.tale

    def _end(self) -> None:
        for _ in range(100):
            if self.both.leader.trials.look(self.plan).stage == "ended":
                return
            given_up = self._happens("end without effects", 0.15)
            with self._seeing_the_end():
                try:
                    self.both.end(deadline=0.0, without_effects=given_up)
                except LeaderDied:
                    self.both.leader.crash()
                except Unavailable:
                    pass
                except IngestError:  # too few stand behind it
                    self._calm = self._calm or self._chance.random() < 0.3
                    with suppress(LeaderDied, IngestError, Unavailable):
                        self.both.end(deadline=0.0, without_effects=True)
        self._require(False, "the trial does not end")

    @contextmanager
    def _seeing_the_end(self) -> Iterator[None]:
        """Note what the leader reads, before that is deleted."""
        answers = self.both.leader.answers
        end = answers.end

        def noting(answer: Answer, *rest: Any) -> Any:
            self._split = self.both.leader.trials.whole(self.plan)[0].split
            return end(answer, *rest)

        answers.end = noting  # type: ignore[assignment,method-assign]
        yield
        answers.end = end  # type: ignore[method-assign]

    # What came of it.

    def _settled(self) -> tuple[set[bytes], int]:
        """Whose reports the helper takes for added up once it hears from the leader, and what both sums come to."""
        leader = self.both.leader.trials.whole(self.plan)[0].split
        row = self.both.helper.store.shards.one(self.plan.name, PAIRED)
        helper = ServerShare.of(self.plan, row.state).split
        numbers, settled = self._used(self.both.helper), helper.follow(leader.batch + 1, leader.digest)
        if settled is not None:
            numbers = (numbers | set(settled.numbers)) - set(settled.out)
        ours, theirs = _all(self.plan, leader), _all(self.plan, helper)
        self._require((leader.reports == helper.reports).all(), "the servers have other counts of reports")
        return numbers, _total(self.plan, ours, theirs)

    def _used(self, server: OneServer) -> set[bytes]:
        with server.store._trials.begin() as connection:
            rows = connection.execute(NUMBERS.select().where(NUMBERS.c.used, ~NUMBERS.c.out)).all()
        return {bytes(row.number) for row in rows}

    def _sum(self, numbers: set[bytes]) -> int:
        return sum(2**i for i, number in enumerate(self._numbers) if number in numbers)

    def _judge(self) -> None:
        final = self.both.leader.store.trial(self.plan.name).final
        if final is None:
            return
        answer, counted = msgspec.json.decode(final, type=Answer), self._used(self.both.leader)
        self.tale.counted += len(counted)
        for i, number in enumerate(self._numbers):
            with suppress(StateError):
                state = self._device(i).report(keep_report=True).state
                right = state == "withdrawn too late" or (state == "counted") == (number in counted)
                self._require(right, f"a device is {state}, wrongly")
        if bytes(answer.effects) != b"null":
            self.tale.published += 1
            said = self.both.helper.store.trial(self.plan.name).final
            assert said is not None
            theirs = msgspec.json.decode(said, type=Answer).summands
            assert theirs is not None
            self._require(self._used(self.both.helper) == counted, "the servers have other reports at the end")
            total = _total(self.plan, publish(self.plan, self._split), theirs)
            self._require(total == self._sum(counted), "at the end, a report is lost or counted twice")


def _all(plan: fa.Plan, split: Summands) -> PublishedSums:
    """What a server has, whoever stands behind it."""
    return PublishedSums(split.digest, plan.groups, packed(split.words))


def _total(plan: fa.Plan, ours: PublishedSums, theirs: PublishedSums) -> int:
    """The sum of all records."""
    tallies: Any = joined(plan, ours, theirs)[0].tallies
    return round(float(tallies.sums.totals(0).sum()))
