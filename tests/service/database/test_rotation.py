"""Rotating the master key: the new key opens all, the old one nothing, and no moment is a bad one to be killed in."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from foldaway.errors import VaultError
from foldaway.service.database import seals
from foldaway.service.database import store as store_module
from foldaway.service.database.store import Store, rotate_key
from foldaway.service.keys.master_key import drop_old_keys, read_keys, write_keys
from foldaway.service.keys.vault import Vault, sealed_under
from stores import BOOTSTRAPPED, PLAN, Place, forked, renamed

NAME = PLAN.name
KEY = bytes(range(100, 116))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "master.key"


@pytest.fixture
def vault(key_file: Path) -> Vault:
    return Vault.open(key_file.parent, environ={})


@pytest.fixture
def filled(place: Place, vault: Vault) -> Store:
    found = place.open(vault)
    found.create_trial(PLAN, None)
    found.create_trial(BOOTSTRAPPED, KEY)
    for shard in ("one", "two"):
        found.shards.commit(
            NAME, shard, version=0, n=100, state=f"state of {shard}".encode(), sequences={shard: (0, 1)}
        )
    found.shards.leave_out(NAME, "idle", 1)
    return found


def opens_all(place: Place, vault: Vault) -> bool:
    found = place.open(vault)
    states = {row.shard: row.state for row in found.shards.all(NAME)}
    return (
        states["one"] == b"state of one"
        and states["two"] == b"state of two"
        and states["idle"] is None
        and found.trial_key(BOOTSTRAPPED.name) == KEY
    )


def test_the_new_key_opens_all_and_the_old_one_nothing(filled: Store, place: Place, key_file: Path) -> None:
    (old,) = read_keys(key_file)
    ((before,),) = place.sql("SELECT state FROM foldaway_shards WHERE shard = 'one'")
    assert filled.sealed_under() == {Vault([old]).current}
    rotate_key(filled)
    (new,) = read_keys(key_file)
    assert new != old
    assert opens_all(place, Vault([new]))
    assert filled.sealed_under() == {Vault([new]).current}
    with pytest.raises(VaultError, match="not among the keys given"):
        place.open(Vault([old]))
    for table, column, file in (("foldaway_shards", "state", "foldaway.db"), ("foldaway_keys", "key", "keys.db")):
        for (sealed,) in place.sql(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL", file=file):
            assert sealed_under(bytes(sealed)) == Vault([new]).current
    if place.server is None:
        assert bytes(before)[9:] not in place.files()
    assert filled.shards.commit(NAME, "one", version=1, n=200, state=b"", sequences={"one": (1, 2)}) == 2


def test_a_running_server_goes_on_under_the_new_key(filled: Store, place: Place, key_file: Path) -> None:
    running = place.open(Vault.open(None, key_file, {}))
    rotate_key(filled)
    assert running.shards.commit(NAME, "one", version=1, n=200, state=b"after", sequences={"one": (1, 2)}) == 2
    assert running.trial_key(BOOTSTRAPPED.name) == KEY
    rotate_key(filled)
    reader = Vault.open(None, key_file, {})
    assert place.open(reader).shards.one(NAME, "one").state == b"after"
    assert running.shards.one(NAME, "two").state == b"state of two"


def test_a_server_without_the_new_key_file_writes_nothing_under_the_old_key(
    filled: Store, place: Place, vault: Vault
) -> None:
    elsewhere = place.open(Vault([*vault._keys.values()]))
    rotate_key(filled)
    with pytest.raises(VaultError, match="not among the keys given"):
        elsewhere.shards.commit(NAME, "one", version=1, n=200, state=b"", sequences={})
    with pytest.raises(VaultError, match="not among the keys given"):
        elsewhere.create_trial(renamed(BOOTSTRAPPED, "more"), KEY)
    assert filled.shards.one(NAME, "one").version == 1


@pytest.mark.once
def test_a_rotation_that_broke_off_between_the_databases_can_be_read_and_finished(
    filled: Store, place: Place, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = read_keys(key_file)
    real = seals.seal_anew

    def crash_at_keys(connection: object, part: str, vault: Vault) -> None:
        if part == "keys":
            raise KeyboardInterrupt
        real(connection, part, vault)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("foldaway.service.database.store.seal_anew", crash_at_keys)
        with pytest.raises(KeyboardInterrupt):
            rotate_key(filled)
    new, kept = read_keys(key_file)
    assert kept == old
    restarted = place.open(Vault.open(None, key_file, {}))
    assert restarted.sealed_under() == {Vault([old]).current, Vault([new]).current}
    assert opens_all(place, Vault.open(None, key_file, {}))
    restarted.shards.commit(NAME, "idle", version=0, n=100, state=b"more", sequences={})
    rotate_key(restarted)
    assert read_keys(key_file) == [new]
    assert restarted.sealed_under() == {Vault([new]).current}
    assert place.open(Vault([new])).shards.one(NAME, "idle").state == b"more"


@pytest.mark.once
def test_a_rotation_killed_at_any_moment_loses_nothing(filled: Store, place: Place, key_file: Path) -> None:
    rng = random.Random(5)
    for _ in range(6):
        reading, writing = os.pipe()
        pid = forked(lambda out=writing: _rotate_for_ever(place, key_file, out))  # type: ignore[misc]
        os.close(writing)
        assert os.read(reading, 1)
        time.sleep(rng.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        assert opens_all(place, Vault.open(None, key_file, {}))
    rotate_key(filled)
    (last,) = read_keys(key_file)
    assert opens_all(place, Vault([last]))


def test_commits_go_on_while_keys_are_rotated(filled: Store, place: Place, key_file: Path) -> None:
    done = threading.Event()
    versions: list[int] = []

    def run() -> None:
        server = place.open(Vault.open(None, key_file, {}))
        version = 1
        while not done.is_set():
            version = server.shards.commit(NAME, "one", version=version, n=0, state=b"%d" % version, sequences={})
            time.sleep(0.002)
        versions.append(version)

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(6):
        rotate_key(filled)
        time.sleep(0.02)
    done.set()
    thread.join()
    assert versions
    found = place.open(Vault.open(None, key_file, {})).shards.one(NAME, "one")
    assert (found.version, found.state) == (versions[0], b"%d" % (versions[0] - 1))
    assert len(read_keys(key_file)) == 1


def test_two_rotations_at_once_drop_no_key_that_is_needed(filled: Store, place: Place, key_file: Path) -> None:
    pids = [forked(lambda: _rotate_times(place, key_file, 5)) for _ in range(2)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    assert len(read_keys(key_file)) == 1
    assert opens_all(place, Vault.open(None, key_file, {}))


def test_a_second_rotation_waits_for_the_first(
    filled: Store, place: Place, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = threading.Thread(target=rotate_key, args=[place.open(Vault.open(None, key_file, {}))])
    waited: list[bool] = []

    def drop_late(file: Path) -> None:
        if not waited:
            kept = read_keys(file)
            second.start()
            second.join(0.3)
            waited.append(second.is_alive() and read_keys(file) == kept)
        drop_old_keys(file)

    monkeypatch.setattr(store_module, "drop_old_keys", drop_late)
    rotate_key(filled)
    second.join()
    assert waited == [True]
    assert len(read_keys(key_file)) == 1
    assert opens_all(place, Vault.open(None, key_file, {}))


def test_a_key_in_the_environment_is_rotated_by_putting_a_new_one_before_it(place: Place) -> None:
    old, new = bytes(32), bytes([1] * 32)
    filled = place.open(Vault.open(None, None, {"FOLDAWAY_KEY": old.hex()}))
    filled.create_trial(PLAN, None)
    filled.shards.commit(NAME, "one", version=0, n=100, state=b"state", sequences={})
    with pytest.raises(VaultError, match="put a new one before it there"):
        rotate_key(filled)
    both = place.open(Vault.open(None, None, {"FOLDAWAY_KEY": f"{new.hex()},{old.hex()}"}))
    # Until then the old key goes on sealing, so that servers which have only that one go on as well.
    both.shards.commit(NAME, "two", version=0, n=100, state=b"state", sequences={})
    assert filled.shards.one(NAME, "two").state == b"state"
    rotate_key(both)
    assert place.open(Vault([new])).shards.one(NAME, "one").state == b"state"


def test_a_new_key_that_someone_put_first_is_used(filled: Store, place: Place, key_file: Path) -> None:
    chosen = bytes([9] * 32)
    write_keys(key_file, [chosen, *read_keys(key_file)])
    rotate_key(filled)
    assert read_keys(key_file) == [chosen]
    assert opens_all(place, Vault([chosen]))


def test_a_key_file_that_cannot_be_written_is_said_so(
    folder: Place, vault: Vault, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise VaultError("no")

    found = folder.open(vault)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "drop_old_keys", refuse)
        with pytest.raises(VaultError, match="all is sealed under the new key, but the old one stays in"):
            rotate_key(found)
    assert found.sealed_under() == {Vault(read_keys(key_file)).current}
    key_file.unlink()
    key_file.parent.rmdir()
    with pytest.raises(VaultError, match="cannot be rotated: No such file"):
        rotate_key(found)


def _rotate_for_ever(place: Place, key_file: Path, begins: int) -> None:
    while True:
        found = place.open(Vault.open(None, key_file, {}))
        os.write(begins, b".")
        rotate_key(found)


def _rotate_times(place: Place, key_file: Path, times: int) -> None:
    for _ in range(times):
        rotate_key(place.open(Vault.open(None, key_file, {})))
