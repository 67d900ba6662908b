"""Commits are whole, durable and counted once: whoever is killed, and however many commit at a time."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import msgspec
import pytest

from foldaway.errors import Conflict, TrialEnded, Unavailable
from foldaway.service.database.store import Store
from stores import PLAN, Place, forked

pytestmark = pytest.mark.once

NAME = PLAN.name


class Kept(msgspec.Struct):
    """A state that says which version it is, and of which batches."""

    version: int
    sequences: dict[str, int]
    padding: bytes = b""


def commit_for_ever(place: Place, shard: str, acknowledged: int) -> None:
    """Commit, each time with other producers, and say so after each commit."""
    store = place.open()
    row = store.shards.one(NAME, shard)
    rng = random.Random()
    version, known = row.version, store.shards.sequences(NAME)
    while True:
        moves = {f"p{i}": rng.randint(1, 3) for i in rng.sample(range(12), 5)}
        pairs = {name: (known.get(name, 0), known.get(name, 0) + by) for name, by in moves.items()}
        known |= {name: last for name, (_, last) in pairs.items()}
        state = msgspec.msgpack.encode(Kept(version + 1, known, os.urandom(rng.choice([100, 5_000, 200_000]))))
        version = store.shards.commit(NAME, shard, version=version, n=100 * (version + 1), state=state, sequences=pairs)
        os.write(acknowledged, version.to_bytes(8, "little"))


def check(store: Store, shard: str, acknowledged: int) -> int:
    """State, version, count and sequences are of one moment, and none that was acknowledged is missing."""
    row = store.shards.one(NAME, shard)
    assert row.version >= acknowledged
    if row.version:
        assert row.state is not None
        kept = msgspec.msgpack.decode(row.state, type=Kept)
        assert kept.version == row.version
        assert kept.sequences == store.shards.sequences(NAME)
        assert row.n == 100 * row.version
    else:
        assert store.shards.sequences(NAME) == {}
    return row.version


def drain(pipe: int, last: int) -> int:
    """The last version that the other end has said."""
    said = b""
    while more := os.read(pipe, 65536):
        said += more
    return max([last, *(int.from_bytes(said[i : i + 8], "little") for i in range(0, len(said) - 7, 8))])


def test_a_server_killed_at_any_moment_leaves_a_whole_state(place: Place) -> None:
    store = place.open()
    store.create_trial(PLAN, None)
    rng = random.Random(4)
    acknowledged = 0
    for _ in range(12):
        reading, writing = os.pipe()
        pid = forked(lambda out=writing: commit_for_ever(place, "main", out))  # type: ignore[misc]
        os.close(writing)
        if rng.random() < 0.9:  # else while it starts
            first = os.read(reading, 8)
            acknowledged = int.from_bytes(first, "little")
        time.sleep(rng.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        acknowledged = drain(reading, acknowledged)
        os.close(reading)
        check(store, "main", acknowledged)
    assert acknowledged > 8


def test_a_database_killed_at_any_moment_leaves_a_whole_state(database: Place) -> None:
    assert database.server is not None
    store = database.open()
    store.create_trial(PLAN, None)
    acknowledged = 0
    for _ in range(3):
        reading, writing = os.pipe()

        def work(out: int = writing) -> None:
            try:
                commit_for_ever(database, "main", out)
            except Unavailable:
                return

        pid = forked(work)
        os.close(writing)
        acknowledged = int.from_bytes(os.read(reading, 8), "little")
        time.sleep(random.uniform(0, 0.1))
        database.server.kill()
        assert os.waitpid(pid, 0)[1] == 0  # it was told in our words
        acknowledged = drain(reading, acknowledged)
        os.close(reading)
        with pytest.raises(Unavailable):
            store.ping()
        database.server.start()
        check(store, "main", acknowledged)  # with the same store: nothing was opened again
    assert acknowledged >= 3


def race(store: Store, shard: str, until: int) -> list[int]:
    """Take the producer's next batch again and again, as several servers would; the batches that it won."""
    won: list[int] = []
    version = store.shards.one(NAME, shard).version
    while (known := store.shards.sequences(NAME).get("p", 0)) < until:
        state = msgspec.msgpack.encode([*won, known + 1])
        try:
            version = store.shards.commit(
                NAME, shard, version=version, n=len(won) + 1, state=state, sequences={"p": (known, known + 1)}
            )
        except Conflict:
            continue
        won.append(known + 1)
    return won


