"""Streams of real brokers folded exactly once: laws first, then what can go wrong."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from bodies import as_json
from brokers import KINDS, Nats, Redis, Sent, Server, require
from consuming import (
    KEY,
    Remembering,
    Stored,
    assert_same,
    consume,
    fresh_name,
    messages,
    one_pass,
    people,
    plan_of,
    sizes_of,
    stored_in,
)
from foldaway.account.stream_file import StreamFile
from foldaway.effects.door import TOLD
from foldaway.errors import EndedError, SourceError, StateError
from foldaway.keeping.saved import StreamPositions
from foldaway.sources.brokers.broker import Broker, Message, parse
from foldaway.sources.brokers.consumer import ConsumerProgress, FaultyMessage
from foldaway.sources.brokers.nats import NatsStream
from foldaway.tallies import arms_of


def prepared(server: Server, n: int = 600, **settings: Any) -> tuple[fa.Plan, Any]:
    """A trial of which all messages wait at the broker."""
    plan = plan_of(fresh_name(), **settings)
    records = people(n)
    server.create(plan.name)
    server.send(plan.name, messages(records, sizes_of(n, 1)))
    return plan, records


# Laws.


@pytest.mark.once
def test_a_stream_gives_the_effects_of_one_pass(broker: Server, tmp_path: Path) -> None:
    """In every form of message, with errors of every kind, and with a bootstrap by unit under the same key."""
    plan, records = prepared(broker, moments={"bootstrap": 50})
    found, _ = consume(broker, plan, tmp_path, key=KEY, delete=True, end=True)
    assert_same(found, one_pass(plan, records, KEY))
    assert "bootstrap" in {effect.se_kind for effect in found.effects()}
    assert broker.held(plan.name) == 0


@pytest.mark.once
def test_stopped_anywhere_and_started_again_it_is_the_same(some_broker: Server, tmp_path: Path) -> None:
    """Small pieces at a time, so that it is stopped in the middle of a cohort, over and over."""
    plan, records = prepared(some_broker, n=200, cohort=30)
    steps = 0
    progress: list[ConsumerProgress] = []
    for _ in range(100):
        progress.clear()
        consume(
            some_broker, plan, tmp_path, told=progress.append, stopping=lambda: len(progress) > 1, bytes_at_once=3000
        )
        steps += 1
        stored = stored_in(tmp_path, KEY)
        if stored is not None and fa.Trial.loads(stored.state, plan).n > 120:
            break
    assert steps > 1
    found, _ = consume(some_broker, plan, tmp_path, delete=True, end=True)
    assert_same(found, one_pass(plan, records))
    assert some_broker.held(plan.name) == 0


def test_the_first_write_waits_until_there_can_be_coefficients(some_broker: Server, tmp_path: Path) -> None:
    levels = [f"level-{i}" for i in range(40)]
    plan = plan_of(fresh_name(), covariates=["x", {"column": "level", "levels": levels}], coefficients=None)
    records = people(600).append_column("level", pa.array(np.resize(levels, 600)))
    some_broker.create(plan.name)
    some_broker.send(plan.name, messages(records, sizes_of(600, 1)))
    progress: list[ConsumerProgress] = []
    found, _ = consume(some_broker, plan, tmp_path, told=progress.append, bytes_at_once=3000)
    assert min(each.records for each in progress if each.records) >= 5 * 40
    assert len([each for each in progress if each.pending >= 50]) > 1  # a cohort waited
    assert all(row.reliable for row in found.effects().filter(estimator="adjusted"))


class Crash(Exception):
    """As if the process had been killed here."""


class Crashing:
    """A broker at which the process dies on the way: before or after the n-th call of a method."""

    def __init__(self, broker: Broker, method: str, call: int, after: bool) -> None:
        self._broker, self._method, self._left, self._after = broker, method, call, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._broker, name)
        if name != self._method:
            return found

        def called(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Crash
            result = found(*arguments)
            if self._left == 0:
                raise Crash
            return result

        return called


class Sipping:
    """A broker that gives a few messages at a time, so that there is more than one step however fast it is."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def pull(self, most: int, seconds: float) -> Sequence[Message]:
        return self._broker.pull(min(most, 4), seconds)


