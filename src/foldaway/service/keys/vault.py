"""The vault: what is written down is sealed with AES-256-GCM and bound to the place it was written to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Self

from foldaway.errors import VaultError, instead_of
from foldaway.keeping.sealing import BrokenSeal, seal, unseal
from foldaway.keeping.version_keys import NAME, VersionKey
from foldaway.service.keys.master_key import FILE, LENGTH, VARIABLE, make_key_file, parse_keys, read_keys

# Sealed bytes: form, the key's id, of the second form the name of a version's key, then as `seal` gives them.
_LASTING, _VERSIONED = b"\x01", b"\x02"
_ID = 8
HEADER = {_LASTING: 1 + _ID, _VERSIONED: 1 + _ID + NAME}
"""How many bytes say which keys open what follows, by form."""


class Vault:
    """Keys of which the first seals and all open.

    Args:
        keys: Keys of 32 bytes.
        file: The key file they were read from, if one was.

    Example:
        >>> vault = Vault([bytes(32)])
        >>> sealed = vault.encrypt(b"tallies", "state:demo:main:1")
        >>> vault.decrypt(sealed, "state:demo:main:1")
        b'tallies'
        >>> vault.decrypt(sealed, "state:demo:till:1")
        Traceback (most recent call last):
        foldaway.errors.VaultError: what is stored as state:demo:till:1 was altered, damaged or put in another place.
    """

    def __init__(self, keys: Iterable[bytes], *, file: Path | None = None) -> None:
        self._keys = {key_id(key): key for key in keys}
        if not self._keys or any(len(key) != LENGTH for key in self._keys.values()):
            raise VaultError(f"a vault needs keys of {LENGTH} bytes each.")
        self.file = file

    @classmethod
    def open(cls, folder: Path | None, key_file: Path | None = None, environ: Mapping[str, str] = os.environ) -> Self:
        """The vault under the keys of a file, of the environment's ``FOLDAWAY_KEY``, or of the folder's own file.

        Args:
            folder: Where the data is; a new key is made there, in ``master.key``, if there is neither key nor data.
            key_file: A file with keys, before anything else.
            environ: The environment, before the folder.

        Raises:
            VaultError: There is no key to what is there, or what should be one is not.
        """
        if key_file is None and VARIABLE in environ:
            return cls(parse_keys(environ[VARIABLE], f"the environment's {VARIABLE}"))
        if key_file is None:
            if folder is None:
                raise VaultError(
                    "there is no key to encrypt with: create one (`foldaway key new FILE`) and name it with --key-file "
                    f"FILE, or set {VARIABLE}. All servers and commands on one database need the same key."
                )
            key_file = folder / FILE
            if not key_file.exists():
                if (folder / "foldaway.db").exists():  # of which a new key would open nothing
                    raise VaultError(
                        f"the trials in {folder} are encrypted, and their key is not there: bring back {key_file}, or "
                        f"the {VARIABLE} that they were made with."
                    )
                make_key_file(key_file)
        return cls(read_keys(key_file), file=key_file)

    def __repr__(self) -> str:
        return f"Vault: {', '.join(self._keys)}"

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        return next(iter(self._keys))

    def holds(self, id: str) -> bool:
        """Whether the key of this id is here."""
        return id in self._keys

    def under(self, id: str) -> Vault:
        """The same keys, but sealing with the one of this id."""
        return Vault([self._key(id), *self._keys.values()], file=self.file)

    def _key(self, id: str) -> bytes:
        if id not in self._keys:
            raise VaultError(
                f"the data is sealed under the key {id}, which is not among the keys given; "
                "bring back the key file, or the FOLDAWAY_KEY, that the data was made with."
            )
        return self._keys[id]

    def over(self, other: Vault) -> Vault:
        """The keys of both, sealing as this one does."""
        return Vault([*self._keys.values(), *other._keys.values()], file=self.file)

    def reread(self) -> Vault:
        """The vault under the keys that its file holds by now."""
        return self if self.file is None else Vault(read_keys(self.file), file=self.file)

    def encrypt(self, plain: bytes, context: str, version: VersionKey | None = None) -> bytes:
        """Seal bytes for one place, named by the context: anywhere else they will not open.

        With a version's key, both it and the vault's are needed to open them.
        """
        header, key = _LASTING + bytes.fromhex(self.current), self._keys[self.current]
        if version is not None:
            header, key = _VERSIONED + header[1:] + version.name, _both(key, version.key)
        return header + seal(key, plain, header + context.encode())

    def decrypt(self, sealed: bytes, context: str, version: bytes | None = None) -> bytes:
        """Open what was sealed for this place, with its version's key, if it has one.

        Raises:
            VaultError: The key is not here, or the bytes are not what was sealed for this place.
        """
        key, header = self._key(sealed_under(sealed)), HEADER[sealed[:1]]
        broken = VaultError(f"what is stored as {context} was altered, damaged or put in another place.")
        with instead_of(BrokenSeal, broken):
            return unseal(
                key if version is None else _both(key, version), sealed[header:], sealed[:header] + context.encode()
            )


def key_id(key: bytes) -> str:
    """Eight bytes in hexadecimal that tell keys apart, and nothing else about them."""
    return blake2b(key, digest_size=_ID, person=b"foldaway-keyid").hexdigest()


def sealed_under(sealed: bytes) -> str:
    """The id of the key that sealed these bytes, whole or only their header."""
    if len(sealed) < HEADER.get(sealed[:1], len(sealed) + 1):
        raise VaultError("these bytes were not sealed by foldaway, or they are damaged.")
    return sealed[1 : 1 + _ID].hex()


def version_of(sealed: bytes) -> bytes | None:
    """The name of the version's key that these bytes need, if they need one."""
    return sealed[1 + _ID : HEADER[_VERSIONED]] if sealed[:1] == _VERSIONED else None


def _both(key: bytes, version: bytes) -> bytes:
    """The key that takes a vault's and a version's."""
    return blake2b(version, key=key, digest_size=LENGTH, person=b"foldaway-version").digest()
