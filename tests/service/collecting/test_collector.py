"""The collector's laws: a batch is counted once or not at all, and what leaves memory is a cohort apart."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import batches
import foldaway as fa
from batches import receive
from foldaway.errors import Conflict, IngestError, RecordError, SequenceGap, TrialEnded, Unavailable, VaultError
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.service.collecting.answers import Answer
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.record_inbox import Arrival, Receipt, RecordInbox
from foldaway.service.collecting.record_store import merged
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.service.database.shard_table import write_sequences
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Decoded, Limits
from plans import SMALL
from stores import Place

pytestmark = pytest.mark.once

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
    store.create_trial(plan, bytes(16) if plan.keyed else None)
    return store


def kept(store: Store, name: str = NAME) -> fa.Trial:
    return merged(fa.Plan.loads(store.trial(name).plan), store.shards.all(name))


# Numbers.


def test_batches_are_acknowledged_and_made_durable_a_cohort_at_a_time(store: Store) -> None:
    collector = RecordInbox(store, NAME, "main")
    said, pending = [], []
    for number in range(1, 6):
        said.append(receive(collector, records(4), "p", number))
        pending.append(collector.pending)
    assert [(one.folded, one.durable) for one in said] == [(4, 0), (4, 0), (4, 3), (4, 3), (4, 3)]
    assert pending == [4, 8, 0, 4, 8]
    assert [one.pending for one in said] == [True, True, False, True, True]
    assert {one.fingerprint for one in said} == {PLAN.fingerprint}
    assert kept(store).n == 12
    assert store.shards.sequences(NAME) == {"p": 3}


def test_a_repeated_sequence_is_acknowledged_and_not_folded(store: Store) -> None:
    collector = RecordInbox(store, NAME, "main")
    for number in (1, 2, 3, 4):
        receive(collector, records(4), "p", number)
    for number in (1, 3, 4):  # durable, and pending
        said = receive(collector, records(4), "p", number)
        assert (said.repeated, said.folded, said.durable, collector.pending) == (True, 0, 3, 4)
    again = RecordInbox(store, NAME, "main")  # after a crash
    assert receive(again, records(4), "p", 3).repeated
    assert not receive(again, records(4), "p", 4).repeated


def test_a_gap_is_refused_with_the_number_that_is_missing(store: Store) -> None:
    collector = RecordInbox(store, NAME, "main")
    for sequence, expected in ((2, 1), (7, 1)):
        with pytest.raises(SequenceGap) as gap:
            receive(collector, records(4), "p", sequence)
        assert gap.value.expected == expected
    for number in (1, 2, 3, 4):
        receive(collector, records(4), "p", number)
    with pytest.raises(SequenceGap, match="send sequence 5 first"):
        receive(collector, records(4), "p", 6)
    with pytest.raises(SequenceGap) as gap:  # the crash has taken number 4
        receive(RecordInbox(store, NAME, "main"), records(4), "p", 5)
    assert gap.value.expected == 4
    assert collector.pending == 4


def test_a_faulty_batch_changes_nothing_and_its_number_is_free(store: Store) -> None:
    collector = RecordInbox(store, NAME, "main")
    receive(collector, records(4), "p", 1)
    before = collector.account.live.dumps()
    for faulty in (
        Decoded(pa.table({"group": ["a", "c"], "y": [1.0, 2.0]})),
        Decoded(pa.table({"group": ["a"] * 20, "y": [1.0] * 19 + [None]})),
        Decoded(records(20).records, ragged=1),
    ):
        with pytest.raises(RecordError):
            receive(collector, faulty, "p", 2)
        assert collector.account.live.dumps() == before
        assert collector.pending == 4
    said = receive(collector, records(6), "p", 2)
    assert (said.folded, said.repeated, said.durable) == (6, False, 2)


def test_producers_count_apart(store: Store) -> None:
    collector = RecordInbox(store, NAME, "main")
    assert receive(collector, records(4), "p", 1).durable == 0
    assert receive(collector, records(8), "q", 1).durable == 1  # the commit is of both
    assert receive(collector, records(4), "p", 1).repeated
    assert store.shards.sequences(NAME) == {"p": 1, "q": 1}


def test_batches_without_a_number_are_folded_every_time(store: Store) -> None:
    collector = RecordInbox(store, NAME, "main")
    for _ in range(3):
        said = receive(collector, records(4), None, None)
        assert (said.durable, said.repeated, said.folded) == (None, False, 4)
    assert kept(store).n == 12


# Who counts for a cohort.

RETURNING = fa.Plan(**SMALL, unit="u", privacy=fa.Privacy(cohort=10, smallest_cell=2))


def visits(*units: int, each: int = 1) -> Decoded:
    """Records of these units, each in its own arm."""
    unit = [u for u in units for _ in range(each)]
    return Decoded(pa.table({"group": ["ab"[u % 2] for u in unit], "u": unit, "y": [float(u) for u in unit]}))


def test_a_whale_neither_triggers_a_commit_nor_blocks_one(folder: Place) -> None:
    """A cohort is of distinct units, so one with thousands of records is one, whenever it comes and however often."""
    store = opened(folder, RETURNING)
    collector = RecordInbox(store, NAME, "main")
    assert receive(collector, visits(0, each=3_000), "p", 1).durable == 0
    assert receive(collector, visits(0, 0, each=2_000), "p", 2).durable == 0
    assert collector.pending == 7_000
    assert receive(collector, visits(*range(1, 9)), "p", 3).durable == 0
    assert kept(store).n == 0
    said = receive(collector, visits(9), "p", 4)  # the tenth
    assert (said.durable, collector.pending) == (4, 0)
    assert kept(store).n == 7_009
    assert receive(collector, visits(0, each=3_000), "p", 5).durable == 4  # new again, once
    assert receive(collector, visits(*range(1, 10)), "p", 6).durable == 6


def test_units_that_come_back_make_no_cohort(folder: Place) -> None:
    store = opened(folder, RETURNING)
    collector = RecordInbox(store, NAME, "main")
    for number in range(1, 21):
        assert receive(collector, visits(*range(9)), "p", number).durable == 0
    assert receive(collector, visits(9), "p", 21).durable == 21


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
    collector = RecordInbox(store, NAME, "main")
    receive(collector, records(4), "p", 1)
    before = collector.account.live.dumps()
    other = sqlite3.connect(Path(folder.where) / "foldaway.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        receive(collector, records(6), "p", 2)
    other.rollback()
    other.close()
    assert (collector.account.live.dumps(), collector.pending) == (before, 4)
    said = receive(collector, records(6), "p", 2)
    assert (said.folded, said.durable) == (6, 2)
    assert kept(store).n == 10


@pytest.mark.parametrize("fault", [Unavailable("gone."), VaultError("no key."), MemoryError()])
@pytest.mark.parametrize("after", [False, True])
def test_a_commit_that_fails_or_seems_to_counts_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, fault: Exception, after: bool
) -> None:
    collector = RecordInbox(store, NAME, "main")
    receive(collector, records(4), "q", 1)
    receive(collector, records(4), "p", 1)
    break_commit(store, monkeypatch, fault, after=after)
    with pytest.raises(type(fault)):
        receive(collector, records(6), "p", 2)
    # The producers do what a client does: p sends again, q goes on.
    for producer, number in (("p", 2), ("q", 2)):
        for _ in range(3):
            try:
                receive(collector, records(6), producer, number)
                break
            except Conflict:
                continue
    receive(collector, records(10), "r", 1)
    assert store.shards.sequences(NAME) == {"p": 2, "q": 2, "r": 1}
    assert kept(store).n == 4 + 4 + 6 + 6 + 10


def test_a_conflict_goes_back_to_what_is_durable(store: Store) -> None:
    collector = RecordInbox(store, NAME, "main")
    receive(collector, records(12), "p", 1)
    receive(collector, records(4), "q", 1)
    store.shards.commit(NAME, "other", version=0, n=10, state=trial_of(10).dumps(), sequences={"q": (0, 1)})
    with pytest.raises(Conflict):
        receive(collector, records(8), "p", 2)
    assert collector.pending == 0
    receive(collector, records(8), "p", 2)
    assert collector.pending == 8
    assert receive(collector, records(4), "q", 1).repeated
    assert kept(store).n == 12 + 10


def trial_of(n: int) -> fa.Trial:
    trial = fa.Trial(PLAN)
    trial.fold(records(n).records)
    return trial


def test_a_conflict_whose_reload_fails_is_a_conflict_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = RecordInbox(store, NAME, "main")
    receive(collector, records(4), "q", 1)
    store.shards.commit(NAME, "main", version=0, n=10, state=trial_of(10).dumps(), sequences={"q": (0, 1)})
    with monkeypatch.context() as broken:
        broken.setattr(fa.Trial, "loads", lambda *_, **__: (_ for _ in ()).throw(Unavailable("gone.")))
        with pytest.raises(Unavailable):
            receive(collector, records(8), "p", 1)
    with pytest.raises(Conflict):  # and not older tallies over newer ones
        receive(collector, records(8), "p", 1)
    receive(collector, records(10), "p", 1)
    assert kept(store).n == 20


def test_a_trial_that_has_ended_refuses(store: Store) -> None:
    collector = RecordInbox(store, NAME, "main")
    receive(collector, records(4), "p", 1)
    store.end_trial(NAME, "{}")
    with pytest.raises(TrialEnded):
        receive(collector, records(4), "p", 2)
    assert store.shards.sequences(NAME) == {}


def test_a_trial_ended_between_the_look_and_the_commit_refuses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = RecordInbox(store, NAME, "main")
    receive(collector, records(4), "p", 1)
    open_row = store.trial(NAME)
    store.end_trial(NAME, "{}")
    with monkeypatch.context() as late:
        late.setattr(store, "trial", lambda _: open_row)
        with pytest.raises(TrialEnded):
            receive(collector, records(8), "p", 2)
    collector.leave_out_pending()
    assert store.shards.one(NAME, "main").left_out == 4  # the refused batch is its producer's
    assert collector.pending == 0


# Two servers.


Pair = tuple[Store, RecordInbox, RecordInbox]


@pytest.fixture
def pair(place: Place) -> tuple[Store, RecordInbox, RecordInbox]:
    first, second = opened(place, PLAN), place.open()
    return first, RecordInbox(first, NAME, "first"), RecordInbox(second, NAME, "second")


def test_what_one_server_has_made_durable_the_other_knows(pair: Pair) -> None:
    store, first, second = pair
    receive(first, records(10), "p", 1)
    said = receive(second, records(10), "p", 1)
    assert (said.repeated, said.durable) == (True, 1)
    receive(second, records(10), "p", 2)
    assert receive(first, records(10), "p", 2).repeated
    assert kept(store).n == 20


def test_a_producer_that_moves_is_counted_where_it_was_durable_first(
    pair: tuple[Store, RecordInbox, RecordInbox],
) -> None:
    store, first, second = pair
    receive(first, records(4), "p", 1)
    with pytest.raises(SequenceGap) as gap:  # what the first server has in memory counts for nothing
        receive(second, records(4), "p", 2)
    assert gap.value.expected == 1
    receive(second, records(4), "p", 1)
    receive(second, records(6), "p", 2)
    with pytest.raises(Conflict):
        receive(first, records(10), "q", 1)
    receive(first, records(10), "q", 1)
    assert kept(store).n == 20
    assert store.shards.sequences(NAME) == {"p": 2, "q": 1}


def test_a_producer_that_comes_back_goes_on(pair: Pair) -> None:
    store, first, second = pair
    receive(first, records(4), "p", 1)
    for number in (1, 2, 3):
        receive(second, records(10), "p", number)
    # The first server still holds its number 1; it must not ask for 2, which the producer has forgotten.
    assert receive(first, records(10), "p", 4).durable == 4
    assert kept(store).n == 40


# Service.

CLOSABLE = fa.Plan(**SMALL, privacy=fa.Privacy(cohort=10, smallest_cell=2))


def body(n: int, first: float = 0.0) -> bytearray:
    table = records(n, first).records.to_pylist()
    return bytearray(msgspec.json.encode(table))


def send(service: Service, n: int, producer: str = "p", sequence: int = 1, name: str = NAME) -> None:
    batches.send(service, name, bytes(body(n)), Sent("application/json", None, Numbers(producer, sequence, sequence)))


def test_an_end_holds_what_another_server_commits_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(place, CLOSABLE)
    service, other = Service(store, "first", Limits()), Service(place.open(), "second", Limits())
    send(service, 20)
    end_trial = store.end_trial

    def late(*args: Any) -> Any:
        monkeypatch.setattr(store, "end_trial", end_trial)
        send(other, 20, "q")
        return end_trial(*args)

    monkeypatch.setattr(store, "end_trial", late)
    answer = service.end(NAME)
    assert (answer.records, answer.final) == (40, True)
    assert other.end(NAME) == service.end(NAME) == service.effects(NAME) == answer


def test_the_end_counts_what_is_pending_here_and_makes_its_sequences_durable(place: Place) -> None:
    """So a producer that asks afterwards how far it is need not send again what it could not send any more."""
    store = opened(place, CLOSABLE)
    service = Service(store, "main", Limits())
    send(service, 20)
    send(service, 4, sequence=2)
    assert store.shards.sequences(NAME) == {"p": 1}
    answer = service.end(NAME, EndRequest(exact=True))
    assert (answer.records, answer.left_out, store.shards.sequences(NAME)) == (24, 0, {"p": 2})
    whole = fa.Trial(CLOSABLE)
    for n in (20, 4):
        whole.fold(records(n).records)
    exact = fa.Effects.from_json(bytes(answer.effects))
    assert [row.estimate for row in exact] == pytest.approx([row.estimate for row in whole.effects()])
    # What others are told is rounded, and the call is noted; nobody gets exact numbers a second time.
    told = fa.Effects.from_json(bytes(service.effects(NAME).effects))
    assert (exact.rounded, told.rounded) == (False, True)
    with pytest.raises(IngestError, match="exact numbers were destroyed"):
        service.end(NAME, EndRequest(exact=True))
    assert service.end(NAME) == service.effects(NAME)
    with pytest.raises(IngestError, match="its exact numbers were destroyed with its tallies"):
        service.effects(NAME, exact=True)
    assert service.status(NAME).exact_answers == 1


def test_an_end_counts_all_or_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that goes away in the middle of it leaves an open trial, with tallies, sequences and its key."""
    plan = fa.Plan(**SMALL, unit="u", privacy=fa.Privacy(cohort=10, smallest_cell=2))
    store = opened(place, plan)
    service = Service(store, "main", Limits())
    collector = service.records.collector(NAME)
    receive(collector, visits(*range(10)), "p", 1)
    receive(collector, visits(0, 1), "p", 2)
    before = store.shards.all(NAME)

    def goes_away(connection: Any, **named: Any) -> None:
        write_sequences(connection, **named)
        raise Unavailable("gone.")

    with monkeypatch.context() as broken:
        broken.setattr("foldaway.service.collecting.record_trials.write_sequences", goes_away)
        with pytest.raises(Unavailable):
            service.end(NAME)
    assert store.trial(NAME).status == "open"
    assert (store.shards.all(NAME), store.shards.sequences(NAME)) == (before, {"p": 1})
    assert store.trial_key(NAME) is not None
    assert (service.records.pending(NAME), service.status(NAME).left_out) == (2, 0)
    receive(collector, visits(*range(10)), "p", 3)
    assert kept(store).n == 22