@pytest.mark.once
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["acknowledge", "delete"])
def test_a_crash_between_state_and_acknowledgement_counts_nothing_twice(
    broker: Server, tmp_path: Path, method: str, after: bool
) -> None:
    if method == "delete" and not broker.deletes:
        pytest.skip("librdkafka's test broker cannot delete")
    plan, records = prepared(broker, n=200)
    for call in (1, 2):
        with pytest.raises(Crash):
            consume(
                broker,
                plan,
                tmp_path,
                wrap=lambda real, call=call: Crashing(Sipping(real), method, call, after),  # type: ignore[misc]
                delete=True,
                bytes_at_once=2000,
            )
    found, _ = consume(broker, plan, tmp_path, delete=True, end=True)
    assert_same(found, one_pass(plan, records))
    assert broker.held(plan.name) == 0


@pytest.mark.once
def test_a_crash_before_the_state_is_written_loses_nothing(some_broker: Server, tmp_path: Path) -> None:
    class Failing(Remembering):
        def write(self, *what: Any) -> Stored:
            if len(self.written) == 2:
                raise Crash
            return super().write(*what)

    plan, records = prepared(some_broker, n=400)
    with pytest.raises(Crash):
        consume(some_broker, plan, tmp_path, wrap=Sipping, store=Failing, delete=True, bytes_at_once=2000)
    assert some_broker.held(plan.name) > 0
    found, _ = consume(some_broker, plan, tmp_path, delete=True, end=True)
    assert_same(found, one_pass(plan, records))


@pytest.mark.once
def test_what_is_not_durable_is_not_deleted_by_a_consumer_that_goes_on(some_broker: Server, tmp_path: Path) -> None:
    """It owes the some_broker the acknowledgements of the one before it, and no more than those."""
    plan = plan_of(fresh_name(), cohort=50)
    records = people(130)
    some_broker.create(plan.name)
    some_broker.send(plan.name, [Sent(as_json(records.slice(0, 60)))])
    consume(some_broker, plan, tmp_path)  # killed, as it were, before it deleted
    for start, size, pending, held in ((60, 30, 30, 1), (90, 10, 40, 2), (100, 30, 0, 0)):
        some_broker.send(plan.name, [Sent(as_json(records.slice(start, size)))])
        found, consumer = consume(some_broker, plan, tmp_path, delete=True)
        assert (consumer.progress.pending, some_broker.held(plan.name)) == (pending, held)
    assert_same(found, one_pass(plan, records))


# The cohort.


@pytest.mark.parametrize("cohort", [50, 130])
def test_states_in_the_store_are_a_cohort_apart(some_broker: Server, tmp_path: Path, cohort: int) -> None:
    plan, records = prepared(some_broker, n=500, cohort=cohort)
    stores: list[Remembering] = []

    class Watched(Remembering):
        def __init__(self, *place: Any, key: bytes | None = None) -> None:
            super().__init__(*place, key=key)
            stores.append(self)

    _, consumer = consume(some_broker, plan, tmp_path, store=Watched, bytes_at_once=1000)
    written = [fa.Trial.loads(stored.state, plan).n for stored in stores[0].written]
    assert len(written) >= 2
    assert min(after - before for before, after in pairwise([0, *written])) >= cohort
    assert consumer.progress.pending == records.num_rows - written[-1] < cohort
    # What is no cohort stays where it was; the next consumer has it again.
    _, again = consume(some_broker, plan, tmp_path)
    assert (again.progress.pending, again.progress.records) == (consumer.progress.pending, written[-1])


