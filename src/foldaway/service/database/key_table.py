"""The keys' table: the trials' keys, sealed, apart from the trials."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import sqlalchemy as sa

from foldaway.keeping.secret import LENGTH
from foldaway.service.database.databases import vacuum, writing
from foldaway.service.database.seals import Seals, key_context, signing_context
from foldaway.service.database.tables import KEYS, SIGNING, insert_new


class KeyTable:
    """The trials' keys, sealed, by their plan's fingerprint, for as long as their trials are open."""

    def __init__(self, engine: sa.Engine, seals: Seals) -> None:
        self._engine = engine
        self._seals = seals

    def add(self, fingerprint: str, key: bytes) -> None:
        """Store a key, unless the plan has one: the first counts."""
        with writing(self._engine).begin() as connection:
            sealed = self._seals.sealing(connection, "keys").encrypt(key, key_context(fingerprint))
            insert_new(connection, KEYS, [{"fingerprint": fingerprint, "key": sealed}])

    def find(self, fingerprint: str) -> bytes | None:
        """A plan's key, if it is there."""
        with self._engine.begin() as connection:
            query = sa.select(KEYS.c.key).where(KEYS.c.fingerprint == fingerprint)
            sealed = connection.execute(query).scalar_one_or_none()
        return None if sealed is None else self._seals.opened(sealed, key_context(fingerprint))

    def fingerprints(self) -> set[str]:
        """The plans that have a key."""
        with self._engine.begin() as connection:
            return set(connection.execute(sa.select(KEYS.c.fingerprint)).scalars())

    def signing(self, purpose: str) -> bytes:
        """What the store signs with: made when it is first asked for, and the same for all servers."""
        with writing(self._engine).begin() as connection:
            made = self._seals.sealing(connection, "keys").encrypt(
                secrets.token_bytes(LENGTH), signing_context(purpose)
            )
            insert_new(connection, SIGNING, [{"purpose": purpose, "key": made}])  # the first counts
            query = sa.select(SIGNING.c.key).where(SIGNING.c.purpose == purpose)
            sealed = connection.execute(query).scalar_one()
        return self._seals.opened(sealed, signing_context(purpose))

    def destroy(self, fingerprints: Iterable[str]) -> None:
        """Delete keys, and leave nothing of them in the database's files.

        SQLite overwrites what it deletes. PostgreSQL writes the table anew; its write-ahead log and backups hold the
        sealed key until they are gone themselves, or the master key is rotated.
        """
        with writing(self._engine).begin() as connection:
            connection.execute(KEYS.delete().where(KEYS.c.fingerprint.in_(list(fingerprints))))
        vacuum(self._engine, KEYS)
