"""The bootstrap's keys, in a database or a table of their own, for as long as their trials are open."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from foldaway.service.database.databases import vacuum, writing
from foldaway.service.database.seals import Seals, key_context
from foldaway.service.database.tables import KEYS, insert_new


class KeyTable:
    """Sealed keys by their plan's fingerprint."""

    def __init__(self, engine: sa.Engine, seals: Seals) -> None:
        self._engine = engine
        self._seals = seals

    def keep(self, fingerprint: str, key: bytes) -> None:
        """Keep a key, unless the plan has one: the first counts."""
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

    def destroy(self, fingerprints: Iterable[str]) -> None:
        """Delete keys, and leave nothing of them in the database's files.

        SQLite overwrites what it deletes. PostgreSQL writes the table anew; its write-ahead log and backups hold the
        sealed key until they are gone themselves, or the master key is rotated.
        """
        with writing(self._engine).begin() as connection:
            connection.execute(KEYS.delete().where(KEYS.c.fingerprint.in_(list(fingerprints))))
        vacuum(self._engine, KEYS)
