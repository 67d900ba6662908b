"""Which keys a database is sealed under, and sealing all of it anew under others.

A database names the one key that everything in it is sealed under, and every write looks there first. So a server that
started before the key was rotated reads its key file again, instead of sealing with a key that is about to go.

What is overwritten, or goes when its trial ends, is also sealed under a key of its own version, which lies outside the
database: it is stored before the version is, and destroyed once the next one is durable. What the database, its log or
a replica still has of a former version is then noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa

from foldaway.errors import Unavailable, VaultError
from foldaway.keeping.version_keys import VersionKeys
from foldaway.service.database.databases import writing
from foldaway.service.database.outages import guarded
from foldaway.service.database.tables import ENDINGS, HISTORY, KEYS, LOOKS, META, SHARDS, SIGNING, Lock, Part, by_lock
from foldaway.service.keys.vault import HEADER, Vault, sealed_under, version_of


class Superseded(VaultError):
    """The key of a version that was read is gone: there is a newer version, or the keys are not those of the data."""


class Sealing:
    """What one transaction seals, and the versions that it replaces.

    Args:
        vault: Seals with the database's key.
        versions: Where the keys of versions are.
    """

    def __init__(self, vault: Vault, versions: VersionKeys) -> None:
        self.vault = vault
        self._versions = versions
        self._made: list[bytes] = []
        self._former: list[bytes] = []

    def seal(self, plain: bytes, column: sa.Column[bytes], *place: object) -> bytes:
        """Seal bytes for a place in a column; where it is overwritten, under a new key, on the disk by now."""
        if column not in PASSING:
            return self.vault.encrypt(plain, context(column, *place))
        version = self._versions.new()
        self._made.append(version.name)
        return self.vault.encrypt(plain, context(column, *place), version)

    def opened(self, sealed: bytes, column: sa.Column[bytes], *place: object) -> bytes:
        """What was sealed for this place.

        Raises:
            Superseded: The key of its version is gone.
        """
        its, name = context(column, *place), version_of(sealed)
        version = None if name is None else self._versions.find(name)
        if name is not None and version is None:
            raise Superseded(
                f"what is stored as {its} was altered, damaged or put in another place, or its key is not in "
                f"{self._versions.file}: restore the database and this file from the same backup."
            )
        return self.vault.decrypt(sealed, its, version)

    def replaces(self, headers: Sequence[bytes | None]) -> None:
        """Note the versions that are gone once the transaction is committed, by how they begin."""
        self._former += [name for each in headers if each is not None and (name := version_of(bytes(each)))]

    def committed(self) -> None:
        """Destroy the keys of former versions. If that fails, the next start or close does it."""
        with suppress(Unavailable):
            self._versions.destroy(self._former)

    def broke_off(self) -> None:
        """Destroy the keys of what was never committed."""
        with suppress(Unavailable):
            self._versions.destroy(self._made)


class Seals:
    """A vault that follows the database from key to key, and the keys of versions."""

    def __init__(self, vault: Vault, versions: VersionKeys) -> None:
        self.vault = vault
        self.versions = versions

    @contextmanager
    def sealing(self, engine: sa.Engine, part: Part, lock: Lock = "share") -> Iterator[tuple[sa.Connection, Sealing]]:
        """A transaction that seals; the key stays the database's until its end. To change it, lock it for update."""
        with writing(engine).begin() as connection:
            sealing = Sealing(self.under(key_of(connection, part, lock=lock)), self.versions)
            try:
                yield connection, sealing
            except BaseException:
                sealing.broke_off()
                raise
        # Not if the commit itself fails: then nobody knows which version is the last, and both keys stay.
        sealing.committed()

    def under(self, key: str) -> Vault:
        """The vault, sealing with the key of this id; VaultError if it is not to be had."""
        return self._holding(key).under(key)

    def opened(self, sealed: bytes, column: sa.Column[bytes], *place: object) -> bytes:
        """What was sealed for this place."""
        return Sealing(self._holding(sealed_under(sealed)), self.versions).opened(sealed, column, *place)

    def _holding(self, key: str) -> Vault:
        if not self.vault.holds(key):
            self.vault = self.vault.reread()
        return self.vault


