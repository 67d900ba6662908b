"""A secret that another user could have put where it lies is refused, wherever secrets are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from foldaway.errors import FoldawayError, SourceError, VaultError
from foldaway.keeping.planted import require_own, require_private
from foldaway.keeping.secret import read_or_make_key
from foldaway.keeping.user_keys import user_key, user_signer
from foldaway.keeping.version_keys import VersionKeys
from foldaway.service.keys.master_key import make_key_file, read_keys, write_keys
from foldaway.service.server import Settings, open_store, serve

SECRET = "00" * 32


def trusted(path: Path) -> bool:
    try:
        require_own(path, SourceError)
    except SourceError:
        return False
    return True


def test_ones_own_file_in_ones_own_folder_is_trusted(tmp_path: Path) -> None:
    file = tmp_path / "own.key"
    assert trusted(file)
    assert trusted(tmp_path / "no" / "such" / "folder" / "own.key")
    for mode in (0o400, 0o444, 0o600, 0o644):  # that others may read it is for its owner to know
        file.touch()
        file.chmod(mode)
        assert trusted(file)


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_not(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    assert not trusted(folder / "made.key")
    (folder / "made.key").touch(0o600)
    assert not trusted(folder / "made.key")
    link = tmp_path / "link.key"
    link.symlink_to(folder / "made.key")
    assert not trusted(link)
    folder.chmod(mode | 0o1000)  # sticky: nobody replaces the files of others
    assert trusted(folder / "made.key")
    (folder / "made.key").chmod(0o660)
    assert not trusted(folder / "made.key")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_another_users_file_or_folder_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    file = folder / "their.key"
    file.touch(0o600)
    os.chown(file, 12345, 12345)
    assert not trusted(file)
    os.chown(file, 0, 0)
    os.chown(folder, 12345, 12345)
    assert not trusted(file)
    with pytest.raises(FoldawayError, match="belongs to another user"):
        require_private(folder)


@pytest.mark.parametrize(
    ("error", "read"),
    [
        (SourceError, lambda file: read_or_make_key(file)),
        (SourceError, lambda file: read_or_make_key(file, new=False)),
        (VaultError, lambda file: read_keys(file)),
        (VaultError, lambda file: make_key_file(file.with_name("another"))),
        (VaultError, lambda file: VersionKeys(file).make()),
        (FoldawayError, lambda file: open_store(Settings(file.parent / "data", password_file=file))),
        (FoldawayError, lambda file: serve(Settings(file.parent, certificate=file, certificate_key=file))),
    ],
)
def test_every_reader_of_secrets_asks(tmp_path: Path, error: type[Exception], read: Callable[[Path], object]) -> None:
    write_keys(tmp_path / "planted", [bytes.fromhex(SECRET)])
    tmp_path.chmod(0o770)
    with pytest.raises(error, match=r"others can write to the folder .*: *|say chmod go-w") as refused:
        read(tmp_path / "planted")
    assert SECRET not in str(refused.value)


def test_the_users_own_keys_are_refused_where_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = os.umask(0o002)  # as of many distributions' users
    first, signer = user_key("ab" * 16), user_signer()
    os.umask(before)
    for folder in (tmp_path / "foldaway" / "keys", tmp_path / "foldaway"):
        assert folder.stat().st_mode & 0o077 == 0
        folder.chmod(0o775)
        with pytest.raises(SourceError, match="say chmod go-w"):
            user_key("ab" * 16) if folder.name == "keys" else user_signer()
        folder.chmod(0o700)
    assert (user_key("ab" * 16), user_signer().key) == (first, signer.key)