def counted_once(store: Store, until: int) -> bool:
    """Whether the shards hold every batch, each exactly once."""
    rows = store.shards.all(NAME)
    batches = [batch for row in rows for batch in msgspec.msgpack.decode(row.state or b"\x90")]
    assert sum(row.n for row in rows) == until
    return sorted(batches) == list(range(1, until + 1))


def test_two_servers_never_both_win_a_sequence(place: Place) -> None:
    store = place.open()
    store.create_trial(PLAN, None)
    pids = [forked(lambda shard=shard: void(race(place.open(), shard, 60))) for shard in ("one", "two")]  # type: ignore[misc]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    assert counted_once(store, 60)


def test_two_threads_of_one_store_never_both_win_a_sequence(place: Place) -> None:
    store = place.open()
    store.create_trial(PLAN, None)
    threads = [threading.Thread(target=race, args=(store, shard, 40)) for shard in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted_once(store, 40)


def test_of_two_servers_under_one_shards_name_one_wins_each_version(place: Place) -> None:
    store = place.open()
    store.create_trial(PLAN, None)
    wins: list[int] = []

    def run(producer: str) -> None:
        for _ in range(25):
            row = store.shards.one(NAME, "main")
            pair = {producer: (store.shards.sequences(NAME, [producer]).get(producer, 0), row.version + 1)}
            try:
                wins.append(store.shards.commit(NAME, "main", version=row.version, n=0, state=b"", sequences=pair))
            except Conflict:
                continue

    threads = [threading.Thread(target=run, args=[producer]) for producer in ("p", "q")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(1, store.shards.one(NAME, "main").version + 1))
    assert max(store.shards.sequences(NAME).values()) == len(wins)


def test_commits_by_servers_with_many_producers_in_common_wait_and_do_not_lock_each_other_out(database: Place) -> None:
    store = database.open()
    store.create_trial(PLAN, None)
    faults: list[BaseException] = []

    def run(shard: str, order: int) -> None:
        try:
            version = 0
            for _ in range(25):
                known = store.shards.sequences(NAME)
                names = [f"p{i}" for i in range(30)][::order]
                pairs = {name: (known.get(name, 0), known.get(name, 0) + 1) for name in names}
                try:
                    version = store.shards.commit(NAME, shard, version=version, n=0, state=b"", sequences=pairs)
                except Conflict:
                    continue
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(f"s{i}", 1 if i % 2 else -1)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert set(store.shards.sequences(NAME).values()) == {sum(row.version for row in store.shards.all(NAME))}


def test_a_trial_that_ends_while_servers_commit_keeps_what_its_final_word_says(place: Place) -> None:
    store = place.open()
    store.create_trial(PLAN, None)
    closed = threading.Event()

    def run(shard: str) -> None:
        version = 0
        while not closed.is_set():
            try:
                version = store.shards.commit(NAME, shard, version=version, n=version + 1, state=b"", sequences={})
            except TrialEnded:
                return
            time.sleep(0.002)  # SQLite's locks go to whoever asks first, not to who waits longest

    threads = [threading.Thread(target=run, args=[shard]) for shard in ("one", "two")]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    for _ in range(2_000):
        rows = store.shards.all(NAME)
        try:
            store.end_trial(NAME, str(sum(row.n for row in rows)), {row.shard: row.version for row in rows})
            break
        except Conflict:
            continue
    closed.set()
    for thread in threads:
        thread.join()
    assert store.trial(NAME).final == str(sum(row.n for row in store.shards.all(NAME)))


def void(_: object) -> None:
    """For work whose result stays in its process."""
