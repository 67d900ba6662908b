"""The laws of the gate, for everyone who asks it: server, consumer, Spark stream, files, devices and sites.

Each user is driven through the same schedule of batches, of people who may come back. What is then on its disk is what
somebody with access to that disk would compare; what it tells is what somebody without would.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from batches import receive
from bodies import as_arrow
from foldaway.account.account import Account
from foldaway.account.stream_file import STATE, StreamFile
from foldaway.engines.spark.stream import _STREAM, StreamFold
from foldaway.errors import MessageError, RecordError, StateError, TooEarly
from foldaway.federated.messages import DeviceSums, Enrolment, encoded, new_number, packed
from foldaway.federated.site.site import fold_site
from foldaway.keeping.cohort import Newcomers, too_few_to_publish
from foldaway.service.collecting.device_inbox import DeviceInbox
from foldaway.service.collecting.record_inbox import RecordInbox
from foldaway.service.collecting.record_store import merged
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store as Database
from foldaway.sources.brokers.broker import Message, Positions
from foldaway.sources.brokers.consumer import Consumer, ConsumerOptions
from foldaway.sources.formats.body import Decoded, Limits
from foldaway.sources.formats.files import ReadOptions
from foldaway.sources.runs.backlog import Backlog
from plans import SMALL, replaced
from stores import VAULT

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")

PLAN = fa.Plan(**SMALL)
ARMS = tuple(PLAN.arms)
KINDS: dict[str, dict[str, Any]] = {
    "nobody is known": {},
    "one record each": {"unit": "unit", "records_per_unit": "one"},
    "they come back": {"unit": "unit"},
}

Batch = Sequence[int]
"""Whose records come, one after the other."""


class Run(NamedTuple):
    """What a user did: the records in each state that it wrote, one after the other, and those that wait."""

    states: list[int]
    pending: int


Values = Callable[[random.Random], float]

VALUES: dict[str, Values] = {
    "all the same": lambda _: 0.0,
    "as they come": lambda rng: rng.gauss(0, 1),
    "one very large": lambda rng: 1e12 if rng.random() < 0.1 else rng.random(),
}


def rows_of(people: Batch, values: Values, rng: random.Random) -> pa.Table:
    """A record of each of these."""
    return pa.table(
        {
            "group": pa.array([ARMS[person % 2] for person in people], pa.string()),
            "y": pa.array([values(rng) for _ in people], pa.float64()),
            "unit": pa.array([f"u{person}" for person in people], pa.string()),
        }
    )


class User(ABC):
    """Someone who asks the gate whether to write."""

    federated: str | None = None

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder

    @abstractmethod
    def take(self, records: pa.Table) -> None:
        """Records have come, or none."""

    @abstractmethod
    def written(self) -> int:
        """The records in the state on the disk."""

    @abstractmethod
    def pending(self) -> int:
        """The records that wait for a cohort."""

    def run(self, batches: Sequence[Batch], values: Values) -> Run:
        rng = random.Random(1)
        states = [0]
        for people in batches:
            self.take(rows_of(people, values, rng))
            states.append(self.written())
        return Run([after for before, after in pairwise(states) if after != before], self.pending())


class Server(User):
    """The server's collector, with its database."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.database = Database.open(str(folder), VAULT)
        self.database.create_trial(plan, bytes(16) if plan.keyed else None)
        self.collector = RecordInbox(self.database, plan.name, "main")
        self.sequence = 0

    def take(self, records: pa.Table) -> None:
        if records.num_rows:
            self.sequence += 1
            receive(self.collector, Decoded(records), "p", self.sequence)
        else:
            self.collector.commit_if_due()

    def written(self) -> int:
        return merged(self.plan, self.database.shards.all(self.plan.name)).n

    def pending(self) -> int:
        return self.collector.pending


