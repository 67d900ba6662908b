"""The keys' table: the trials' keys, sealed, apart from the trials."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import sqlalchemy as sa

from foldaway.keeping.secret import LENGTH
from foldaway.service.database.databases import vacuum
from foldaway.service.database.seals import SealedTable
from foldaway.service.database.tables import KEYS, SIGNING, insert_new


class KeyTable(SealedTable):
    """The trials' keys, sealed, by their plan's fingerprint, for as long as their trials are open."""

    def add(self, fingerprint: str, key: bytes) -> None:
        """Store a key, unless the plan has one: the first counts."""
        with self._seals.sealing(self._engine, "keys") as (connection, sealing):
            sealed = sealing.seal(key, KEYS.c.key, fingerprint)
            insert_new(connection, KEYS, [{"fingerprint": fingerprint, "key": sealed}])

    def find(self, fingerprint: str) -> bytes | None:
        """A plan's key, if it is there."""
        rows = self._rows(sa.select(KEYS.c.key).where(KEYS.c.fingerprint == fingerprint))
        return self._seals.opened(rows[0].key, KEYS.c.key, fingerprint) if rows else None

    def fingerprints(self) -> set[str]:
        """The plans that have a key."""
        return {row.fingerprint for row in self._rows(sa.select(KEYS.c.fingerprint))}

    def signing(self, purpose: str, made: bytes | None = None, *, anew: bool = False) -> bytes:
        """A key of the store's own, the same for all servers: the first that was made for a purpose, unless anew."""
        with self._seals.sealing(self._engine, "keys") as (connection, sealing):
            if anew:
                connection.execute(SIGNING.delete().where(SIGNING.c.purpose == purpose))
            mine = sealing.seal(made or secrets.token_bytes(LENGTH), SIGNING.c.key, purpose)
            insert_new(connection, SIGNING, [{"purpose": purpose, "key": mine}])  # the first counts
            query = sa.select(SIGNING.c.key).where(SIGNING.c.purpose == purpose)
            sealed = connection.execute(query).scalar_one()
        return self._seals.opened(sealed, SIGNING.c.key, purpose)

    def made(self, purpose: str) -> bytes | None:
        """The key of the store's own for a purpose, if it was made."""
        rows = self._rows(sa.select(SIGNING.c.key).where(SIGNING.c.purpose == purpose))
        return self._seals.opened(rows[0].key, SIGNING.c.key, purpose) if rows else None

    def destroy(self, fingerprints: Iterable[str]) -> None:
        """Delete keys, and leave nothing of them in the database's files.

        SQLite overwrites what it deletes. PostgreSQL writes the table anew; what its write-ahead log still has is noise
        once the keys of versions are gone, which is for the store to see to.
        """
        with self._writing.begin() as connection:
            connection.execute(KEYS.delete().where(KEYS.c.fingerprint.in_(list(fingerprints))))
        vacuum(self._engine, KEYS)