def test_an_end_counts_once_what_another_server_has_taken_too(place: Place) -> None:
    store = opened(place, CLOSABLE)
    service, other = Service(store, "first", Limits()), Service(place.open(), "second", Limits())
    send(service, 4)
    send(other, 4)  # the producer has moved, and sent its first batch again
    send(other, 20, sequence=2)
    answer = service.end(NAME, EndRequest(exact=True))
    assert sum(fa.Effects.from_json(bytes(answer.effects)).counts.values()) == 24
    assert store.shards.sequences(NAME) == {"p": 2}


def test_what_is_pending_elsewhere_is_left_out_and_counted(place: Place) -> None:
    store = opened(place, CLOSABLE)
    service, other = Service(store, "first", Limits()), Service(place.open(), "second", Limits())
    send(service, 20)
    send(other, 4, "q")
    assert service.end(NAME).records == 20
    other.tick()
    status = service.status(NAME)
    assert (status.left_out, other.records.pending(), store.shards.sequences(NAME)) == (4, 0, {"p": 1})


def test_after_the_end_tallies_census_and_key_are_gone(place: Place) -> None:
    """From the tables and, as sealed bytes, from the files of SQLite, which overwrites what it deletes."""
    plan = fa.Plan(**SMALL, unit="u", privacy=fa.Privacy(cohort=10, smallest_cell=2))
    store = opened(place, plan)
    service = Service(store, "main", Limits())
    receive(service.records.collector(NAME), visits(*range(20)), "p", 1)
    service.tick()
    secret = [
        *place.sql("SELECT state FROM foldaway_shards"),
        *place.sql("SELECT answer FROM foldaway_history"),
        *place.sql("SELECT census FROM foldaway_history"),
        *place.sql("SELECT key FROM foldaway_keys", file="keys.db"),
    ]
    marks = [bytes(sealed)[40:104] for (sealed,) in secret]  # a stretch that lies on one page
    assert [mark in place.files() for mark in marks] == [True] * 4
    service.end(NAME)
    assert place.sql("SELECT state FROM foldaway_shards") == [(None,)]
    assert place.sql("SELECT answer, census FROM foldaway_history") == [(None, None)]
    assert place.sql("SELECT key FROM foldaway_keys", file="keys.db") == []
    store.close()
    if place.server is None:
        assert not any(mark in place.files() for mark in marks)