class Devices(User):
    """The collector of devices' reports: a record is a device of its own."""

    federated = "delta"

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.database = Database.open(str(folder), VAULT)
        self.database.create_trial(plan, None)
        self.collector = DeviceInbox(self.database, plan, "main")

    def take(self, records: pa.Table) -> None:
        rows = [(new_number(), row["group"], row["y"]) for row in records.to_pylist()]
        if rows:
            self.collector.receive("enrolments", [encoded(Enrolment(number, arm)) for number, arm, _ in rows])
            self.collector.receive(
                "reports", [encoded(DeviceSums(id, arm, 1, packed(np.array([y])))) for id, arm, y in rows]
            )
        else:
            self.collector.commit_if_due()

    def written(self) -> int:
        return sum(row.n for row in self.database.shards.all(self.plan.name))

    def pending(self) -> int:
        return self.collector.pending


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
        self.consumer = Consumer(self.broker, StreamFile(folder, plan, "stream"), options=options)

    def take(self, records: pa.Table) -> None:
        if records.num_rows:
            self.broker.messages.append(Message("", (len(self.broker.messages) + 1,), as_arrow(records)))
        self.consumer._step()

    def written(self) -> int:
        return stored_in(self.folder, self.plan)

    def pending(self) -> int:
        return self.consumer.progress.pending


class Micro(User):
    """A Spark stream's driver: what it does with micro-batches that executors have folded."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        store = StreamFile(folder, plan, _STREAM)
        self.batches = StreamFold(store, Account(store), None, most_pending=1_000)
        self.number = 0

    def take(self, records: pa.Table) -> None:
        folded = fa.Trial(self.plan)
        folded.fold(records)
        self.batches._take(fa.Trial.loads(folded.exchanged(newcomers=True)), "query", self.number)
        self.number += 1

    def written(self) -> int:
        return stored_in(self.folder, self.plan)

    def pending(self) -> int:
        return self.batches.pending


def stored_in(folder: Path, plan: fa.Plan) -> int:
    return fa.Trial.load(folder / STATE, plan).n if (folder / STATE).exists() else 0


class Watched(Backlog):
    """Looks at the saved file after each write."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.states: list[int] = []
        super().__init__(*arguments, **options)

    def _commit(self, *files: Any) -> None:
        super()._commit(*files)
        self.states.append(fa.Trial.load(self.save).n)


class Files(User):
    """A run over files, one for each batch, each so large that it is a share of its own."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        folder.mkdir()
        self.count = self.records = 0
        self.states: list[int] = []

    def take(self, records: pa.Table) -> None:
        lines = "".join(f"{row['group']},{row['y']},{row['unit']},\n" for row in records.to_pylist())
        padding = f"{'x' * (30_000 - len(lines))}\n"
        (self.folder / f"{self.count:03d}.csv").write_text("group,y,unit," + padding + lines)
        self.count += 1
        self.records += records.num_rows

    def written(self) -> int:
        return 0  # until the run

    def pending(self) -> int:
        backlog = Watched(self.plan, self.folder / "saved")
        self.states = backlog.states
        with backlog:
            try:
                return backlog.fold(backlog.find([str(self.folder / "*.csv")]), ReadOptions()).waiting_records
            except StateError:
                assert not self.states
                return self.records

    def run(self, batches: Sequence[Batch], values: Values) -> Run:
        pending = super().run(batches, values).pending
        return Run([after for before, after in pairwise([0, *self.states]) if after != before], pending)


USERS: list[type[User]] = [Server, Devices, Stream, Micro, Files]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time stands still, since no law is about it."""
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def schedule(seed: int, kind: str) -> tuple[int, list[Batch]]:
    """A cohort, and batches that are mostly smaller than that, some none at all, some larger."""
    rng = random.Random(seed)
    cohort = rng.choice([1, 3, 10, 25])
    sizes = [rng.choice((0, 1, 1, 2, cohort - 1, cohort, 3 * cohort)) for _ in range(rng.randint(3, 12))] + [1]
    if kind != "they come back":
        people = iter(range(sum(sizes)))
        return cohort, [[next(people) for _ in range(size)] for size in sizes]
    # Half of all records are of one person: however many these are, they are no cohort.
    return cohort, [[rng.choice((0, rng.randrange(3 * cohort))) for _ in range(size)] for size in sizes]


