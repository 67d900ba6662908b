"""The collector's laws: a batch is counted once or not at all, and what leaves memory is a cohort apart."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.errors import Conflict, RecordError, SequenceGap, TooEarly, TrialClosed, Unavailable, VaultError
from foldaway.federated.coordinator.closing import CloseRequest
from foldaway.keeping.cohort import require_enough
from foldaway.service.collecting.collector import Collector, merged
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Decoded, Limits
from plans import SMALL
from stores import Place

PLAN = fa.Plan(**SMALL, privacy=fa.Privacy(cohort=10))
NAME = PLAN.name


def records(n: int, first: float = 0.0) -> Decoded:
    """As many records, with consecutive outcomes, in both arms by turns."""
    return Decoded(pa.table({"group": ["ab"[i % 2] for i in range(n)], "y": [first + i for i in range(n)]}))


@pytest.fixture
def store(folder: Place) -> Store:
    return opened(folder, PLAN)


def opened(place: Place, plan: fa.Plan) -> Store:
    store = place.open()
    store.create_trial(plan, bytes(16) if plan.bootstrap else None)
    return store


def kept(store: Store, name: str = NAME) -> fa.Trial:
    return merged(fa.Plan.loads(store.trial(name).plan), store.shards.all(name))


# Numbers.


def test_batches_are_acknowledged_and_made_durable_a_cohort_at_a_time(store: Store) -> None:
    collector = Collector(store, NAME, "main")
    said = [collector.receive(records(4), "p", number) for number in range(1, 6)]
    assert [(one.folded, one.durable, one.pending) for one in said] == [
        (4, 0, 4),
        (4, 0, 8),
        (4, 3, 0),
        (4, 3, 4),
        (4, 3, 8),
    ]
    assert {one.fingerprint for one in said} == {PLAN.fingerprint}
    assert kept(store).n == 12
    assert store.shards.sequences(NAME) == {"p": 3}


def test_a_repeated_sequence_is_acknowledged_and_not_folded(store: Store) -> None:
    collector = Collector(store, NAME, "main")
    for number in (1, 2, 3, 4):
        collector.receive(records(4), "p", number)
    for number in (1, 3, 4):  # durable, and pending
        said = collector.receive(records(4), "p", number)
        assert (said.repeated, said.folded, said.durable, said.pending) == (True, 0, 3, 4)
    again = Collector(store, NAME, "main")  # after a crash
    assert again.receive(records(4), "p", 3).repeated
    assert not again.receive(records(4), "p", 4).repeated


def test_a_gap_is_refused_with_the_number_that_is_missing(store: Store) -> None:
    collector = Collector(store, NAME, "main")
    for sequence, expected in ((2, 1), (7, 1)):
        with pytest.raises(SequenceGap) as gap:
            collector.receive(records(4), "p", sequence)
        assert gap.value.expected == expected
    for number in (1, 2, 3, 4):
        collector.receive(records(4), "p", number)
    with pytest.raises(SequenceGap, match="send sequence 5 first"):
        collector.receive(records(4), "p", 6)
    with pytest.raises(SequenceGap) as gap:  # the crash has taken number 4
        Collector(store, NAME, "main").receive(records(4), "p", 5)
    assert gap.value.expected == 4
    assert collector.pending == 4


def test_a_faulty_batch_changes_nothing_and_its_number_is_free(store: Store) -> None:
    collector = Collector(store, NAME, "main")
    collector.receive(records(4), "p", 1)
    before = collector._live.dumps()
    for faulty in (
        Decoded(pa.table({"group": ["a", "c"], "y": [1.0, 2.0]})),
        Decoded(pa.table({"group": ["a"] * 20, "y": [1.0] * 19 + [None]})),
        Decoded(records(20).records, ragged=1),
    ):
        with pytest.raises(RecordError):
            collector.receive(faulty, "p", 2)
        assert collector._live.dumps() == before
        assert collector.pending == 4
    said = collector.receive(records(6), "p", 2)
    assert (said.folded, said.repeated, said.durable) == (6, False, 2)


def test_producers_count_apart(store: Store) -> None:
    collector = Collector(store, NAME, "main")
    assert collector.receive(records(4), "p", 1).durable == 0
    assert collector.receive(records(8), "q", 1).durable == 1  # the commit is of both
    assert collector.receive(records(4), "p", 1).repeated
    assert store.shards.sequences(NAME) == {"p": 1, "q": 1}


def test_batches_without_a_number_are_folded_every_time(store: Store) -> None:
    collector = Collector(store, NAME, "main")
    for _ in range(3):
        said = collector.receive(records(4), None, None)
        assert (said.durable, said.repeated, said.folded) == (None, False, 4)
    assert kept(store).n == 12


# What goes wrong.


def break_commit(store: Store, monkeypatch: pytest.MonkeyPatch, fault: Exception, *, after: bool = False) -> None:
    """The next commit fails; or it happens, and its answer is lost."""
    commit = store.shards.commit

    def broken(*args: Any, **kwargs: Any) -> int:
        monkeypatch.setattr(store.shards, "commit", commit)
        if after:
            commit(*args, **kwargs)
        raise fault

    monkeypatch.setattr(store.shards, "commit", broken)


def test_a_database_that_is_locked_leaves_the_batch_with_its_producer(
    folder: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldaway.service.database.databases.PATIENCE", 0.05)
    store = opened(folder, PLAN)
    collector = Collector(store, NAME, "main")
    collector.receive(records(4), "p", 1)
    before = collector._live.dumps()
    other = sqlite3.connect(Path(folder.where) / "foldaway.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        collector.receive(records(6), "p", 2)
    other.rollback()
    other.close()
    assert (collector._live.dumps(), collector.pending) == (before, 4)
    said = collector.receive(records(6), "p", 2)
    assert (said.folded, said.durable) == (6, 2)
    assert kept(store).n == 10


@pytest.mark.parametrize("fault", [Unavailable("gone."), VaultError("no key."), MemoryError()])
@pytest.mark.parametrize("after", [False, True])
def test_a_commit_that_fails_or_seems_to_counts_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, fault: Exception, after: bool
) -> None:
    collector = Collector(store, NAME, "main")
    collector.receive(records(4), "q", 1)
    collector.receive(records(4), "p", 1)
    break_commit(store, monkeypatch, fault, after=after)
    with pytest.raises(type(fault)):
        collector.receive(records(6), "p", 2)
    # The producers do what a client does: p sends again, q goes on.
    for producer, number in (("p", 2), ("q", 2)):
        for _ in range(3):
            try:
                collector.receive(records(6), producer, number)
                break
            except Conflict:
                continue
    collector.receive(records(10), "r", 1)
    assert store.shards.sequences(NAME) == {"p": 2, "q": 2, "r": 1}
    assert kept(store).n == 4 + 4 + 6 + 6 + 10


def test_a_conflict_goes_back_to_what_is_durable(store: Store) -> None:
    collector = Collector(store, NAME, "main")
    collector.receive(records(12), "p", 1)
    collector.receive(records(4), "q", 1)
    store.shards.commit(NAME, "other", version=0, n=10, state=trial_of(10).dumps(), sequences={"q": (0, 1)})
    with pytest.raises(Conflict):
        collector.receive(records(8), "p", 2)
    assert collector.pending == 0
    assert collector.receive(records(8), "p", 2).pending == 8
    assert collector.receive(records(4), "q", 1).repeated
    assert kept(store).n == 12 + 10


def trial_of(n: int) -> fa.Trial:
    trial = fa.Trial(PLAN)
    trial.fold(records(n).records)
    return trial


def test_a_conflict_whose_reload_fails_is_a_conflict_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(store, NAME, "main")
    collector.receive(records(4), "q", 1)
    store.shards.commit(NAME, "main", version=0, n=10, state=trial_of(10).dumps(), sequences={"q": (0, 1)})
    with monkeypatch.context() as broken:
        broken.setattr(fa.Trial, "loads", lambda *_, **__: (_ for _ in ()).throw(Unavailable("gone.")))
        with pytest.raises(Unavailable):
            collector.receive(records(8), "p", 1)
    with pytest.raises(Conflict):  # and not older tallies over newer ones
        collector.receive(records(8), "p", 1)
    collector.receive(records(10), "p", 1)
    assert kept(store).n == 20


def test_a_closed_trial_refuses(store: Store) -> None:
    collector = Collector(store, NAME, "main")
    collector.receive(records(4), "p", 1)
    store.close_trial(NAME, "{}")
    with pytest.raises(TrialClosed):
        collector.receive(records(4), "p", 2)
    assert store.shards.sequences(NAME) == {}


def test_a_trial_closed_between_the_look_and_the_commit_refuses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(store, NAME, "main")
    collector.receive(records(4), "p", 1)
    open_row = store.trial(NAME)
    store.close_trial(NAME, "{}")
    with monkeypatch.context() as late:
        late.setattr(store, "trial", lambda _: open_row)
        with pytest.raises(TrialClosed):
            collector.receive(records(8), "p", 2)
    collector.leave_out_pending()
    assert store.shards.one(NAME, "main").left_out == 4  # the refused batch is its producer's
    assert collector.pending == 0


# Two servers.


@pytest.fixture
def pair(place: Place) -> tuple[Store, Collector, Collector]:
    first, second = opened(place, PLAN), place.open()
    return first, Collector(first, NAME, "first"), Collector(second, NAME, "second")


def test_what_one_server_has_made_durable_the_other_knows(pair: tuple[Store, Collector, Collector]) -> None:
    store, first, second = pair
    first.receive(records(10), "p", 1)
    said = second.receive(records(10), "p", 1)
    assert (said.repeated, said.durable) == (True, 1)
    second.receive(records(10), "p", 2)
    assert first.receive(records(10), "p", 2).repeated
    assert kept(store).n == 20


def test_a_producer_that_moves_is_counted_where_it_was_durable_first(pair: tuple[Store, Collector, Collector]) -> None:
    store, first, second = pair
    first.receive(records(4), "p", 1)
    with pytest.raises(SequenceGap) as gap:  # what the first server has in memory counts for nothing
        second.receive(records(4), "p", 2)
    assert gap.value.expected == 1
    second.receive(records(4), "p", 1)
    second.receive(records(6), "p", 2)
    with pytest.raises(Conflict):
        first.receive(records(10), "q", 1)
    first.receive(records(10), "q", 1)
    assert kept(store).n == 20
    assert store.shards.sequences(NAME) == {"p": 2, "q": 1}


def test_a_producer_that_comes_back_goes_on(pair: tuple[Store, Collector, Collector]) -> None:
    store, first, second = pair
    first.receive(records(4), "p", 1)
    for number in (1, 2, 3):
        second.receive(records(10), "p", number)
    # The first server still holds its number 1; it must not ask for 2, which the producer has forgotten.
    assert first.receive(records(10), "p", 4).durable == 4
    assert kept(store).n == 40


# Service.


def body(n: int, first: float = 0.0) -> bytearray:
    table = records(n, first).records.to_pylist()
    return bytearray(msgspec.json.encode(table))


def send(service: Service, n: int, producer: str = "p", sequence: int = 1, name: str = NAME) -> None:
    service.records.receive(name, body(n), "application/json", None, producer, sequence)


def test_a_close_holds_what_another_server_commits_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fa.Plan(**SMALL, privacy=fa.Privacy(cohort=10, smallest_cell=2))
    store = opened(place, plan)
    service, other = Service(store, "first", Limits()), Service(place.open(), "second", Limits())
    send(service, 20)
    close_trial = store.close_trial

    def late(*args: Any) -> Any:
        monkeypatch.setattr(store, "close_trial", close_trial)
        send(other, 20, "q")
        return close_trial(*args)

    monkeypatch.setattr(store, "close_trial", late)
    answer = service.close(NAME)
    assert (answer.records, answer.final) == (40, True)
    assert other.close(NAME) == service.close(NAME) == service.effects(NAME) == answer


def test_a_close_that_fails_gives_up_no_record(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(store, "main", Limits())
    send(service, 20)
    send(service, 4, sequence=2)

    def gone(*_: Any) -> Any:
        raise Unavailable("gone.")

    with monkeypatch.context() as broken:
        broken.setattr(store, "close_trial", gone)
        with pytest.raises(Unavailable):
            service.close(NAME)
    assert (service.status(NAME).pending, service.status(NAME).left_out) == (4, 0)
    send(service, 6, sequence=3)
    assert service.status(NAME).records == 30


def test_a_second_close_makes_sure_that_the_key_is_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fa.Plan(**SMALL, privacy=fa.Privacy(cohort=10), keep="moments", bootstrap=5)
    store = opened(place, plan)
    service = Service(store, "main", Limits())

    def gone(_: Any) -> None:
        raise Unavailable("gone.")

    with monkeypatch.context() as broken:
        broken.setattr(store._keys, "destroy", gone)
        with pytest.raises(Unavailable):
            service.close(NAME, CloseRequest(without_effects=True))
    assert store._keys.fingerprints() == {plan.fingerprint}
    assert service.close(NAME).final
    assert store._keys.fingerprints() == set()


def test_one_trial_in_trouble_does_not_hold_up_the_others(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = folder.open()
    service = Service(store, "main", Limits())
    for name in ("one", "two"):
        store.create_trial(fa.Plan(**{**SMALL, "name": name}, privacy=fa.Privacy(cohort=10, max_wait=1)), None)
        send(service, 4, name=name)
        service.records._collectors[name]._gate._since = 0.0
    break_commit(store, monkeypatch, Unavailable("gone."))
    with pytest.raises(Unavailable):
        service.tick()
    assert [service.status(name).records for name in ("one", "two")] == [0, 4]
    service.tick()
    assert [service.status(name).records for name in ("one", "two")] == [4, 4]


def test_a_trial_closed_elsewhere_is_noticed(place: Place) -> None:
    store = opened(place, PLAN)
    service, other = Service(store, "first", Limits()), Service(place.open(), "second", Limits())
    send(service, 4)
    assert other.close(NAME, CloseRequest(without_effects=True)).records == 0
    service.tick()
    service.tick()
    assert (service.status(NAME).left_out, service.pending()) == (4, 0)
    with pytest.raises(TooEarly):
        require_enough(PLAN.privacy, {"a": 0, "b": 0})


def test_stopping_commits_what_the_cohort_allows(store: Store) -> None:
    service = Service(store, "main", Limits())
    send(service, 4)
    service.stop()
    assert service.status(NAME).records == 0
    service.records._collectors[NAME]._live.fold(records(8).records)
    service.records._collectors[NAME]._gate.take(8, now=0.0)
    service.stop()
    assert service.status(NAME).records == 12
