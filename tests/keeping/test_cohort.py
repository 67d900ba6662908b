"""The laws of the cohort gate, for everyone who asks it: server, consumer, Spark stream, files, devices and sites.

Each user is driven through the same schedule: at certain times, so many records come, or none. What is then on its disk
is what somebody with access to that disk would compare.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from consuming import as_arrow
from foldaway.cli.terminal.consumer import effects_of
from foldaway.engines.spark.stream import _STREAM, _Batches
from foldaway.errors import MessageError, RecordError, StateError, TooEarly
from foldaway.federated.messages import Enrolment, Sums, encoded, new_number, packed
from foldaway.federated.site.site import fold_site
from foldaway.keeping.cohort import Gate, least_growth, too_few_to_publish
from foldaway.keeping.saved import StreamPositions
from foldaway.service.collecting.collector import Answers, Collector, merged
from foldaway.service.collecting.device_collector import DeviceCollector
from foldaway.service.database.shard_table import ShardRow
from foldaway.service.database.store import Store as Database
from foldaway.sources.brokers.broker import Message, Positions
from foldaway.sources.brokers.consumer import Consumer, ConsumerOptions
from foldaway.sources.brokers.stream_file import StreamFile, StreamState, read
from foldaway.sources.formats.body import Decoded
from foldaway.sources.runs.backlog import Backlog
from foldaway.sources.runs.shares import ReadOptions
from plans import SMALL, replaced
from stores import VAULT

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")

PLAN = fa.Plan(**SMALL)
ARMS = tuple(PLAN.arms)
MAX_WAIT = 5.0


class Step(NamedTuple):
    """After so many seconds, so many records."""

    wait: float
    records: int


class Run(NamedTuple):
    """What a user did: the records in each state that it wrote, one after the other, and those that it left out."""

    states: list[int]
    left_out: int


Values = Callable[[random.Random], float]

VALUES: dict[str, Values] = {
    "all the same": lambda _: 0.0,
    "as they come": lambda rng: rng.gauss(0, 1),
    "one very large": lambda rng: 1e12 if rng.random() < 0.1 else rng.random(),
}


def rows_of(count: int, values: Values, rng: random.Random) -> pa.Table:
    """So many records, in both arms by turns."""
    y = pa.array([values(rng) for _ in range(count)], pa.float64())
    return pa.table({"group": pa.array([ARMS[i % 2] for i in range(count)], pa.string()), "y": y})


class User(ABC):
    """Someone who asks the gate."""

    timed = True
    """Whether `max_wait` is for it."""

    federated: str | None = None

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder

    @abstractmethod
    def take(self, records: pa.Table) -> None:
        """Records have come; with none, a look at the clock."""

    @abstractmethod
    def written(self) -> int:
        """The records in the state on the disk."""

    @abstractmethod
    def end(self) -> int:
        """The end; how many records were left out."""

    def run(self, steps: Sequence[Step], values: Values, clock: list[float]) -> Run:
        rng = random.Random(1)
        states = [0]
        for step in steps:
            clock[0] += step.wait
            self.take(rows_of(step.records, values, rng))
            states.append(self.written())
        left_out = self.end()
        states.append(self.written())
        return Run([after for before, after in pairwise(states) if after != before], left_out)


class Server(User):
    """The server's collector, with its database."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.database = Database.open(str(folder), VAULT)
        self.database.create_trial(plan, None)
        self.collector = Collector(self.database, plan.name, "main")
        self.sequence = 0

    def take(self, records: pa.Table) -> None:
        if records.num_rows:
            self.sequence += 1
            self.collector.receive(Decoded(records), "p", self.sequence)
        else:
            self.collector.commit_if_due()

    def written(self) -> int:
        return merged(self.plan, self.database.shards.all(self.plan.name)).n

    def end(self) -> int:
        return self.collector.finish()