def lawful(cohort: int, batches: Sequence[Batch]) -> Run:
    """What the promise asks for: as soon as a cohort of different people has come, and not before."""
    states, total, waiting = [], 0, list[int]()
    for people in batches:
        total += len(people)
        waiting += people
        if len(set(waiting)) >= cohort:
            states.append(total)
            waiting = []
    return Run(states, len(waiting))


def kinds_for(user: type[User]) -> list[str]:
    return list(KINDS) if user.federated is None else ["nobody is known"]


def run(user: type[User], seed: int, kind: str, values: str, folder: Path) -> Run:
    cohort, batches = schedule(seed, kind)
    plan = replaced(PLAN, **KINDS[kind], cohort=cohort, federated=user.federated)
    return user(plan, folder).run(batches, VALUES[values])


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("user", "kind"), [(user, kind) for user in USERS for kind in kinds_for(user)])
def test_a_state_is_written_when_a_cohort_of_different_units_has_come_and_not_before(
    user: type[User], kind: str, tmp_path: Path
) -> None:
    for seed in range(3):
        cohort, batches = schedule(seed, kind)
        found = run(user, seed, kind, "as they come", tmp_path / str(seed))
        assert found == lawful(cohort, batches), seed
        assert found.pending + max(found.states, default=0) == sum(map(len, batches))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("user", USERS)
def test_no_write_depends_on_values(user: type[User], tmp_path: Path) -> None:
    kind = kinds_for(user)[-1]
    runs = [run(user, 18, kind, values, tmp_path / str(i)) for i, values in enumerate(VALUES)]
    assert runs[0].states
    assert runs[0] == runs[1] == runs[2]


def test_a_run_that_folds_twice_waits_for_a_second_cohort(tmp_path: Path) -> None:
    """Whoever came before a write is not new after it."""
    plan = replaced(PLAN, unit="unit", cohort=10)
    with Backlog(plan, tmp_path / "saved") as backlog:
        for name, people in (("first", range(10)), ("second", range(5))):
            lines = [f"{ARMS[person % 2]},1.0,u{person}\n" for person in people]
            (tmp_path / f"{name}.csv").write_text("group,y,unit\n" + "".join(lines))
            outcome = backlog.fold([tmp_path / f"{name}.csv"], ReadOptions())
    assert outcome.waiting_records == 5
    assert fa.Trial.load(tmp_path / "saved").n == 10


def test_hashes_in_memory_are_a_cohort_at_most_and_gone_with_the_write(tmp_path: Path) -> None:
    trial = fa.Trial(replaced(PLAN, unit="unit", cohort=20))
    for first in range(0, 5_000, 1_000):
        trial.fold(rows_of(range(first, first + 1_000), VALUES["all the same"], random.Random(1)))
        assert len(trial.newcomers.hashes) == 20
    assert trial.newcomers.records == 5_000
    assert len((trial + trial.copy()).newcomers.hashes) == 20
    with StreamFile(tmp_path, trial.plan, "nats ORDERS") as file:
        account = Account(file)
        account.live = trial
        account.commit()
    assert account.live.newcomers == Newcomers()


def test_who_is_new_is_in_no_state_but_between_workers() -> None:
    trial = fa.Trial(replaced(PLAN, unit="unit"))
    trial.fold(rows_of(range(50), VALUES["all the same"], random.Random(1)))
    assert fa.Trial.loads(trial.exchanged(newcomers=True)).newcomers == trial.newcomers
    for stored in (trial.exchanged(), trial.dumps()):
        assert fa.Trial.loads(stored).newcomers == Newcomers()


# What a site sends, and what a coordinator takes from one: each arm that has units has a cohort of them.


