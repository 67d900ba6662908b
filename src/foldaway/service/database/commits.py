"""A commit: a server's tallies and its producers' sequences, checked and written in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import sqlalchemy as sa

from foldaway.errors import Conflict
from foldaway.service.database.tables import SEQUENCES, SHARDS, insert_new

T = TypeVar("T")

# SQLite takes 32,766 values in one statement, PostgreSQL 65,535.
_AT_ONCE = 5_000


def write_sequences(connection: sa.Connection, trial: str, sequences: Mapping[str, tuple[int, int]]) -> None:
    """Move each producer from the first number of its pair to the second.

    Raises:
        Conflict: A producer is not where its pair begins.
    """
    # In one order everywhere, so that two servers wait for each other and not crosswise.
    moves = sorted(sequences.items())
    # A row to lock, for producers that have none; a conflict rolls it back.
    insert_new(
        connection,
        SEQUENCES,
        [{"trial": trial, "producer": producer, "sequence": 0} for producer, (was, _) in moves if was == 0],
    )
    stored = read_sequences(connection, trial, [producer for producer, _ in moves], lock=True)
    if any(stored.get(producer) != was for producer, (was, _) in moves):
        raise Conflict("another server has taken batches of the same producers; they must send theirs again.")
    if moves:
        connection.execute(
            SEQUENCES.update()
            .where(SEQUENCES.c.trial == trial, SEQUENCES.c.producer == sa.bindparam("whose"))
            .values(sequence=sa.bindparam("now")),
            [{"whose": producer, "now": now} for producer, (_, now) in moves],
        )


def read_sequences(
    connection: sa.Connection, trial: str, producers: Iterable[str] | None, *, lock: bool = False
) -> dict[str, int]:
    """The last durable sequence of these producers, or of all."""
    query = sa.select(SEQUENCES.c.producer, SEQUENCES.c.sequence).where(SEQUENCES.c.trial == trial)
    if producers is None:
        return {row.producer: row.sequence for row in connection.execute(query)}
    found: dict[str, int] = {}
    for some in parts(producers):
        part = query.where(SEQUENCES.c.producer.in_(some)).order_by(SEQUENCES.c.producer)
        rows = connection.execute(part.with_for_update() if lock else part)
        found |= {row.producer: row.sequence for row in rows}
    return found


def write_shard(
    connection: sa.Connection, trial: str, shard: str, *, version: int, n: int, left_out: int, sealed: bytes
) -> None:
    """Replace a server's state, which must be the one of this version.

    Raises:
        Conflict: It is not.
    """
    if version == 0:
        add_shard(connection, trial, shard)
    written = connection.execute(
        SHARDS.update()
        .where(SHARDS.c.trial == trial, SHARDS.c.shard == shard, SHARDS.c.version == version)
        .values(version=version + 1, n=n, left_out=SHARDS.c.left_out + left_out, state=sealed)
    )
    if written.rowcount != 1:
        raise Conflict("the state was written by someone else in between; two servers must not share a shard's name.")


def add_shard(connection: sa.Connection, trial: str, shard: str) -> None:
    """A row for a server that has none yet."""
    insert_new(connection, SHARDS, [{"trial": trial, "shard": shard, "version": 0, "n": 0, "left_out": 0}])


def parts(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """The items, as many at a time as one statement takes."""
    rest = iter(items)
    while part := list(islice(rest, _AT_ONCE)):
        yield part