def test_two_states_cannot_be_solved_for_a_record_unless_the_cohort_is_one(redis_server: Redis, tmp_path: Path) -> None:
    """The sums of the second state less those of the first are one record's, where one record lies between."""
    solved = {}
    for cohort in (1, 20):
        plan, records = prepared(redis_server, n=60, cohort=cohort, covariates=[], moments={})
        truth = {round(value, 6) for value in records["y"].to_pylist()}
        states: list[fa.Trial] = [fa.Trial(plan)]

        class Watched(Remembering):
            def write(self, *what: Any, states: list[fa.Trial] = states) -> Stored:
                durable = super().write(*what)
                states.append(durable.tallies)
                return durable

        consume(redis_server, plan, tmp_path / str(cohort), store=Watched, bytes_at_once=1)
        found = 0
        for before, after in pairwise(states):
            for arm in (0, 1):
                sums = [arms_of(each.tallies)[arm].raw_factor() for each in (before, after)]
                more = sums[1].T @ sums[1] - sums[0].T @ sums[0]
                found += round(more[0, 0]) == 1 and round(float(more[0, 1]), 6) in truth
        solved[cohort] = found
    assert solved[1] > 5
    assert solved[20] == 0


# The end.


@pytest.mark.once
def test_the_end_takes_all_and_leaves_rounded_effects_alone(some_broker: Server, tmp_path: Path) -> None:
    plan = plan_of(fresh_name(), cohort=100, moments={"bootstrap": 20}, covariates=[])
    records = people(230)
    some_broker.create(plan.name)
    some_broker.send(plan.name, [Sent(as_json(records.slice(0, 200))), Sent(as_json(records.slice(200)))])
    found, consumer = consume(some_broker, plan, tmp_path, end=True, delete=True, bytes_at_once=1)
    assert_same(found, one_pass(plan, records))  # the last 30 too, though they are no cohort
    assert (found.ended, consumer.progress.pending, some_broker.held(plan.name)) == (True, 0, 0)
    stored = stored_in(tmp_path)  # no key is needed
    assert stored is not None
    assert stored.state == b""
    assert stored.final is not None
    assert stored.final.effects == one_pass(plan, records).read(TOLD).to_json()
    with pytest.raises(EndedError, match="has ended"):
        consume(some_broker, plan, tmp_path)


@pytest.mark.once
def test_a_crash_after_the_last_write_is_made_good_by_ending_again(some_broker: Server, tmp_path: Path) -> None:
    plan, _ = prepared(some_broker, n=200, cohort=150)  # of whom there are 100: nothing is written before
    with pytest.raises(Crash):
        consume(
            some_broker,
            plan,
            tmp_path,
            wrap=lambda real: Crashing(real, "acknowledge", 1, False),
            end=True,
            delete=True,
        )
    before = (tmp_path / "state").read_bytes()
    stored = stored_in(tmp_path)
    assert stored is not None
    assert stored.final is not None
    assert some_broker.held(plan.name) > 0
    found, _ = consume(some_broker, plan, tmp_path, end=True, delete=True)
    assert (found.ended, some_broker.held(plan.name)) == (True, 0)
    assert (tmp_path / "state").read_bytes() == before


# Faulty messages.

SECRET = "SECRET-27182"


def with_a_fault(server: Server, plan: fa.Plan, body: bytes) -> Any:
    """A cohort, a faulty message, and another cohort."""
    records = people(120)
    server.create(plan.name)
    halves = [Sent(as_json(records.slice(start, 60))) for start in (0, 60)]
    server.send(plan.name, [halves[0], Sent(body), halves[1]])
    return records