class SealedTable:
    """Tables of a database; every public method is one transaction, and lets only our errors out.

    Between reading a version and opening it, another server may have written the next one: then it is read again.
    """

    def __init_subclass__(cls) -> None:
        guarded(cls, Superseded)

    def __init__(self, engine: sa.Engine, seals: Seals) -> None:
        self._engine = engine
        self._writing = writing(engine)
        self._seals = seals

    def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._engine.begin() as connection:
            return connection.execute(query).all()


_KEY_OF = {part: by_lock(sa.select(meta.c.key)) for part, meta in META.items()}


def key_of(connection: sa.Connection, part: Part, *, lock: Lock = None) -> str:
    """The id of the key that a part is sealed under."""
    return str(connection.execute(_KEY_OF[part][lock]).scalar_one())


# Every column that is sealed, by part: the columns that name a place in it, and the context that they make. A state
# opens in its own row alone, and only while it is the row's latest.
_SEALED: dict[Part, dict[sa.Column[bytes], tuple[list[sa.Column[Any]], str]]] = {
    "trials": {
        SHARDS.c.state: ([SHARDS.c.trial, SHARDS.c.shard, SHARDS.c.version], "state:{}:{}:{}"),
        **{
            HISTORY.c[part]: ([HISTORY.c.trial, HISTORY.c.records], f"history:{{}}:{{}}:{part}")
            for part in ("estimates", "answer", "census")
        },
        ENDINGS.c.published: ([ENDINGS.c.trial], "published:{}"),
        LOOKS.c.look: ([LOOKS.c.trial, LOOKS.c.number], "look:{}:{}"),
    },
    "keys": {
        KEYS.c.key: ([KEYS.c.fingerprint], "key:{}"),
        SIGNING.c.key: ([SIGNING.c.purpose], "signing:{}"),
    },
}
_CONTEXTS = {column: form for columns in _SEALED.values() for column, (_, form) in columns.items()}

PASSING = frozenset({SHARDS.c.state, HISTORY.c.answer, HISTORY.c.census, ENDINGS.c.published, LOOKS.c.look, KEYS.c.key})
"""The sealed columns that are overwritten or emptied: each version has a key of its own."""


def context(column: sa.Column[bytes], *place: object) -> str:
    """What bytes are sealed for: a place in a column."""
    return _CONTEXTS[column].format(*place)


def sealed_columns(part: Part, table: sa.Table) -> list[tuple[sa.Column[bytes], list[sa.Column[Any]]]]:
    """The sealed columns of a table, each with the columns that name a place in it."""
    return [(column, place) for column, (place, _) in _SEALED[part].items() if column.table is table]


def header_of(column: sa.Column[bytes]) -> sa.ColumnElement[bytes]:
    """How what is sealed in a column begins: which keys open it."""
    return sa.func.substr(column, 1, max(HEADER.values()), type_=sa.LargeBinary)


def named_in(connection: sa.Connection, part: Part) -> set[bytes]:
    """The names of all version keys that open something in a part."""
    names: set[bytes] = set()
    for column in PASSING & _SEALED[part].keys():
        headers = connection.execute(sa.select(header_of(column)).where(column.is_not(None))).scalars()
        names |= {name for each in headers if (name := version_of(bytes(each)))}
    return names


def seal_anew(connection: sa.Connection, part: Part, sealing: Sealing) -> None:
    """Seal all of a part under the vault's current key, and each version under one of its own, where either is not so.

    The vault must hold the key before, too, and the transaction must have locked it for update.
    """
    vault = sealing.vault
    for column, (place, _) in _SEALED[part].items():
        headers = sa.select(header_of(column).label("header"), *place).where(column.is_not(None))
        for header, *names in connection.execute(headers).all():
            if sealed_under(bytes(header)) == vault.current and (column in PASSING) == bool(version_of(bytes(header))):
                continue
            # One at a time, since states may be large.
            where = sa.and_(*(name == value for name, value in zip(place, names, strict=True)))
            sealed = connection.execute(sa.select(column).where(where)).scalar_one()
            plain = sealing.opened(sealed, column, *names)
            sealing.replaces([header])
            anew = sealing.seal(plain, column, *names)
            connection.execute(column.table.update().where(where).values({column: anew}))
    connection.execute(META[part].update().values(key=vault.current))