@pytest.mark.parametrize("seed", range(7))
def test_tallies_of_a_site_are_of_a_cohort_in_every_arm_that_has_units(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    cohort = rng.choice([1, 4, 9])
    units = {arm: rng.choice([0, 1, cohort - 1, cohort, cohort + 3]) for arm in ARMS}
    smallest = rng.choice([1, cohort])
    plan = replaced(
        PLAN, unit="unit", records_per_unit="together", cohort=cohort, smallest_cell=smallest, federated="one-message"
    )
    people = [(arm, f"{arm}{i}") for arm, count in units.items() for i in range(count)]
    lines = [f"{arm},{unit},{rng.random()}\n" for arm, unit in people for _ in range(rng.randint(1, 30))]
    (tmp_path / "site.csv").write_text("group,unit,y\n" + "".join(lines))
    allowed = any(units.values()) and not any(0 < count < cohort for count in units.values())

    state = fa.Trial(plan)
    if people:
        state = fa.fold_files(str(tmp_path / "site.csv"), plan)
    database = Database.open(str(tmp_path / "database"), VAULT)
    database.create_trial(plan, None)
    collector = DeviceInbox(database, plan, "main")
    if allowed:
        assert fold_site(plan, [str(tmp_path / "site.csv")]).n == len(lines)
        assert collector.receive_site(new_number(), state.dumps()).durable
    else:
        with pytest.raises(RecordError):
            fold_site(plan, [str(tmp_path / "site.csv")])
        with pytest.raises(MessageError):
            collector.receive_site(new_number(), state.dumps())
    assert sum(row.n for row in database.shards.all(plan.name)) == (len(lines) if allowed else 0)


# What is told.


class Teller(ABC):
    """Someone who tells effects to others."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        self.plan = plan

    @abstractmethod
    def take(self, records: pa.Table) -> None:
        """Records have come."""

    @abstractmethod
    def told(self) -> int:
        """The records behind what somebody is told who asks now; 0 if it is too early."""


class Answering(Teller):
    """The server."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        database = Database.open(str(folder), VAULT)
        database.create_trial(plan, bytes(16) if plan.keyed else None)
        self.service = Service(database, "main", Limits())

    def take(self, records: pa.Table) -> None:
        receive(self.service.records.collector(self.plan.name), Decoded(records), None, None)

    def told(self) -> int:
        with suppress(TooEarly):
            self.service.effects(self.plan.name)
        last = self.service.store.history.last(self.plan.name)
        return 0 if last is None else last.records


class Exporting(Teller):
    """A saved state, of which effects are written for others."""

    def __init__(self, plan: fa.Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        folder.mkdir()
        self.file = folder / "state"
        fa.Trial(plan, key=bytes(16)).save(self.file)

    def take(self, records: pa.Table) -> None:
        trial = fa.Trial.load(self.file, key=bytes(16))
        trial.fold(records)
        trial.save(self.file)

    def told(self) -> int:
        trial = fa.Trial.load(self.file, key=bytes(16))
        with suppress(TooEarly):
            trial.told()
        trial.save(self.file)
        return 0 if trial.chronicle.told is None else trial.chronicle.told.census.total


TELLERS: list[type[Teller]] = [Answering, Exporting]
SMALLEST = 4


def growing(seed: int, kind: str) -> tuple[int, list[Batch]]:
    """A cohort, and batches that are all written at once, of both arms or of one."""
    rng = random.Random(seed)
    cohort, people = rng.choice([3, 10, 25]), count()
    batches: list[Batch] = []
    for _ in range(15):
        size, arms = cohort * rng.choice((1, 2, 5)), rng.choice(((0, 1), (0, 1), (0,), (1,)))
        new = [2 * next(people) + rng.choice(arms) for _ in range(size)]
        again = [new[0]] * rng.choice((0, 50)) if kind == "they come back" else []
        batches.append(new + again)
    return cohort, batches


def told_after(teller: Teller, batches: Sequence[Batch], values: str, clock: list[float]) -> list[int]:
    """After which batches something new was told."""
    rng, told = random.Random(1), [0]
    for people in batches:
        clock[0] += 1_000.0
        teller.take(rows_of(people, VALUES[values], rng))
        told.append(teller.told())
    return [i for i, (before, after) in enumerate(pairwise(told)) if after != before]


def arms_of(batches: Sequence[Batch]) -> Counter[str]:
    """How many different people came, by arm."""
    return Counter(ARMS[person % 2] for person in {person for people in batches for person in people})


def enough(cohort: int, before: Sequence[Batch], since: Sequence[Batch]) -> bool:
    """Whether the promise lets effects be told, if every record is of somebody new."""
    all_in, new = arms_of([*before, *since]), arms_of(since)
    cells = all(all_in[arm] >= SMALLEST and (not new[arm] or new[arm] >= SMALLEST) for arm in ARMS)
    return cells and sum(map(len, since)) >= max(cohort, 0.05 * sum(map(len, before)))


@pytest.mark.parametrize("teller", TELLERS)
def test_effects_are_told_when_the_trial_has_grown_in_every_arm_that_grew_and_not_before(
    teller: type[Teller], tmp_path: Path, clock: list[float]
) -> None:
    for seed in range(2):
        cohort, batches = growing(seed, "nobody is known")
        plan = replaced(PLAN, cohort=cohort, smallest_cell=SMALLEST)
        lawful, last = [], 0
        for i in range(1, len(batches) + 1):
            if enough(cohort, batches[:last], batches[last:i]):
                lawful.append(i - 1)
                last = i
        found = told_after(teller(plan, tmp_path / str(seed)), batches, "as they come", clock)
        assert found == lawful, seed
        assert 0 < len(found) < len(batches)


@pytest.mark.parametrize("teller", TELLERS)
def test_many_records_of_one_unit_bring_no_answer_forward(
    teller: type[Teller], tmp_path: Path, clock: list[float]
) -> None:
    """Units are counted by groups, which are fewer, so that an answer may come later, but never before it is due."""
    cohort, batches = growing(7, "they come back")
    plan = replaced(PLAN, unit="unit", cohort=cohort, smallest_cell=SMALLEST)
    found = told_after(teller(plan, tmp_path / "teller"), batches, "as they come", clock)
    for before, after in pairwise([-1, *found]):
        assert enough(cohort, batches[: before + 1], batches[before + 1 : after + 1])
    assert found
    whale = [[2 * i for i in range(cohort)], [*[1] * 1_000]]
    assert not told_after(teller(plan, tmp_path / "whale"), whale, "as they come", clock)


@pytest.mark.parametrize("teller", TELLERS)
def test_no_answer_depends_on_values(teller: type[Teller], tmp_path: Path, clock: list[float]) -> None:
    cohort, batches = growing(11, "they come back")
    plan = replaced(PLAN, unit="unit", cohort=cohort, smallest_cell=SMALLEST)
    runs = [told_after(teller(plan, tmp_path / values), batches, values, clock) for values in VALUES]
    assert runs[0]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("counts", [(0, 0), (4, 5), (5, 4), (5, 5), (0, 50), (50, 6)])
def test_others_are_told_effects_when_every_arm_has_enough_and_not_before(counts: tuple[int, int]) -> None:
    trial = fa.Trial(replaced(PLAN, cohort=1, smallest_cell=5))
    groups = [arm for arm, count in zip(ARMS, counts, strict=True) for _ in range(count)]
    if groups:
        trial.fold({"group": groups, "y": np.arange(float(len(groups)))})
    if min(counts) >= 5:
        trial.told()
    else:
        with pytest.raises(TooEarly, match="5 units in every arm"):
            trial.told()


def test_what_is_published_to_devices_needs_both_a_cohort_and_the_minimum() -> None:
    counts = {"a": 7, "b": 12}
    for cohort, least, few in ((7, 7, {}), (8, 1, {"a": 7}), (1, 8, {"a": 7}), (20, 1, counts)):
        assert too_few_to_publish(fa.Privacy(cohort=cohort, smallest_cell=least), counts) == few
