"""A database that is gone, full, read-only or locked: said plainly, nothing changed, and over when it is over."""

from __future__ import annotations

import os
import resource
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from foldaway.errors import FoldawayError, StoreError, Unavailable
from foldaway.service.database import databases
from foldaway.service.database.store import Store
from postgres import Postgres
from served import eventually
from stores import PLAN, VAULT, Place, said_plainly

NAME = PLAN.name
PRODUCER = "a producer whose name is in the statement"


def commit(store: Store, version: int, state: bytes = b"tallies") -> int:
    return store.shards.commit(
        NAME, "main", version=version, n=100, state=state, sequences={PRODUCER: (version, version + 1)}
    )


def filled(place: Place) -> Store:
    store = place.open()
    store.create_trial(PLAN, None)
    commit(store, 0)
    return store


def goes_on(store: Store) -> bool:
    """Whether all is as it was, and the next commit succeeds."""
    row = store.shards.one(NAME, "main")
    return (
        (row.version, row.state, store.shards.sequences(NAME)) == (1, b"tallies", {PRODUCER: 1})
        and commit(store, 1, b"more") == 2
        and store.shards.one(NAME, "main").state == b"more"
    )


def reconnect(store: Store) -> None:
    """So that the settings of a connection are made anew."""
    store._trials.dispose()


def refused(action: Callable[[], Any], words: str) -> None:
    with pytest.raises(Unavailable, match=f"the database is not available: ({words})") as outage:
        action()
    assert said_plainly(outage.value, PRODUCER, NAME, "INSERT", "UPDATE", "SELECT")
    assert isinstance(outage.value, FoldawayError)


def test_a_folder_that_has_gone_and_comes_back(folder: Place) -> None:
    store = filled(folder)
    home = Path(folder.where)
    away = home.rename(home.with_name("away"))
    for ask in (
        store.ping,
        store.trials,
        lambda: store.shards.one(NAME, "main"),
        lambda: commit(store, 1),
        store.tokens.admins,
    ):
        refused(ask, "its file is missing or cannot be opened")
    home.mkdir()
    refused(lambda: commit(store, 1), "its file is missing")
    assert list(home.iterdir()) == []  # no empty database in place of the lost one
    home.rmdir()
    away.rename(home)
    assert goes_on(store)


def test_a_file_that_is_replaced_is_noticed(folder: Place) -> None:
    store = filled(folder)
    file = Path(folder.where) / "foldaway.db"
    kept = file.read_bytes()
    file.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    refused(lambda: commit(store, 1), "its file is damaged")
    file.unlink()
    file.touch()
    refused(lambda: commit(store, 1), "its tables are missing")
    file.write_bytes(kept)
    assert goes_on(store)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more(folder: Place) -> None:
    store = filled(folder)
    size = (Path(folder.where) / "foldaway.db").stat().st_size
    for limit in (0, 600, size, size + 8_192):  # in the journal's header, in its pages, in the database
        with file_size_limit(limit):
            refused(lambda: commit(store, 1, os.urandom(1_000_000)), "its disk is full or failing")
            assert store.shards.one(NAME, "main").version == 1
    assert goes_on(store)