BAD = {
    "a value": (f'[{{"group": "a", "x": 1, "y": "{SECRET}", "unit": "u"}}]'.encode(), "y: 1 wrong type"),
    "no JSON": (SECRET.encode(), "1 "),
    "half of Arrow": (b"\xff\xff\xff\xff\x40\0\0\0" + SECRET.encode(), "not one whole Arrow stream"),
    "nothing": (b" ", "is empty"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_faulty_message_stops_the_consumer_and_stays(some_broker: Server, tmp_path: Path, what: str) -> None:
    body, rule = BAD[what]
    plan = plan_of(fresh_name())
    records = with_a_fault(some_broker, plan, body)
    for _ in range(2):
        with pytest.raises(FaultyMessage) as refused:
            consume(some_broker, plan, tmp_path, delete=True)
        told = str(refused.value)
        assert rule in told
        assert "--skip-faulty" in told
        assert "position" in told
        assert SECRET not in told
        assert refused.value.__context__ is None
        stored = stored_in(tmp_path, KEY)
        assert stored is not None
        assert fa.Trial.loads(stored.state, plan).n == 60
    assert some_broker.held(plan.name) == 2
    found, consumer = consume(some_broker, plan, tmp_path, delete=True, skip_faulty=True)
    assert consumer.progress.skipped == 1
    assert_same(found, one_pass(plan, records))
    assert some_broker.held(plan.name) == 0


def test_a_plan_that_drops_faulty_records_counts_them(some_broker: Server, tmp_path: Path) -> None:
    plan = plan_of(fresh_name(), drop_limit=0.05)
    records = with_a_fault(some_broker, plan, BAD["a value"][0])
    found, consumer = consume(some_broker, plan, tmp_path)
    assert (found.n, found.dropped.total, consumer.progress.skipped) == (120, 1, 0)
    assert found.dropped.by_column() == {"y": {"wrong type": 1}}
    assert records.num_rows == 120


# A store has one consumer, one plan, one stream.


def test_a_second_consumer_on_a_store_is_refused(tmp_path: Path) -> None:
    of = (tmp_path, plan_of("orders"), "redis orders")
    with StreamFile(*of), pytest.raises(StateError, match="another program is writing to"):
        StreamFile(*of)
    with StreamFile(*of):  # and let in once the first has gone
        pass


def test_a_store_is_not_continued_under_another_plan_stream_or_key(redis_server: Redis, tmp_path: Path) -> None:
    plan, _ = prepared(redis_server, n=100, moments={"bootstrap": 20})
    consume(redis_server, plan, tmp_path, key=KEY)
    before = (tmp_path / "state").read_bytes()
    with pytest.raises(StateError, match="another plan"):
        consume(redis_server, plan_of(plan.name, moments={"bootstrap": 30}), tmp_path, key=KEY)
    with pytest.raises(StateError, match="another key"):
        consume(redis_server, plan, tmp_path, key=bytes(16))
    with pytest.raises(SourceError, match="belongs to another stream"):
        consume(redis_server, plan, tmp_path, key=KEY, address=redis_server.address("elsewhere"))
    assert (tmp_path / "state").read_bytes() == before


def test_a_stream_that_was_made_again_is_noticed(nats_server: Nats, tmp_path: Path) -> None:
    plan, _ = prepared(nats_server, n=100)
    consume(nats_server, plan, tmp_path)
    nats_server.ask(lambda jetstream: jetstream.delete_stream(plan.name))
    nats_server.create(plan.name)
    with pytest.raises(SourceError, match="made again"):
        consume(nats_server, plan, tmp_path)
    nats_server.send(plan.name, messages(people(300), []))  # longer than the first, so only its identity tells
    with pytest.raises(SourceError, match="deleted and made again"):
        consume(nats_server, plan, tmp_path)


def test_a_stream_of_redis_that_ends_before_the_position_is_noticed(redis_server: Redis, tmp_path: Path) -> None:
    plan, _ = prepared(redis_server, n=100)
    consume(redis_server, plan, tmp_path)
    with redis_server.client as client:
        client.delete(plan.name)
        client.xadd(plan.name, {"data": "{}"}, id="5-1")
    with pytest.raises(SourceError, match=r"the stream ends at 5-1, before the entry \d+-\d+"):
        consume(redis_server, plan, tmp_path)


def test_messages_that_are_gone_unread_are_counted(nats_server: Nats, tmp_path: Path) -> None:
    plan, _ = prepared(nats_server, n=0, cohort=10)
    nats_server.send(plan.name, [Sent(as_json(people(20)))])
    consume(nats_server, plan, tmp_path)
    nats_server.send(plan.name, [Sent(as_json(people(20)))] * 5)
    nats_server.ask(lambda jetstream: jetstream.purge_stream(plan.name, seq=5))
    found, consumer = consume(nats_server, plan, tmp_path)
    assert (found.n, consumer.progress.missed) == (60, 3)
    stored = stored_in(tmp_path, KEY)
    assert stored is not None
    assert isinstance(stored.positions, StreamPositions)
    assert stored.positions.missed == 3


# Brokers of their own kind.


@pytest.mark.once
def test_a_broker_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    """Killed and started again under the consumer, twice, with messages before, between and after."""
    for name in ("nats", "redis"):
        require(name)
        server = KINDS[name]()
        try:
            server.start()
            assert_outlived(server, tmp_path / name)
        finally:
            server.remove()


def assert_outlived(server: Server, folder: Path) -> None:
    plan = plan_of(fresh_name())
    records = people(300)
    server.create(plan.name)
    progress: list[ConsumerProgress] = []
    result: list[fa.Trial] = []
    done = threading.Event()

    def run() -> None:
        trial, _ = consume(
            server, plan, folder, told=progress.append, stopping=done.is_set, until_empty=False, delete=True
        )
        result.append(trial)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    for part in range(3):
        server.send(plan.name, [Sent(as_json(records.slice(100 * part, 100)))])
        _until(lambda part=part: bool(progress) and progress[-1].records == 100 * (part + 1))
        if part < 2:
            seen = len(progress)
            server.kill()
            _until(lambda seen=seen: any(each.away for each in progress[seen:]))
            server.start()
    done.set()
    thread.join(20)
    assert_same(result[0], one_pass(plan, records))
    assert server.held(plan.name) == 0


@pytest.mark.once
def test_a_broker_of_kafka_that_dies_is_told(tmp_path: Path) -> None:
    """It cannot come back: the test broker's records die with it."""
    require("kafka")
    server, progress = KINDS["kafka"](), list[ConsumerProgress]()
    plan = plan_of(fresh_name())
    try:
        server.start()
        server.create(plan.name)
        server.send(plan.name, [Sent(as_json(people(60)))])
        began = time.monotonic()

        def told(each: ConsumerProgress) -> None:
            progress.append(each)
            if each.records == 60 and each.away is None:
                server.kill()

        found, _ = consume(
            server,
            plan,
            tmp_path,
            until_empty=False,
            told=told,
            stopping=lambda: any(each.away for each in progress) or time.monotonic() > began + 60,
        )
    finally:
        server.remove()
    assert any(each.away for each in progress)
    assert found.n == 60


def _until(true: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_work_queue_is_emptied_by_acknowledging(nats_server: Nats, tmp_path: Path) -> None:
    plan = plan_of(fresh_name())
    records = people(300)
    nats_server.create(plan.name, retention="workqueue")
    nats_server.send(plan.name, messages(records, sizes_of(300, 2)))
    before = nats_server.held(plan.name)
    for _ in range(2):
        with pytest.raises(Crash):
            consume(
                nats_server,
                plan,
                tmp_path,
                wrap=lambda real: Crashing(real, "acknowledge", 2, False),
                bytes_at_once=2000,
            )
    assert 0 < nats_server.held(plan.name) < before
    found, _ = consume(nats_server, plan, tmp_path, end=True)
    assert_same(found, one_pass(plan, records))
    assert nats_server.held(plan.name) == 0


def test_of_a_stream_with_subjects_only_the_named_one_is_read_and_deleted(nats_server: Nats, tmp_path: Path) -> None:
    plan = plan_of(fresh_name())
    records = people(100)
    nats_server.create(plan.name)
    for start in (0, 50):
        nats_server.send(plan.name, [Sent(b"not ours")] * 3, subject=f"{plan.name}.other")
        nats_server.send(plan.name, [Sent(as_json(records.slice(start, 50)))], subject=f"{plan.name}.ours")
    address = f"{nats_server.address(plan.name)}?subject={plan.name}.ours"
    found, _ = consume(nats_server, plan, tmp_path, address=address, delete=True)
    assert_same(found, one_pass(plan, records))
    assert nats_server.held(plan.name) == 6


def test_a_stream_that_keeps_messages_by_interest_is_refused(nats_server: Nats, tmp_path: Path) -> None:
    plan = plan_of(fresh_name())
    nats_server.create(plan.name, retention="interest")
    with pytest.raises(SourceError, match="retention interest"):
        consume(nats_server, plan, tmp_path)


@pytest.mark.once
def test_a_message_lost_on_its_way_is_fetched_again(nats_server: Nats, tmp_path: Path) -> None:
    plan, records = prepared(nats_server, n=200)

    class Losing(Crashing):
        """A client that throws a message away now and then, as a slow one does."""

        def pull(self, most: int, seconds: float) -> Any:
            self._left += 1
            if self._left % 3 == 0 and self._broker.lag({}):
                self._broker._loop.run_until_complete(self._broker._pulling.fetch(1, timeout=1))  # type: ignore[attr-defined]
            return self._broker.pull(most, seconds)

    found, _ = consume(
        nats_server,
        plan,
        tmp_path,
        wrap=lambda real: Losing(real, "", 0, False),
        bytes_at_once=2000,
        end=True,
    )
    assert_same(found, one_pass(plan, records))


def test_a_message_on_its_way_is_waited_for(nats_server: Nats) -> None:
    """The server has sent it, too late for the question that it answers: the stream is not empty yet."""
    name = fresh_name()
    nats_server.create(name)
    stream = NatsStream(parse(nats_server.address(name)), name)
    try:
        stream.connect({})
        nats_server.send(name, [Sent(b"{}")])
        assert stream.lag({}) == 1
        late = stream._connection.publish(stream._pulling._nms, b'{"batch": 1}', stream._pulling._deliver)
        stream._loop.run_until_complete(late)
        stream._loop.run_until_complete(stream._connection.flush())
        assert stream.lag({}) == 1
        assert [message.place for message in stream.pull(1, 5)] == [(1,)]
        assert stream.lag({}) == 0
    finally:
        stream.close()


def test_an_entry_of_redis_can_be_a_record_itself(redis_server: Redis, tmp_path: Path) -> None:
    plan = plan_of(fresh_name())
    records = people(100)
    redis_server.create(plan.name)
    rows = [{name: str(value) for name, value in row.items()} for row in records.to_pylist()]
    redis_server.send(plan.name, [Sent({**row, "note": "not wanted"}) for row in rows])
    found, _ = consume(redis_server, plan, tmp_path)
    assert_same(found, one_pass(plan, records))
    with redis_server.client as client:
        (group,) = client.xinfo_groups(plan.name)
        (last,) = client.xrevrange(plan.name, count=1)
    assert (group["name"], group["last-delivered-id"]) == (f"foldaway-{plan.name}".encode(), last[0])


def test_a_broker_that_cannot_delete_says_so(kafka_server: Server, tmp_path: Path) -> None:
    plan, _ = prepared(kafka_server, n=100)
    kafka_server.deletes = True  # as if it could
    try:
        found, consumer = consume(kafka_server, plan, tmp_path, delete=True, end=True)
    finally:
        kafka_server.deletes = False
    assert not consumer.can_delete
    assert found.n == 100


@pytest.mark.parametrize("name", ["nats", "redis", "kafka"])
def test_a_stream_that_is_not_there_is_told(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: Server = request.getfixturevalue(f"{name}_server")
    if name == "kafka":
        pytest.skip("librdkafka's test broker makes every topic that is asked for")
    with pytest.raises(SourceError, match="there is no stream"):
        consume(server, plan_of(fresh_name()), tmp_path)


def test_what_is_no_stream_in_redis_is_told(redis_server: Redis, tmp_path: Path) -> None:
    plan = plan_of(fresh_name())
    with redis_server.client as client:
        client.set(plan.name, "text")
    with pytest.raises(SourceError, match="is no stream but a string"):
        consume(redis_server, plan, tmp_path)


@pytest.mark.parametrize(("kind", "package"), [("nats", "nats"), ("redis", "redis"), ("kafka", "confluent_kafka")])
def test_a_package_that_is_missing_is_named_with_its_extra(
    kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SourceError, match=rf"{package} is not installed: pip install 'foldaway\[{kind}\]'"):
        parse(f"{kind}://localhost/orders").broker("trial")