class Devices(User):
    """The collector of devices' reports: a record is a device of its own."""

    federated = "delta"

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.database = Database.open(str(folder), VAULT)
        self.database.create_trial(plan, None)
        self.collector = DeviceCollector(self.database, plan, "main")

    def take(self, records: pa.Table) -> None:
        rows = [(new_number(), row["group"], row["y"]) for row in records.to_pylist()]
        if rows:
            self.collector.receive("enrolments", [encoded(Enrolment(number, arm)) for number, arm, _ in rows])
            self.collector.receive("reports", [encoded(Sums(id, arm, 1, packed(np.array([y])))) for id, arm, y in rows])
        else:
            self.collector.commit_if_due()

    def written(self) -> int:
        return sum(row.n for row in self.database.shards.all(self.plan.name))

    def end(self) -> int:
        return self.collector.finish()


class Listed:
    """A stream of which the test has the messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.read = 0

    def connect(self, positions: Positions) -> Positions:
        return positions

    def identity(self) -> str:
        return ""

    def pull(self, most: int, seconds: float) -> Sequence[Message]:
        pulled = self.messages[self.read : self.read + most]
        self.read += len(pulled)
        return pulled

    def acknowledge(self, positions: Positions, messages: Sequence[Message]) -> None: ...

    def delete(self, positions: Positions) -> bool:
        return True

    def lag(self, positions: Positions) -> int:
        return len(self.messages) - self.read

    def close(self) -> None: ...


class Stream(User):
    """The consumer of a broker's stream, with its store."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.broker = Listed()
        options = ConsumerOptions(rest=0.0, wait=0.0, bytes_at_once=2**30)
        self.consumer = Consumer(self.broker, "stream", plan, StreamFile(folder), options=options)

    def take(self, records: pa.Table) -> None:
        if records.num_rows:
            self.broker.messages.append(Message("", (len(self.broker.messages) + 1,), as_arrow(records)))
        self.consumer._step()

    def written(self) -> int:
        return stored_in(self.folder, self.plan)

    def end(self) -> int:
        self.consumer._close()
        return self.consumer.progress.left_out


class Micro(User):
    """A Spark stream's driver: what it does with micro-batches that executors have folded."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.batches = _Batches(
            StreamFile(folder), StreamState(StreamPositions(_STREAM)), fa.Trial(plan), None, most_pending=1_000
        )
        self.number = 0

    def take(self, records: pa.Table) -> None:
        folded = fa.Trial(self.plan)
        folded.fold(records)
        self.batches.take(folded, "query", self.number)
        self.number += 1

    def written(self) -> int:
        return stored_in(self.folder, self.plan)

    def end(self) -> int:
        self.batches.close()
        stored = read(self.folder)
        assert stored is not None
        return stored.reached.left_out


def stored_in(folder: Path, plan: fa.Plan) -> int:
    stored = read(folder)
    return 0 if stored is None else stored.of(plan).n


class Watched(Backlog):
    """Looks at the saved file after each write."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.states: list[int] = []
        super().__init__(*arguments, **options)

    def _write(self) -> None:
        super()._write()
        self.states.append(fa.Trial.load(self.save).n)


class Files(User):
    """A run over files, one for each step, each so large that it is a share of its own."""

    timed = False

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        folder.mkdir()
        self.count = 0
        self.states: list[int] = []

    def take(self, records: pa.Table) -> None:
        lines = "".join(f"{row['group']},{row['y']},\n" for row in records.to_pylist())
        padding = f"{'x' * (30_000 - len(lines))}\n"
        (self.folder / f"{self.count:03d}.csv").write_text("group,y," + padding + lines)
        self.count += 1

    def written(self) -> int:
        return self.states[-1] if self.states else 0

    def end(self) -> int:
        with Watched(self.plan, self.folder / "saved") as backlog:
            self.states = backlog.states
            try:
                return backlog.fold(backlog.find([str(self.folder / "*.csv")]), ReadOptions()).waiting_records
            except StateError:
                assert not self.states
                return backlog._gate.pending

    def run(self, steps: Sequence[Step], values: Values, clock: list[float]) -> Run:
        left_out = super().run(steps, values, clock).left_out
        return Run([after for before, after in pairwise([0, *self.states]) if after != before], left_out)