def test_a_full_disk(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(folder)
    with monkeypatch.context() as patch:
        patch.setattr(databases, "_PRAGMAS", (*databases._PRAGMAS, "max_page_count = 30"))
        reconnect(store)
        refused(lambda: commit(store, 1, os.urandom(1_000_000)), "its disk is full")
    reconnect(store)
    assert goes_on(store)


def test_a_read_only_file(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(folder)
    with monkeypatch.context() as patch:
        patch.setattr(databases, "_PRAGMAS", (*databases._PRAGMAS, "query_only = ON"))
        reconnect(store)
        assert store.shards.one(NAME, "main").version == 1
        for write in (lambda: commit(store, 1), lambda: store.shards.leave_out(NAME, "main", 1)):
            refused(write, "it is read-only")
    reconnect(store)
    assert goes_on(store)


def test_a_locked_file(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "PATIENCE", 0.2)
    store = filled(folder)
    other = sqlite3.connect(Path(folder.where) / "foldaway.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused(lambda: commit(store, 1), "another process has it locked")
    assert store.shards.one(NAME, "main").version == 1
    other.rollback()
    other.close()
    assert goes_on(store)


def test_a_server_that_has_gone_and_comes_back(database: Place, postgres: Postgres) -> None:
    store = filled(database)
    postgres.stop()
    try:
        for ask in (store.ping, store.trials, lambda: store.shards.one(NAME, "main"), lambda: commit(store, 1)):
            refused(ask, "it cannot be reached")
        refused(database.open, "it cannot be reached")
    finally:
        postgres.start()
    assert goes_on(store)


def test_a_session_that_is_ended_in_the_middle(
    database: Place, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(database)
    real = type(VAULT).encrypt

    def cut(*args: Any) -> bytes:
        name = database.where.rsplit("/", 1)[1]
        postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(type(VAULT), "encrypt", cut)
        refused(lambda: commit(store, 1), "it is stopping or starting|it cannot be reached")
    assert goes_on(store)


def test_a_server_whose_disk_is_full(database: Place, postgres: Postgres) -> None:
    store = filled(database)
    # Above the 16 MiB of a file of the write-ahead log: if that could not grow, the whole server would fall. In the
    # middle of a page it is taken for a full disk, or, by later versions, for a failing one.
    postgres.stop()
    postgres.start(file_size=20 * 2**20 + 4_096)
    try:
        refused(lambda: commit(store, 1, os.urandom(24 * 2**20)), "its disk is full|it reports a fault of its own")
        assert store.shards.one(NAME, "main").version == 1
    finally:
        postgres.stop()
        postgres.start()
    assert goes_on(store)


def test_a_read_only_server(database: Place, postgres: Postgres) -> None:
    store = filled(database)
    name = database.where.rsplit("/", 1)[1]
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    postgres.execute(end)
    refused(lambda: commit(store, 1), "it is read-only")
    assert store.shards.one(NAME, "main").version == 1
    postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    postgres.execute(end)
    assert goes_on(store)


def test_a_locked_table(database: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_SESSION", databases._SESSION.replace("'10s'", "'200ms'"))
    store = filled(database)
    with psycopg.connect(database.where) as other:
        other.execute("LOCK TABLE foldaway_shards")
        refused(lambda: commit(store, 1), "another server has it locked")
    assert goes_on(store)


def test_all_connections_in_use(database: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "PATIENCE", 0.2)
    store = filled(database)
    held = [store._trials.connect() for _ in range(15)]
    refused(store.ping, "all connections to it are in use")
    for connection in held:
        connection.close()
    assert goes_on(store)


def test_tables_or_a_database_that_are_missing(database: Place, postgres: Postgres) -> None:
    store = filled(database)
    database.sql("ALTER TABLE foldaway_shards RENAME TO elsewhere")
    refused(lambda: commit(store, 1), "its tables are missing")
    database.sql("ALTER TABLE elsewhere RENAME TO foldaway_shards")
    assert goes_on(store)
    refused(lambda: Store.open(postgres.address("none"), VAULT), "no database has this name: create it")


def test_a_password_that_is_missing_or_wrong_and_a_user_that_is_unknown(database: Place, postgres: Postgres) -> None:
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    postgres.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{before}")
    try:
        postgres.execute("SELECT pg_reload_conf()")
        locked, nobody = (database.where.replace("foldaway@", user) for user in ("locked@", "nobody@"))
        eventually(lambda: _answer(locked).startswith("the database is not available: it asks for a password"))
        assert "FOLDAWAY_DATABASE_PASSWORD" in _answer(locked)
        assert "it rejects the password" in _answer(locked, "wrong")
        assert "it rejects this user" in _answer(nobody)
        assert not any("wrong" in said or "locked" in said for said in (_answer(locked), _answer(locked, "wrong")))
    finally:
        rules.write_text(before)
        postgres.execute("SELECT pg_reload_conf()")
        postgres.execute("DROP ROLE locked")


def _answer(address: str, password: str | None = None) -> str:
    """What is said when the database is opened."""
    try:
        Store.open(address, VAULT, password)
    except Unavailable as error:
        return str(error)
    return "opened"


@pytest.mark.parametrize("name", ["a\ud800name", "a\0name"])
def test_what_a_database_cannot_hold_is_refused_without_being_named(place: Place, name: str) -> None:
    store = filled(place)
    with_nul_in_sqlite = place.server is None and "\0" in name  # which SQLite can hold
    if not with_nul_in_sqlite:
        for ask in (
            lambda: store.shards.sequences(NAME, [name]),
            lambda: store.shards.commit(NAME, "main", version=1, n=0, state=b"", sequences={name: (0, 1)}),
        ):
            with pytest.raises(StoreError, match="not one that the database can hold") as fault:
                ask()
            assert not isinstance(fault.value, Unavailable)
            assert said_plainly(fault.value, name, "name\\")
    with pytest.raises(StoreError, match="not one that the database can hold"):
        store.shards.commit(NAME, "main", version=1, n=2**70, state=b"", sequences={})
    assert goes_on(store)


def test_a_fault_that_nobody_thought_of_is_ours_as_well(place: Place) -> None:
    store = filled(place)
    meta = "foldaway_trials_meta"
    place.sql(f"INSERT INTO {meta} SELECT * FROM {meta}")
    with pytest.raises(StoreError, match="not as foldaway left them") as fault:
        commit(store, 1)
    assert said_plainly(fault.value, PRODUCER, meta)
    place.sql(f"DELETE FROM {meta}")
    place.sql(f"INSERT INTO {meta} VALUES (?)", VAULT.current)
    place.sql("CREATE UNIQUE INDEX odd ON foldaway_sequences (sequence)")
    with pytest.raises(StoreError, match=r"the database refused \((23505|SQLITE_CONSTRAINT_UNIQUE)\)") as fault:
        store.shards.commit(NAME, "main", version=1, n=1, state=b"", sequences={"other": (0, 1)})
    assert said_plainly(fault.value, "other", "sequence")
    place.sql("DROP INDEX odd")
    assert goes_on(store)


def test_the_errors_of_many_threads_are_each_their_own(folder: Place) -> None:
    store = filled(folder)
    home = Path(folder.where)
    away = home.rename(home.with_name("away"))
    found: list[bool] = []

    def ask() -> None:
        try:
            store.ping()
        except Unavailable as outage:
            found.append(said_plainly(outage, PRODUCER))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    away.rename(home)
    assert found == [True] * 8
    assert goes_on(store)
