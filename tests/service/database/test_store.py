"""The store, on both databases: trials, shards, tokens, and what a commit changes or leaves alone."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foldaway as fa
from foldaway.errors import (
    Conflict,
    FoldawayError,
    StoreError,
    TrialEnded,
    TrialExists,
    Unavailable,
    UnknownTrial,
    VaultError,
)
from foldaway.service.database.shard_table import ShardRow
from foldaway.service.database.store import Store
from foldaway.service.keys.tokens import Wanted, issue, verify
from foldaway.service.keys.vault import Vault
from plans import SMALL
from postgres import Postgres
from stores import BOOTSTRAPPED, PLAN, VAULT, Place

NAME = PLAN.name
KEY = bytes(range(100, 116))


@pytest.fixture
def store(place: Place) -> Store:
    store = place.open()
    store.create_trial(PLAN, None)
    return store


def everything(store: Store, name: str = NAME) -> tuple[Any, ...]:
    return store.trial(name), store.shards.all(name), store.shards.sequences(name)


def commit(store: Store, shard: str = "main", version: int = 0, **changes: Any) -> int:
    wanted: dict[str, Any] = {"n": 100, "state": b"tallies", "sequences": {"p": (version, version + 1)}, **changes}
    return store.shards.commit(NAME, shard, version=version, **wanted)


def test_a_plan_is_registered_once(place: Place) -> None:
    store = place.open()
    row = store.create_trial(PLAN, None)
    assert (row.name, row.fingerprint, row.status, row.new) == (NAME, PLAN.fingerprint, "open", True)
    assert fa.Plan.loads(row.plan) == PLAN
    assert (row.ended, row.final) == (None, None)
    again = place.open().create_trial(PLAN, None)
    assert not again.new
    assert again.created == row.created
    assert store.trial(NAME) == again
    assert store.trials() == [again]


def test_a_changed_plan_is_another_trial(store: Store) -> None:
    before = everything(store)
    with pytest.raises(TrialExists, match="a changed plan is another trial"):
        store.create_trial(fa.Plan(**{**SMALL, "confidence": 0.9}), None)
    assert everything(store) == before
    other = store.create_trial(fa.Plan(**{**SMALL, "name": "Another", "confidence": 0.9}), None)
    assert other.new
    assert [row.name for row in store.trials()] == sorted(["Another", NAME])


@pytest.mark.parametrize("name", ["none", "", "small\0", "\ud800", "x" * 10_000, "'; DROP TABLE foldaway_trials; --"])
def test_a_trial_that_is_not_there_is_unknown(store: Store, name: str) -> None:
    for ask in (store.trial, store.shards.all, store.trial_key, lambda name: store.shards.one(name, "main")):
        with pytest.raises(UnknownTrial, match="no trial with this name"):
            ask(name)
    with pytest.raises(UnknownTrial):
        store.shards.commit(name, "main", version=0, n=1, state=b"", sequences={})
    with pytest.raises(UnknownTrial):
        store.shards.leave_out(name, "main", 1)
    with pytest.raises(UnknownTrial):
        store.end_trial(name, "{}")


def test_commits_follow_one_another(store: Store, place: Place) -> None:
    assert store.shards.one(NAME, "main") == ShardRow("main")
    assert store.shards.all(NAME) == []
    assert store.shards.sequences(NAME) == {}
    assert commit(store, state=b"one", n=100, sequences={"p": (0, 3), "q": (0, 1)}) == 1
    store.shards.leave_out(NAME, "main", 2)
    assert commit(store, version=1, state=b"", n=250, sequences={"p": (3, 9), "r": (0, 2)}) == 2
    assert commit(store, "other", n=7, state=b"else", sequences={}) == 1
    for reader in (store, place.open()):
        assert reader.shards.one(NAME, "main") == ShardRow("main", 2, 250, 2, b"")
        assert reader.shards.all(NAME) == [ShardRow("main", 2, 250, 2, b""), ShardRow("other", 1, 7, 0, b"else")]
        assert reader.shards.sequences(NAME) == {"p": 9, "q": 1, "r": 2}
        assert reader.shards.sequences(NAME, ["p", "nobody"]) == {"p": 9}
        assert reader.shards.sequences(NAME, []) == {}


@pytest.mark.parametrize(
    "stale",
    [
        {"version": 0, "sequences": {}},
        {"version": 2, "sequences": {}},
        {"version": 1, "sequences": {"p": (0, 2)}},
        {"version": 1, "sequences": {"p": (2, 3)}},
        {"version": 1, "sequences": {"q": (1, 2)}},
        {"version": 1, "sequences": {"a": (0, 1), "p": (0, 1), "z": (0, 1)}},
        {"version": 0, "shard": "other", "sequences": {"p": (0, 1)}},
        {"version": 1, "shard": "other", "sequences": {"p": (1, 2)}},
    ],
)
def test_what_is_out_of_date_is_a_conflict_and_changes_nothing(store: Store, stale: dict[str, Any]) -> None:
    commit(store)
    before = everything(store)
    with pytest.raises(Conflict):
        commit(store, state=b"stale", **stale)
    assert everything(store) == before
    assert commit(store, version=1) == 2


def test_many_producers_in_one_commit(store: Store) -> None:
    sequences = {f"producer-{i}": (0, i + 1) for i in range(6_000)}
    commit(store, sequences=sequences)
    assert store.shards.sequences(NAME) == {name: last for name, (_, last) in sequences.items()}
    assert store.shards.sequences(NAME, sequences) == store.shards.sequences(NAME)
    with pytest.raises(Conflict):
        commit(
            store, version=1, sequences={name: (last, 7_000) for name, (_, last) in sequences.items()} | {"p": (1, 2)}
        )
    assert store.shards.sequences(NAME)["producer-3"] == 4


def test_a_trial_that_has_ended_takes_no_more(store: Store) -> None:
    commit(store)
    row = store.end_trial(NAME, '{"final": 1}')
    assert (row.status, row.final) == ("ended", '{"final": 1}')
    assert row.ended is not None
    assert row.ended >= row.created
    before = everything(store)
    assert before[0] == row
    with pytest.raises(TrialEnded, match="takes no more records"):
        commit(store, version=1)
    with pytest.raises(TrialEnded):
        commit(store, "new", sequences={})
    assert everything(store) == before
    # The first word stays the last one.
    assert store.end_trial(NAME, '{"final": 2}') == row
    assert store.create_trial(PLAN, None) == row


def test_records_given_up_are_counted_also_after_the_end(store: Store) -> None:
    store.shards.leave_out(NAME, "main", 3)
    assert store.shards.one(NAME, "main") == ShardRow("main", left_out=3)
    commit(store)
    store.shards.leave_out(NAME, "main", 4)
    store.end_trial(NAME, "{}", {"main": 1})
    store.shards.leave_out(NAME, "main", 5)
    store.shards.leave_out(NAME, "other", 2)
    assert [(row.shard, row.version, row.left_out) for row in store.shards.all(NAME)] == [
        ("main", 1, 12),
        ("other", 0, 2),
    ]


def test_a_trial_ends_on_the_states_that_its_final_word_was_read_from(store: Store) -> None:
    commit(store)
    store.shards.leave_out(NAME, "idle", 1)
    commit(store, "other", sequences={})
    for seen in ({}, {"main": 1}, {"main": 1, "other": 0}, {"main": 1, "other": 1, "third": 1}):
        with pytest.raises(Conflict, match="end it once more"):
            store.end_trial(NAME, "{}", seen)
    assert store.trial(NAME).status == "open"
    store.end_trial(NAME, "{}", {"main": 1, "other": 1})
    assert store.trial(NAME).status == "ended"


def test_a_bootstraps_key_lives_as_long_as_its_trial_is_open(place: Place) -> None:
    store = place.open()
    store.create_trial(BOOTSTRAPPED, KEY)
    store.create_trial(PLAN, None)
    assert store.trial_key(BOOTSTRAPPED.name) == place.open().trial_key(BOOTSTRAPPED.name) == KEY
    assert store.trial_key(NAME) is None
    # The first key counts: records were folded under it.
    store.create_trial(BOOTSTRAPPED, bytes(16))
    assert store.trial_key(BOOTSTRAPPED.name) == KEY
    store.end_trial(BOOTSTRAPPED.name, "{}")
    assert store.trial_key(BOOTSTRAPPED.name) is None
    store.create_trial(BOOTSTRAPPED, KEY)
    assert place.sql("SELECT count(*) FROM foldaway_keys", file="keys.db") == [(0,)]


def test_servers_that_register_a_plan_at_once_share_its_key(place: Place) -> None:
    stores: list[Store] = []
    rows: list[bool] = []
    gate = threading.Barrier(4)

    def register(number: int) -> None:
        gate.wait()
        store = place.open()  # which also makes the tables, all at once
        rows.append(store.create_trial(BOOTSTRAPPED, bytes([number]) * 16).new)
        stores.append(store)

    threads = [threading.Thread(target=register, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rows) == [False, False, False, True]
    assert len({store.trial_key(BOOTSTRAPPED.name) for store in stores}) == 1


def test_tokens_are_kept_and_taken_back(place: Place) -> None:
    store = place.open()
    assert not store.tokens.admins()
    admin, text = issue(Wanted("admin"))
    read, _ = issue(Wanted("read", NAME))
    store.tokens.add(read)
    assert not store.tokens.admins()
    store.tokens.add(admin)
    assert store.tokens.admins()
    assert store.tokens.all() == [admin, read] if admin.created < read.created else [read, admin]
    assert verify(text, store.tokens.find(admin.id))
    store.tokens.note_use(admin.id, "2026-01-31")
    for wanted in (Wanted("ingest", NAME), Wanted("site", NAME, 9)):
        sender, _ = issue(wanted)
        store.tokens.add(sender)
        store.tokens.note_use(sender.id, "2026-01-31")
        assert store.tokens.find(sender.id) == sender  # it would be a receipt
    assert msgspec.structs.replace(admin, used="2026-01-31") == store.tokens.find(admin.id)
    assert [store.tokens.find(id) for id in ("none", "\0", "\ud800", "")] == [None] * 4
    assert place.open().tokens.revoke(admin.id)
    assert not verify(text, store.tokens.find(admin.id))
    assert not store.tokens.admins()
    assert store.tokens.find(read.id) == read
    assert not any(store.tokens.revoke(id) for id in ("none", "\0"))
    with pytest.raises(StoreError):
        store.tokens.add(read)


def test_a_wrong_key_is_said_so_and_changes_nothing(store: Store, place: Place) -> None:
    commit(store)
    before = everything(store)
    wrong = Vault([bytes(32)])
    with pytest.raises(VaultError, match=f"sealed under the key {VAULT.current}, which is not among the keys given"):
        place.open(wrong)
    # A server that was given the wrong key while it ran.
    store._seals.vault = wrong
    for ask in (lambda: store.shards.all(NAME), lambda: commit(store, version=1)):
        with pytest.raises(VaultError, match="not among the keys given"):
            ask()
    store._seals.vault = VAULT
    assert everything(store) == before


@pytest.mark.parametrize(
    "where", ["mysql://u:hush@h/d", "postgresql:/x://", "://", "postgresql://u:hush@h:port/d", "sqlite:///x"]
)
def test_an_address_that_is_none_is_refused_without_its_password(where: str) -> None:
    with pytest.raises(StoreError, match="the form postgresql://") as refused:
        Store.open(where, VAULT)
    assert "hush" not in str(refused.value)
    assert isinstance(refused.value, FoldawayError)


def test_sqlites_files_are_for_their_owner_alone(folder: Place) -> None:
    store = folder.open()
    store.create_trial(BOOTSTRAPPED, KEY)
    files = list(Path(folder.where).iterdir())
    assert {file.name for file in files} >= {"foldaway.db", "keys.db"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(Path(folder.where).stat().st_mode) == 0o700
    # The journals are empty between transactions: no old page is left in them.
    assert all(not file.stat().st_size for file in files if file.name.endswith("-journal"))


def test_sqlite_is_opened_as_it_must_be(folder: Place) -> None:
    store = folder.open()
    for engine in store._engines.values():
        with engine.begin() as connection:
            found = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "secure_delete", "temp_store", "foreign_keys")
            }
        assert found == {
            "journal_mode": "truncate",
            "synchronous": 2,
            "secure_delete": 1,
            "temp_store": 2,
            "foreign_keys": 1,
        }


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"foldaway\.db cannot be opened: Not a directory"):
        Store.open(tmp_path / "file" / "trials", VAULT)


def test_postgresql_answers_when_it_is_on_disk_whatever_its_default(database: Place, postgres: Postgres) -> None:
    name = database.where.rsplit("/", 1)[1]
    for default, found in (("off", "on"), ("remote_apply", "remote_apply")):
        postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = {default}")
        store = database.open()
        with store._trials.begin() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == found
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "10s"
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
        store.close()


def test_addresses_of_postgresql_have_several_spellings(database: Place, postgres: Postgres) -> None:
    name = database.where.rsplit("/", 1)[1]
    folder = str(postgres.folder).replace("/", "%2F")
    for address in (
        database.where.replace("postgresql:", "postgres:"),
        database.where.replace("postgresql:", "postgresql+psycopg:") + "?connect_timeout=3",
        f"postgresql://foldaway@{folder}:{postgres.port}/{name}",
        f"postgresql://foldaway@/{name}?host={folder}&port={postgres.port}",
    ):
        store = Store.open(address, VAULT)
        assert store.trials() == []
        store.close()


def test_without_its_driver_postgresql_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError

    monkeypatch.setattr("sqlalchemy.create_engine", missing)
    with pytest.raises(StoreError, match="pip install"):
        Store.open("postgresql://u@h/d", VAULT)
