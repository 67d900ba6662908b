"""Which key a database is sealed under, and sealing all of it anew under another.

A database names the one key that everything in it is sealed under, and every write looks there first. So a server that
started before the key was rotated reads its key file again, instead of sealing with a key that is about to go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import sqlalchemy as sa

from foldaway.service.database.tables import CLOSINGS, HISTORY, KEYS, META, SHARDS, SIGNING, Part
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

    def opened(self, sealed: bytes, context: str) -> bytes:
        """What was sealed for this place."""
        return self._holding(sealed_under(sealed)).decrypt(sealed, context)

    def _holding(self, key: str) -> Vault:
        if not self.vault.holds(key):
            self.vault = self.vault.reread()
        return self.vault


_KEY_OF: dict[tuple[str, str | None], sa.Select[Any]] = {}
for _part, _meta in META.items():
    _key = sa.select(_meta.c.key)
    _KEY_OF |= {
        (_part, None): _key,
        (_part, "share"): _key.with_for_update(read=True),
        (_part, "update"): _key.with_for_update(),
    }


def key_of(connection: sa.Connection, part: Part, *, lock: str | None = None) -> str:
    """The id of the key that a part is sealed under."""
    return str(connection.execute(_KEY_OF[part, lock]).scalar_one())


def seal_anew(connection: sa.Connection, part: Part, vault: Vault) -> None:
    """Seal all of a part under the vault's current key; the vault must hold the one before, too."""
    key_of(connection, part, lock="update")
    for column, place, context_of in _SEALED[part]:
        for names in connection.execute(sa.select(*place)).all():  # one at a time, since states may be large
            where = sa.and_(*(name == value for name, value in zip(place, names, strict=True)))
            sealed = connection.execute(sa.select(column).where(where)).scalar_one_or_none()
            if sealed is not None and sealed_under(sealed) != vault.current:
                context = context_of(*names)
                anew = vault.encrypt(vault.decrypt(sealed, context), context)
                connection.execute(column.table.update().where(where).values({column: anew}))
    connection.execute(META[part].update().values(key=vault.current))


def state_context(trial: str, shard: str, version: int) -> str:
    """The place of a state: it opens in its own row alone, and only while it is the row's latest."""
    return f"state:{trial}:{shard}:{version}"


def history_context(trial: str, records: int, part: str = "estimates") -> str:
    """The place of a part of what was told of a trial."""
    return f"history:{trial}:{records}:{part}"


def published_context(trial: str) -> str:
    """The place of what a federated trial has published."""
    return f"published:{trial}"


def key_context(fingerprint: str) -> str:
    """The place of a trial's key."""
    return f"key:{fingerprint}"


def signing_context(purpose: str) -> str:
    """The place of a key that the store signs with."""
    return f"signing:{purpose}"


# Every column that is sealed, the columns that name a place in it, and the context that they make.
_SEALED: dict[Part, list[tuple[sa.Column[bytes], list[sa.Column[Any]], Callable[..., str]]]] = {
    "trials": [
        (SHARDS.c.state, [SHARDS.c.trial, SHARDS.c.shard, SHARDS.c.version], state_context),
        *(
            (HISTORY.c[part], [HISTORY.c.trial, HISTORY.c.records], partial(history_context, part=part))
            for part in ("estimates", "answer", "census")
        ),
        (CLOSINGS.c.published, [CLOSINGS.c.trial], published_context),
    ],
    "keys": [
        (KEYS.c.key, [KEYS.c.fingerprint], key_context),
        (SIGNING.c.key, [SIGNING.c.purpose], signing_context),
    ],
}
