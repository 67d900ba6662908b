"""Which key a database is sealed under, and sealing all of it anew under another.

A database names the one key that everything in it is sealed under, and every write looks there first. So a server that
started before the key was rotated reads its key file again, instead of sealing with a key that is about to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from foldaway.service.database.databases import writing
from foldaway.service.database.outages import guarded
from foldaway.service.database.tables import CLOSINGS, HISTORY, KEYS, META, SHARDS, SIGNING, Lock, Part, by_lock
from foldaway.service.keys.vault import Vault, sealed_under


class Seals:
    """A vault that follows the database from key to key."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault

    def sealing(self, connection: sa.Connection, part: Part) -> Vault:
        """The vault to seal with in this transaction; the key stays the database's until its end."""
        return self.under(key_of(connection, part, lock="share"))

    def under(self, key: str) -> Vault:
        """The vault, sealing with the key of this id; VaultError if it is not to be had."""
        return self._holding(key).under(key)

    def opened(self, sealed: bytes, column: sa.Column[bytes], *place: object) -> bytes:
        """What was sealed for this place."""
        return self._holding(sealed_under(sealed)).decrypt(sealed, context(column, *place))

    def _holding(self, key: str) -> Vault:
        if not self.vault.holds(key):
            self.vault = self.vault.reread()
        return self.vault


class SealedTable:
    """Tables of a database; every public method is one transaction, and lets only our errors out."""

    def __init_subclass__(cls) -> None:
        guarded(cls)

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
        CLOSINGS.c.published: ([CLOSINGS.c.trial], "published:{}"),
    },
    "keys": {
        KEYS.c.key: ([KEYS.c.fingerprint], "key:{}"),
        SIGNING.c.key: ([SIGNING.c.purpose], "signing:{}"),
    },
}
_CONTEXTS = {column: form for columns in _SEALED.values() for column, (_, form) in columns.items()}


def context(column: sa.Column[bytes], *place: object) -> str:
    """What bytes are sealed for: a place in a column."""
    return _CONTEXTS[column].format(*place)


def seal_anew(connection: sa.Connection, part: Part, vault: Vault) -> None:
    """Seal all of a part under the vault's current key; the vault must hold the one before, too."""
    key_of(connection, part, lock="update")
    for column, (place, _) in _SEALED[part].items():
        for names in connection.execute(sa.select(*place)).all():  # one at a time, since states may be large
            where = sa.and_(*(name == value for name, value in zip(place, names, strict=True)))
            sealed = connection.execute(sa.select(column).where(where)).scalar_one_or_none()
            if sealed is not None and sealed_under(sealed) != vault.current:
                its = context(column, *names)
                anew = vault.encrypt(vault.decrypt(sealed, its), its)
                connection.execute(column.table.update().where(where).values({column: anew}))
    connection.execute(META[part].update().values(key=vault.current))