USERS: list[type[User]] = [Server, Devices, Stream, Micro, Files]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def schedule(seed: int) -> tuple[dict[str, Any], list[Step]]:
    """A plan's settings, and batches that are mostly smaller than a cohort, some none at all, some larger."""
    rng = random.Random(seed)
    cohort = rng.choice([1, 3, 10, 25])
    settings = {
        "cohort": cohort,
        "max_wait": rng.choice([None, MAX_WAIT]),
        "remainder": rng.choice(["leave_out", "include"]),
    }
    waits, counts = (0.0, 1.0, 2.0, MAX_WAIT, 50.0), (0, 1, 1, 2, cohort - 1, cohort, 3 * cohort)
    return settings, [Step(rng.choice(waits), rng.choice(counts)) for _ in range(rng.randint(3, 12))] + [Step(0.0, 1)]


def lawful(settings: dict[str, Any], steps: Sequence[Step], *, timed: bool) -> Run:
    """What the promise asks for, said once more and differently: by looking through all of the past at each step."""
    now, taken, states = 0.0, [], [0]
    for step in steps:
        now += step.wait
        taken += [now] * step.records  # when each record came
        waiting = taken[states[-1] :]
        patience = settings["max_wait"] if timed else None
        too_long = patience is not None and any(now - came >= patience for came in waiting)
        if len(waiting) >= settings["cohort"] or too_long:
            states.append(len(taken))
    rest = len(taken) - states[-1]
    if rest and settings["remainder"] == "include":
        return Run([*states[1:], len(taken)], 0)
    return Run(states[1:], rest)


def run(user: type[User], seed: int, values: str, folder: Path, clock: list[float], **others: Any) -> Run:
    settings, steps = schedule(seed)
    plan = replaced(PLAN, **{**settings, "federated": user.federated, **others})
    return user(plan, folder).run(steps, VALUES[values], clock)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("seed", range(12))
def test_what_is_written_and_when_is_what_the_promise_asks_for(
    user: type[User], seed: int, tmp_path: Path, clock: list[float]
) -> None:
    """Also that `max_wait` counts from the first pending record, and what becomes of a remainder."""
    settings, steps = schedule(seed)
    found = run(user, seed, "as they come", tmp_path / "user", clock)
    assert found == lawful(settings, steps, timed=user.timed)
    assert found.left_out + (found.states or [0])[-1] == sum(step.records for step in steps)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("seed", range(12, 18))
def test_two_states_are_a_cohort_apart_however_records_are_batched(
    user: type[User], seed: int, tmp_path: Path, clock: list[float]
) -> None:
    settings, _ = schedule(seed)
    found = run(user, seed, "as they come", tmp_path / "user", clock, max_wait=None, remainder="leave_out")
    assert all(after - before >= settings["cohort"] for before, after in pairwise([0, *found.states]))
    assert found.left_out < settings["cohort"]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("seed", range(18, 21))
def test_nothing_depends_on_values(user: type[User], seed: int, tmp_path: Path, clock: list[float]) -> None:
    runs = [run(user, seed, values, tmp_path / str(i), clock) for i, values in enumerate(VALUES)]
    assert runs[0] == runs[1] == runs[2]


# Whoever waits from the last write, and not from the first pending record, writes too early.


@pytest.mark.parametrize("user", [user for user in USERS if user.timed])
def test_a_first_record_after_a_long_silence_waits_like_any_other(
    user: type[User], tmp_path: Path, clock: list[float]
) -> None:
    plan = replaced(PLAN, federated=user.federated, cohort=10, max_wait=MAX_WAIT, remainder="leave_out")
    asks = user(plan, tmp_path / "user")
    steps = [Step(0, 10), Step(1_000.0, 1), Step(MAX_WAIT - 1, 1), Step(1, 0)]
    assert asks.run(steps[:3], VALUES["as they come"], clock) == Run([10], 2)
    again = user(plan, tmp_path / "again")
    assert again.run(steps, VALUES["as they come"], clock) == Run([10, 12], 0)


