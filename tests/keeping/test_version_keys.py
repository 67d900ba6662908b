"""A file of version keys: what is made is found, what is destroyed is in no byte of it, and slots are used again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from foldaway.errors import Unavailable, VaultError
from foldaway.keeping.version_keys import LENGTH, VersionKey, VersionKeys


@pytest.fixture
def keys(tmp_path: Path) -> VersionKeys:
    keys = VersionKeys(tmp_path / "keys" / "version.keys")
    assert not keys.make()
    return keys


def test_a_key_is_found_until_it_is_destroyed(keys: VersionKeys) -> None:
    made = [keys.new() for _ in range(300)]  # more than the file has room for at first
    assert len({each.key for each in made}) == len({each.name for each in made}) == 300
    again = VersionKeys(keys.file)
    assert [again.find(each.name) for each in made] == [each.key for each in made]
    keys.destroy(each.name for each in made[::2])
    left = keys.file.read_bytes()
    for place, each in enumerate(made):
        assert (again.find(each.name) is None) == (each.key not in left) == (place % 2 == 0)
    assert keys.file.stat().st_mode & 0o777 == 0o600


def test_a_slot_is_used_again_and_never_mistaken(keys: VersionKeys) -> None:
    first = keys.new()
    size = keys.file.stat().st_size
    keys.destroy([first.name])
    second = keys.new()
    assert second.name[:4] == first.name[:4]
    keys.destroy([first.name])  # by another server, which is late
    assert (keys.find(first.name), keys.find(second.name)) == (None, second.key)
    for _ in range(1_000):
        keys.destroy([keys.new().name])
    assert keys.file.stat().st_size == size
    assert keys.find(bytes(12)) is None


def test_all_but_those_in_use_go(keys: VersionKeys) -> None:
    made = [keys.new() for _ in range(5)]
    identity = keys.identity()
    keys.keep([made[3].name])
    assert [keys.find(each.name) is not None for each in made] == [False, False, False, True, False]
    assert not any(keys.file.read_bytes().replace(made[3].key, b"")[LENGTH:])
    assert keys.identity() == identity


def test_many_at_once_get_keys_of_their_own(keys: VersionKeys) -> None:
    made: list[VersionKey] = []

    def work() -> None:
        mine = VersionKeys(keys.file)
        for turn in range(40):
            key = mine.new()
            if turn % 2:
                made.append(key)
            else:
                mine.destroy([key.name])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [keys.find(each.name) for each in made] == [each.key for each in made]
    assert len({each.name[:4] for each in made}) == 80


def test_each_file_has_an_identity_and_an_empty_one_gets_it(keys: VersionKeys, tmp_path: Path) -> None:
    assert not keys.make()  # it is there
    empty = VersionKeys(tmp_path / "empty.keys")
    empty.file.touch(0o600)
    assert empty.make()
    assert not empty.make()
    assert len({keys.identity(), empty.identity()}) == 2
    (tmp_path / "text").write_text("0" * 64)
    with pytest.raises(VaultError, match="is not a file of version keys"):
        VersionKeys(tmp_path / "text").identity()
    with pytest.raises(Unavailable, match=r"none\.keys cannot be used: No such file"):
        VersionKeys(tmp_path / "none.keys").new()
