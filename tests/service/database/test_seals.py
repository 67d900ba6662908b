"""What lies on the disk: sealed states in their own rows, and of a destroyed key nothing at all."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from foldaway.errors import Conflict, VaultError
from foldaway.keeping.version_keys import VersionKeys
from foldaway.service.database.key_table import KeyTable
from foldaway.service.database.store import Store
from foldaway.service.keys.vault import Vault, version_of
from stores import BOOTSTRAPPED, PLAN, VAULT, Place, forked, renamed

NAME = PLAN.name
MARKER = b"a tally that should not be seen: 3.14159265358979"
KEY = bytes(range(100, 116))


def sealed_key(place: Place) -> bytes:
    ((sealed,),) = place.sql("SELECT key FROM foldaway_keys", file="keys.db")
    return bytes(sealed)


def sealed_state(place: Place, shard: str) -> bytes:
    ((sealed,),) = place.sql("SELECT state FROM foldaway_shards WHERE shard = ?", shard)
    return bytes(sealed)


@pytest.fixture
def store(place: Place) -> Store:
    store = place.open()
    store.create_trial(PLAN, None)
    for shard in ("one", "two"):
        store.shards.commit(NAME, shard, version=0, n=100, state=MARKER + shard.encode() * 500, sequences={})
    return store


def test_states_and_keys_are_sealed_wherever_they_lie(store: Store, place: Place) -> None:
    store.create_trial(BOOTSTRAPPED, KEY)
    assert (store.shards.one(NAME, "one").state or b"").startswith(MARKER)
    assert store.trial_key(BOOTSTRAPPED.name) == KEY
    found = place.files()
    for hidden in (MARKER, KEY, KEY.hex().encode(), b"oneoneone"):
        assert hidden not in found
    # The search can find: the plan is no secret, and what is sealed is there in its sealed form.
    assert PLAN.canonical() in found
    assert sealed_key(place)[9:] in found
    assert sealed_state(place, "one")[9:200] in found


def test_a_state_opens_in_its_own_row_alone(store: Store, place: Place) -> None:
    one, two = sealed_state(place, "one"), sealed_state(place, "two")
    for shard, state in (("one", two), ("two", one)):
        place.sql("UPDATE foldaway_shards SET state = ? WHERE shard = ?", state, shard)
    shards = store.shards
    for ask in (lambda: shards.one(NAME, "one"), lambda: shards.one(NAME, "two"), lambda: shards.all(NAME)):
        with pytest.raises(VaultError, match=r"state:small:\w+:1 was altered, damaged or put in another place"):
            ask()
    place.sql("UPDATE foldaway_shards SET state = ? WHERE shard = 'one'", one)
    assert (store.shards.one(NAME, "one").state or b"").startswith(MARKER)


def test_an_older_state_does_not_come_back(store: Store, place: Place) -> None:
    older = sealed_state(place, "one")
    store.shards.commit(NAME, "one", version=1, n=200, state=b"newer", sequences={})
    place.sql("UPDATE foldaway_shards SET state = ? WHERE shard = 'one'", older)
    with pytest.raises(VaultError, match="state:small:one:2 was altered"):
        store.shards.one(NAME, "one")


def test_who_reads_while_others_write_gets_a_version_that_opens(store: Store, place: Place) -> None:
    """Between the row and its key there may be a commit, which destroys the key of what was read."""
    over = threading.Event()

    def read() -> None:
        mine = place.open()
        while not over.is_set():
            one, two = mine.shards.all(NAME)
            assert one.state is not None and two.state is not None  # noqa: PT018
            seen.append((one.version, one.n, len(one.state)))
        mine.close()

    seen: list[tuple[int, int, int]] = []
    reader = threading.Thread(target=read)
    reader.start()
    last = 150
    for version in range(1, last):
        store.shards.commit(NAME, "one", version=version, n=version, state=bytes(version), sequences={})
    while reader.is_alive() and not (seen and seen[-1][0] == last):  # on a busy machine it has not begun yet
        time.sleep(0.01)
    over.set()
    reader.join()
    assert seen and seen[-1][0] == last, "the reader gave up"  # noqa: PT018
    assert seen == sorted(seen)
    assert all(version - 1 == n == size for version, n, size in seen if version > 1)


def test_a_version_takes_both_keys_and_the_next_destroys_its_own(store: Store, place: Place) -> None:
    """A copy of the database, its master key and all that the file has later do not open what was."""
    keys = VersionKeys(store._seals.versions.file)
    before = sealed_state(place, "one")
    name = version_of(before)
    assert name is not None
    key = keys.find(name)
    assert key is not None
    assert VAULT.decrypt(before, "state:small:one:1", key).startswith(MARKER)
    with pytest.raises(VaultError):
        VAULT.decrypt(before, "state:small:one:1")
    with pytest.raises(VaultError):
        Vault([bytes(32)]).decrypt(before, "state:small:one:1", key)
    store.shards.commit(NAME, "one", version=1, n=200, state=b"newer", sequences={})
    assert keys.find(name) is None
    assert key not in keys.file.read_bytes()
    with pytest.raises(Conflict):  # the key of what was never stored is gone as well
        store.shards.commit(NAME, "one", version=1, n=300, state=b"too late", sequences={})
    now = version_of(sealed_state(place, "one"))
    other = version_of(sealed_state(place, "two"))
    slots = keys.file.read_bytes()
    assert {slots[i : i + 32] for i in range(32, len(slots), 32)} == {
        bytes(32),
        keys.find(now or b""),
        keys.find(other or b""),
    }


def test_a_key_opens_for_its_own_plan_alone(store: Store, place: Place) -> None:
    store.create_trial(BOOTSTRAPPED, KEY)
    place.sql("UPDATE foldaway_keys SET fingerprint = ?", PLAN.fingerprint, file="keys.db")
    with pytest.raises(VaultError, match="altered, damaged or put in another place"):
        store.trial_key(NAME)


def test_an_older_state_is_gone_from_sqlites_files(folder: Place) -> None:
    store = folder.open()
    store.create_trial(PLAN, None)
    version = 0
    for size in (500_000, 200, 70_000, 0):
        older = sealed_state(folder, "main") if version else b"nothing yet, this is not in any file"
        version = store.shards.commit(NAME, "main", version=version, n=0, state=os.urandom(size), sequences={})
        found = folder.files()
        pieces = [older[i : i + 24] for i in range(9, max(10, len(older) - 24), 1_000)]
        assert not any(piece in found for piece in pieces)
    assert sealed_state(folder, "main")[9:] in folder.files()


def test_a_destroyed_key_is_gone_from_the_files(place: Place) -> None:
    store = place.open()
    store.create_trial(BOOTSTRAPPED, KEY)
    sealed = sealed_key(place)
    # PostgreSQL's write-ahead log keeps the sealed key until it is recycled; its tables must not.
    found = place.files(log=False)
    for piece in (sealed, sealed[9:25], sealed[-16:]):
        assert piece in found
    store.end_trial(BOOTSTRAPPED.name, "{}")
    found = place.files(log=False)
    assert BOOTSTRAPPED.canonical() in found
    for piece in (sealed, sealed[9:25], sealed[-16:], KEY):
        assert piece not in found


@pytest.mark.once
def test_a_key_whose_trial_ended_right_before_a_crash_goes_at_the_next_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    store = place.open()
    store.create_trial(BOOTSTRAPPED, KEY)
    sealed = sealed_key(place)
    with monkeypatch.context() as patch:
        patch.setattr(KeyTable, "destroy", crash)
        with pytest.raises(KeyboardInterrupt):
            store.end_trial(BOOTSTRAPPED.name, '{"final": 1}')
    assert sealed_key(place) == sealed
    assert store.trial_key(BOOTSTRAPPED.name) is None  # whatever is still there
    again = place.open()
    assert place.sql("SELECT * FROM foldaway_keys", file="keys.db") == []
    assert sealed not in place.files(log=False)
    assert again.trial(BOOTSTRAPPED.name).final == '{"final": 1}'


@pytest.mark.once
def test_ending_once_more_finishes_what_broke_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    store = place.open()
    store.create_trial(BOOTSTRAPPED, KEY)
    with monkeypatch.context() as patch:
        patch.setattr(KeyTable, "destroy", crash)
        with pytest.raises(KeyboardInterrupt):
            store.end_trial(BOOTSTRAPPED.name, '{"final": 1}')
    assert store.end_trial(BOOTSTRAPPED.name, '{"final": 2}').final == '{"final": 1}'
    assert place.sql("SELECT * FROM foldaway_keys", file="keys.db") == []


@pytest.mark.once
def test_a_server_killed_while_it_ends_leaves_no_trial_open_without_its_key(place: Place) -> None:
    sealed: list[bytes] = []
    for attempt in range(8):
        plan = renamed(BOOTSTRAPPED, f"trial-{attempt}")
        store = place.open()
        store.create_trial(plan, KEY)
        sealed.append(sealed_key(place))
        pid = forked(lambda name=plan.name: _close(place, name))  # type: ignore[misc]
        time.sleep(0.004 * attempt)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        after = place.open()
        ended = after.trial(plan.name).status == "ended"
        assert after.trial_key(plan.name) == (None if ended else KEY)
        after.end_trial(plan.name, "{}")
        assert place.sql("SELECT * FROM foldaway_keys", file="keys.db") == []
    found = place.files(log=False)
    assert not any(blob in found for blob in sealed)


def _close(place: Place, name: str) -> None:
    place.open().end_trial(name, "{}")