# What a site sends, and what a coordinator takes from one: each arm that has units has a cohort of them.


@pytest.mark.parametrize("seed", range(10))
def test_tallies_of_a_site_are_of_a_cohort_in_every_arm_that_has_units(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    cohort = rng.choice([1, 4, 9])
    units = {arm: rng.choice([0, 1, cohort - 1, cohort, cohort + 3]) for arm in ARMS}
    plan = replaced(PLAN, unit="unit", complete_units=True, cohort=cohort, federated="one-message")
    people = [(arm, f"{arm}{i}") for arm, count in units.items() for i in range(count)]
    lines = [f"{arm},{unit},{rng.random()}\n" for arm, unit in people for _ in range(rng.randint(1, 30))]
    (tmp_path / "site.csv").write_text("group,unit,y\n" + "".join(lines))
    allowed = any(units.values()) and not any(0 < count < cohort for count in units.values())

    state = fa.Trial(plan)
    if people:
        state = fa.fold_files(str(tmp_path / "site.csv"), plan)
    database = Database.open(str(tmp_path / "database"), VAULT)
    database.create_trial(plan, None)
    collector = DeviceCollector(database, plan, "main")
    if allowed:
        assert fold_site(plan, [str(tmp_path / "site.csv")]).n == len(lines)
        assert collector.receive_site(new_number(), state.dumps()).durable
    else:
        with pytest.raises(RecordError):
            fold_site(plan, [str(tmp_path / "site.csv")])
        with pytest.raises(MessageError):
            collector.receive_site(new_number(), state.dumps())
    assert sum(row.n for row in database.shards.all(plan.name)) == (len(lines) if allowed else 0)


# Answers.


@pytest.mark.parametrize("counts", [(0, 0), (4, 5), (5, 4), (5, 5), (0, 50), (50, 6)])
def test_there_is_an_answer_when_every_arm_has_enough_and_not_before(counts: tuple[int, int]) -> None:
    plan = replaced(PLAN, cohort=1, smallest_cell=5)
    trial = fa.Trial(plan)
    groups = [arm for arm, count in zip(ARMS, counts, strict=True) for _ in range(count)]
    if groups:
        trial.fold({"group": groups, "y": np.arange(float(len(groups)))})
    row = ShardRow("main", 1, trial.n, 0, trial.dumps())
    ways: list[Callable[[], Any]] = [lambda: Answers().of(plan, [row]), lambda: effects_of(trial)]
    for answer in ways:
        if min(counts) >= 5:
            answer()
        else:
            with pytest.raises(TooEarly, match="every arm needs 5 durable records first"):
                answer()


def test_what_is_published_to_devices_needs_both_a_cohort_and_the_minimum() -> None:
    counts = {"a": 7, "b": 12}
    for cohort, least, few in ((7, 7, {}), (8, 1, {"a": 7}), (1, 8, {"a": 7}), (20, 1, counts)):
        assert too_few_to_publish(fa.Privacy(cohort=cohort, smallest_cell=least), counts) == few


def test_what_is_shown_grows_by_a_cohort_and_by_a_share() -> None:
    privacy = fa.Privacy(cohort=10, max_wait=1.0)
    assert [least_growth(privacy, shown, steps=500) for shown in (0, 4_999, 5_500, 50_000)] == [10, 10, 11, 100]


def test_a_batch_that_is_not_taken_leaves_no_trace() -> None:
    gate = Gate(fa.Privacy(cohort=10, max_wait=MAX_WAIT))
    before = gate.copy()
    gate.take(9, now=0.0)
    assert before.pending == 0
    gate = before
    gate.take(1, now=3.0)
    assert (gate.pending, gate.seconds_left(now=MAX_WAIT), gate.may_write(now=MAX_WAIT)) == (1, 3.0, False)
