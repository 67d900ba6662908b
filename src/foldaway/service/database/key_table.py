"""The keys' table: the trials' keys, sealed, apart from the trials."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import sqlalchemy as sa

from foldaway.keeping.secret import LENGTH
from foldaway.service.database.databases import vacuum
from foldaway.service.database.seals import SealedTable, context
from foldaway.service.database.tables import KEYS, SIGNING, insert_new


class KeyTable(SealedTable):
    """The trials' keys, sealed, by their plan's fingerprint, for as long as their trials are open."""

    def add(self, fingerprint: str, key: bytes) -> None:
        """Store a key, unless the plan has one: the first counts."""
        with self._writing.begin() as connection:
            sealed = self._seals.sealing(connection, "keys").encrypt(key, context(KEYS.c.key, fingerprint))
            insert_new(connection, KEYS, [{"fingerprint": fingerprint, "key": sealed}])

    def find(self, fingerprint: str) -> bytes | None:
        """A plan's key, if it is there."""
        rows = self._rows(sa.select(KEYS.c.key).where(KEYS.c.fingerprint == fingerprint))
        return self._seals.opened(rows[0].key, KEYS.c.key, fingerprint) if rows else None

    def fingerprints(self) -> set[str]:
        """The plans that have a key."""
        return {row.fingerprint for row in self._rows(sa.select(KEYS.c.fingerprint))}

    def signing(self, purpose: str) -> bytes:
        """What the store signs with: made when it is first asked for, and the same for all servers."""
        with self._writing.begin() as connection:
            vault = self._seals.sealing(connection, "keys")
            made = vault.encrypt(secrets.token_bytes(LENGTH), context(SIGNING.c.key, purpose))
            insert_new(connection, SIGNING, [{"purpose": purpose, "key": made}])  # the first counts
            query = sa.select(SIGNING.c.key).where(SIGNING.c.purpose == purpose)
            sealed = connection.execute(query).scalar_one()
        return self._seals.opened(sealed, SIGNING.c.key, purpose)

    def destroy(self, fingerprints: Iterable[str]) -> None:
        """Delete keys, and leave nothing of them in the database's files.

        SQLite overwrites what it deletes. PostgreSQL writes the table anew; its write-ahead log and backups hold the
        sealed key until they are gone themselves, or the master key is rotated.
        """
        with self._writing.begin() as connection:
            connection.execute(KEYS.delete().where(KEYS.c.fingerprint.in_(list(fingerprints))))
        vacuum(self._engine, KEYS)
