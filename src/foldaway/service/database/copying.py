"""Copying all that one database holds to another that is empty: in one transaction, each seal opened and made anew.

Rows go in the order of their keys, so that the copy says nothing about who came when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, get_args

import msgspec
import sqlalchemy as sa

from foldaway.errors import StoreError
from foldaway.service.database.seals import Sealing, Seals, key_of, sealed_columns
from foldaway.service.database.tables import ABOUT, META, SIGNING, Part, parts

Engines = Mapping[Part, sa.Engine]

_AT_ONCE = 500

OWN = "versions"
"""The purpose of the signing key that is not copied: it says which file of version keys is this database's."""


def copy(source: Engines, opened: Seals, target: sa.Engine, seals: Seals) -> None:
    """Copy everything, or nothing.

    Raises:
        StoreError: The target is not empty.
    """
    with seals.sealing(target, "trials", "update") as (connection, sealing):
        key_of(connection, "keys", lock="update")
        if not is_empty(connection):
            raise StoreError("something is in that database already: name an empty one.")
        for part, table in _tables():
            with source[part].begin() as reading:
                for some in parts(_rows(reading, table)):
                    rows = [_sealed_anew(row, part, table, opened, sealing) for row in some]
                    connection.execute(table.insert(), rows)


def is_empty(connection: sa.Connection) -> bool:
    """Whether a database holds nothing but what every new one does."""
    return not any(next(_rows(connection, table), None) for _, table in _tables())


def contents(engines: Engines, seals: Seals) -> Counter[bytes]:
    """What a database holds, opened, as a hash of each row."""
    found = Counter[bytes]()
    for part, table in _tables():
        with engines[part].begin() as connection:
            for row in _rows(connection, table):
                plain = {**row, **_opened(row, part, table, seals)}
                values = msgspec.msgpack.encode([f"{table.name}", *(plain[column.name] for column in table.c)])
                found[blake2b(values, digest_size=32).digest()] += 1
    return found


def _tables() -> Iterator[tuple[Part, sa.Table]]:
    for part in get_args(Part):
        for table in ABOUT[part].sorted_tables:  # what others refer to, first
            if table is not META[part]:
                yield part, table


def _rows(connection: sa.Connection, table: sa.Table) -> Iterator[dict[str, Any]]:
    query = sa.select(table).order_by(*table.primary_key)
    if table is SIGNING:
        query = query.where(SIGNING.c.purpose != OWN)
    for row in connection.execute(query, execution_options={"yield_per": _AT_ONCE}):
        yield {name: bytes(value) if isinstance(value, memoryview) else value for name, value in row._mapping.items()}


def _opened(row: dict[str, Any], part: Part, table: sa.Table, seals: Seals) -> dict[str, bytes]:
    """What is sealed in a row, by its column."""
    return {
        column.name: seals.opened(row[column.name], column, *(row[each.name] for each in place))
        for column, place in sealed_columns(part, table)
        if row[column.name] is not None
    }


def _sealed_anew(row: dict[str, Any], part: Part, table: sa.Table, seals: Seals, sealing: Sealing) -> dict[str, Any]:
    plain = _opened(row, part, table, seals)
    places = dict(sealed_columns(part, table))
    return {
        **row,
        **{
            name: sealing.seal(each, table.c[name], *(row[column.name] for column in places[table.c[name]]))
            for name, each in plain.items()
        },
    }
