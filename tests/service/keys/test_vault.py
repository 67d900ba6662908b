"""The vault: it opens what it sealed, where it was sealed for, and nothing else."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldaway.errors import FoldawayError, VaultError
from foldaway.service.keys.master_key import add_key, drop_old_keys, make_key_file, read_keys, write_keys
from foldaway.service.keys.vault import Vault, key_id, sealed_under

OLD, NEW, OTHER = bytes(range(32)), bytes(range(1, 33)), bytes(range(2, 34))


@given(plain=st.binary(max_size=300), context=st.text(max_size=20))
def test_what_is_sealed_opens_again_and_is_never_sealed_the_same_way(plain: bytes, context: str) -> None:
    vault = Vault([OLD])
    sealed = vault.encrypt(plain, context)
    assert vault.decrypt(sealed, context) == plain
    assert sealed != vault.encrypt(plain, context)
    assert len(sealed) == 1 + 8 + 12 + len(plain) + 16
    assert len(plain) < 4 or plain not in sealed


def test_another_place_does_not_open_it() -> None:
    vault = Vault([OLD])
    sealed = vault.encrypt(b"tallies", "state:a:main:1")
    for context in ("state:b:main:1", "state:a:main:2", "state:a:main:1 ", ""):
        with pytest.raises(VaultError, match="altered, damaged or put in another place") as refused:
            vault.decrypt(sealed, context)
        assert refused.value.__context__ is None


def test_no_bit_can_be_changed() -> None:
    vault = Vault([OLD, NEW])
    sealed = vault.encrypt(b"tallies", "here")
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1
        with pytest.raises(VaultError):
            vault.decrypt(bytes(changed), "here")
    # A key's id is bound in, too: the other key that is held does not open it.
    renamed = sealed[:1] + bytes.fromhex(key_id(NEW)) + sealed[9:]
    with pytest.raises(VaultError, match="altered"):
        vault.decrypt(renamed, "here")


@given(sealed=st.binary(max_size=80))
def test_bytes_that_were_never_sealed_are_refused(sealed: bytes) -> None:
    with pytest.raises(VaultError):
        Vault([OLD]).decrypt(sealed, "here")


def test_the_first_key_seals_and_all_open() -> None:
    old, both, new = Vault([OLD]), Vault([NEW, OLD]), Vault([NEW])
    before, after = old.encrypt(b"tallies", "here"), both.encrypt(b"tallies", "here")
    assert both.decrypt(before, "here") == new.decrypt(after, "here") == b"tallies"
    assert [sealed_under(sealed) == both.current for sealed in (before, after)] == [False, True]
    assert [sealed_under(sealed) for sealed in (before, after)] == [old.current, new.current]
    for vault, sealed in ((new, before), (old, after)):
        with pytest.raises(VaultError, match=f"sealed under the key {sealed_under(sealed)}.*bring back the key file"):
            vault.decrypt(sealed, "here")


def test_vaults_put_together_and_turned_around() -> None:
    both = Vault([NEW]).over(Vault([OLD]))
    assert both.current == key_id(NEW)
    assert both.under(key_id(OLD)).current == key_id(OLD)
    assert both.under(key_id(OLD)).holds(key_id(NEW))
    assert not both.holds(key_id(OTHER))
    with pytest.raises(VaultError, match=key_id(OTHER)):
        both.under(key_id(OTHER))


def test_neither_a_vault_nor_an_error_prints_a_key() -> None:
    vault = Vault([OLD])
    assert repr(vault) == f"Vault: {key_id(OLD)}"
    assert key_id(OLD) not in OLD.hex()
    with pytest.raises(VaultError) as refused:
        Vault.open(None, environ={"FOLDAWAY_KEY": OLD.hex()[:-1] + "g"})
    assert OLD.hex()[:8] not in str(refused.value)
    assert isinstance(refused.value, FoldawayError)


@pytest.mark.parametrize("keys", [[], [b""], [OLD[:31]], [OLD, NEW + b"x"]])
def test_what_is_not_32_bytes_is_no_key(keys: list[bytes]) -> None:
    with pytest.raises(VaultError, match="32 bytes"):
        Vault(keys)


def test_a_key_is_made_beside_the_data_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "trials"
    sealed = Vault.open(folder, environ={}).encrypt(b"tallies", "here")
    file = folder / "master.key"
    assert Vault.open(folder, environ={}).decrypt(sealed, "here") == b"tallies"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [entry.name for entry in folder.iterdir()] == ["master.key"]
    assert len(file.read_text()) == 65
    (folder / "foldaway.db").touch()
    file.rename(tmp_path / "elsewhere")
    with pytest.raises(VaultError, match="encrypted, and their key is not there"):  # as where a backup was restored
        Vault.open(folder, environ={})
    assert [entry.name for entry in folder.iterdir()] == ["foldaway.db"]


def test_the_named_file_comes_before_the_environment_and_that_before_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "named.key"
    write_keys(file, [NEW, OLD])
    environ = {"FOLDAWAY_KEY": f"{OTHER.hex().upper()}, {OLD.hex()}\n"}
    assert Vault.open(tmp_path, file, environ).current == key_id(NEW)
    assert Vault.open(tmp_path, None, environ).current == key_id(OTHER)
    assert Vault.open(None, None, environ).holds(key_id(OLD))
    assert not (tmp_path / "master.key").exists()
    assert Vault.open(tmp_path, None, {}).file == tmp_path / "master.key"
    with pytest.raises(
        VaultError,
        match=r"create one \(`foldaway key new FILE`\) and name it with --key-file FILE, or set FOLDAWAY_KEY",
    ):
        Vault.open(None, None, {})


@pytest.mark.parametrize("text", ["", "\n\n", "abc", "g" * 64, "é" * 64, "0" * 63, "0" * 64 + " 1"])
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.key"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(VaultError, match=r"wrong\.key must hold keys of 64 hexadecimal digits"):
        Vault.open(None, file, {})
    assert file.read_text(encoding="utf-8") == text


def test_a_file_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    with pytest.raises(VaultError, match=r"none\.key cannot be read: No such file"):
        Vault.open(None, tmp_path / "none.key", {})
    (tmp_path / "file").touch()
    with pytest.raises(VaultError, match=r"master\.key cannot be made"):
        Vault.open(tmp_path / "file" / "trials", environ={})
    with pytest.raises(VaultError, match=r"x\.key cannot be written: No such file"):
        write_keys(tmp_path / "none" / "x.key", [OLD])


def test_servers_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    found: list[str] = []
    gate = threading.Barrier(8)

    def start() -> None:
        gate.wait()
        found.append(Vault.open(tmp_path, environ={}).current)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["master.key"]


def test_keys_are_added_in_front_and_dropped_behind(tmp_path: Path) -> None:
    file = tmp_path / "master.key"
    make_key_file(file)
    (first,) = read_keys(file)
    make_key_file(file)
    assert read_keys(file) == [first]
    vault = Vault.open(tmp_path, environ={})
    add_key(file)
    assert read_keys(file)[1:] == [first]
    assert len(first) == len(read_keys(file)[0]) == 32
    assert vault.reread().holds(vault.current)
    assert vault.reread().current != vault.current
    drop_old_keys(file)
    assert len(read_keys(file)) == 1
    assert not vault.reread().holds(vault.current)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["master.key"]
    assert Vault([OLD]).reread().current == key_id(OLD)