def numbers_in(answer: Answer) -> dict[str, Any]:
    """What an answer tells, but for the words, which say of a trial that has ended that it is."""
    told: dict[str, Any] = msgspec.json.decode(answer.effects)
    return {name: told[name] for name in told if name not in ("final", "verdicts", "decisions", "explained")}


def test_an_end_that_follows_an_answer_closely_tells_nothing_new(place: Place) -> None:
    service = Service(opened(place, CLOSABLE), "main", Limits())
    send(service, 20)
    before = service.effects(NAME)
    send(service, 9, sequence=2)
    answer = service.end(NAME)
    told = numbers_in(answer)
    assert f"Left out at the end: about {answer.left_out} records" in told["notes"].pop()  # as the answer says too
    assert (answer.final, told) == (True, numbers_in(before))


def test_a_second_end_makes_sure_that_the_key_is_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fa.Plan(**SMALL, privacy=fa.Privacy(cohort=10), moments=fa.Moments(bootstrap=5))
    store = opened(place, plan)
    service = Service(store, "main", Limits())

    def gone(_: Any) -> None:
        raise Unavailable("gone.")

    with monkeypatch.context() as broken:
        broken.setattr(store._keys, "destroy", gone)
        with pytest.raises(Unavailable):
            service.end(NAME, EndRequest(without_effects=True))
    assert store._keys.fingerprints() == {plan.fingerprint}
    assert service.end(NAME).final
    assert store._keys.fingerprints() == set()


def test_one_trial_in_trouble_does_not_hold_up_the_others(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = folder.open()
    service = Service(store, "main", Limits())
    for name in ("one", "two"):
        store.create_trial(fa.Plan(**{**SMALL, "name": name}, privacy=fa.Privacy(cohort=10)), None)
        due_at_the_next_tick(service, name)
    break_commit(store, monkeypatch, Unavailable("gone."))
    with pytest.raises(Unavailable):
        service.tick()
    assert [kept(store, name).n for name in ("one", "two")] == [0, 12]
    service.tick()
    assert [kept(store, name).n for name in ("one", "two")] == [12, 12]


def due_at_the_next_tick(service: Service, name: str) -> None:
    """A cohort that is folded and, for some fault, was not committed."""
    service.records.collector(name).account.live.fold(records(12).records)


def test_a_trial_ended_elsewhere_is_noticed(place: Place) -> None:
    store = opened(place, PLAN)
    service, other = Service(store, "first", Limits()), Service(place.open(), "second", Limits())
    send(service, 4)
    assert other.end(NAME, EndRequest(without_effects=True)).records == 0
    service.tick()
    service.tick()
    assert (service.status(NAME).left_out, service.records.pending()) == (4, 0)


def test_stopping_commits_what_the_cohort_allows(store: Store) -> None:
    service = Service(store, "main", Limits())
    send(service, 4)
    service.stop()
    assert kept(store).n == 0
    due_at_the_next_tick(service, NAME)
    service.stop()
    assert kept(store).n == 16


def test_an_answer_given_while_a_trial_is_ending_is_a_cohort_from_the_last_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server tells what is durable, after this one has computed that and nine more."""
    store = opened(place, CLOSABLE)
    service, other = Service(store, "first", Limits()), Service(place.open(), "second", Limits())
    send(service, 20)
    send(service, 9, sequence=2)
    end_trial = store.end_trial
    said = []

    def late(*args: Any) -> Any:
        monkeypatch.setattr(store, "end_trial", end_trial)
        said.append(other.effects(NAME))
        return end_trial(*args)

    monkeypatch.setattr(store, "end_trial", late)
    answer = service.end(NAME)
    told = numbers_in(answer)
    assert told["notes"].pop().startswith("Left out at the end")
    assert [numbers_in(one) for one in said] == [told]


# Batches that wait together.


def test_batches_that_wait_together_are_taken_in_as_one_after_the_other_would_be(store: Store) -> None:
    together, apart = RecordInbox(store, NAME, "one"), RecordInbox(store, NAME, "two")
    faulty = Decoded(pa.table({"group": ["c"], "y": [1.0]}))

    def lot(name: str) -> list[Arrival]:
        return [
            Arrival(records(1)),
            Arrival(records(2, 5.0), Numbers(f"p{name}", 1, 1)),
            Arrival(records(1, 7.0)),
            Arrival(records(2, 9.0), Numbers(f"p{name}", 2, 2)),
            Arrival(records(3), Numbers(f"p{name}", 4, 4)),
            Arrival(records(2, 9.0), Numbers(f"p{name}", 1, 1)),
            Arrival(faulty),
        ]

    for arrivals in (lambda name: lot(name)[:6], lot):  # the last with a faulty one among them, twice
        one = together.receive(arrivals("1"))
        two = [receipt for arrival in arrivals("2") for receipt in apart.receive([arrival])]
        assert [type(outcome) for outcome in one] == [type(outcome) for outcome in two]
        for left, right in zip(one, two, strict=True):
            if isinstance(left, Receipt) and isinstance(right, Receipt):
                assert (left.folded, left.repeated) == (right.folded, right.repeated)
    assert together.account.live.n == apart.account.live.n
    for row, other in zip(together.account.live.effects(), apart.account.live.effects(), strict=True):
        assert (row.estimate, row.std_error) == pytest.approx((other.estimate, other.std_error), rel=1e-12)


def test_a_commit_that_fails_takes_all_that_waited_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = RecordInbox(store, NAME, "main")
    lot = [Arrival(records(4)), Arrival(records(4)), Arrival(records(4), Numbers("p", 1, 1))]
    with monkeypatch.context() as broken:
        broken.setattr(store.shards, "commit", _unreachable)
        assert [type(outcome) for outcome in collector.receive(lot)] == [Unavailable] * 3
    assert (collector.pending, kept(store).n) == (0, 0)
    assert [outcome.folded for outcome in collector.receive(lot) if isinstance(outcome, Receipt)] == [4, 4, 4]
    assert kept(store).n == 12


def _unreachable(*_: Any, **__: Any) -> None:
    raise Unavailable("gone.")


def test_what_a_move_between_servers_gives_up_is_nothing_of_the_lot_at_hand(folder: Place) -> None:
    store = opened(folder, PLAN)
    here, there = RecordInbox(store, NAME, "here"), RecordInbox(folder.open(), NAME, "there")
    receive(here, records(4), "p", 1)  # pending here when its producer goes elsewhere
    for number in (1, 2, 3):
        receive(there, records(10), "p", number)
    lot = [Arrival(records(5), Numbers("q", 1, 1)), Arrival(records(3)), Arrival(records(12), Numbers("p", 4, 4))]
    outcomes = [outcome for outcome in here.receive(lot) if isinstance(outcome, Receipt)]
    assert [(one.folded, one.durable) for one in outcomes] == [(5, 1), (3, None), (12, 4)]
    assert store.shards.sequences(NAME) == {"p": 4, "q": 1}
    assert kept(store).n == 50
    assert [(one.records, one.reason) for one in here.given_up()] == [(4, "")]


def test_two_servers_of_one_name_are_told_apart_in_the_log(folder: Place) -> None:
    store = opened(folder, PLAN)
    here, there = RecordInbox(store, NAME, "host"), RecordInbox(folder.open(), NAME, "host")
    receive(here, records(4), "p", 1)
    receive(there, records(20), "q", 1)
    with pytest.raises(Conflict):
        receive(here, records(20), "p", 2)
    (given_up,) = here.given_up()
    assert "give each its own (--shard)" in given_up.reason


def test_a_bug_in_the_middle_of_a_lot_leaves_nothing_of_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = RecordInbox(store, NAME, "main")
    fold = fa.Trial.fold

    def failing(trial: fa.Trial, data: Any, **settings: Any) -> None:
        if data.num_rows == 2:
            raise ZeroDivisionError
        fold(trial, data, **settings)

    monkeypatch.setattr(fa.Trial, "fold", failing)
    with pytest.raises(ZeroDivisionError):
        collector.receive([Arrival(records(4)), Arrival(records(2), Numbers("p", 1, 1))])
    assert collector.pending == 0


def test_a_receipt_that_cannot_be_made_is_nobody_elses_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = RecordInbox(store, NAME, "main")
    receive(collector, records(10), "p", 1)
    commit = store.shards.commit

    def then_gone(*words: Any, **settings: Any) -> int:
        version = commit(*words, **settings)
        monkeypatch.setattr(store.shards, "sequences", _unreachable)
        return version

    monkeypatch.setattr(store.shards, "commit", then_gone)
    outcomes = collector.receive([Arrival(records(11)), Arrival(records(10), Numbers("p", 1, 1))])
    assert [type(outcome) for outcome in outcomes] == [Receipt, Unavailable]
