"""The shards' table: each server's share of a trial's tallies, and the sequences of the batches in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from foldaway.errors import Conflict, TrialEnded
from foldaway.service.database.seals import SealedTable, Sealing, header_of
from foldaway.service.database.tables import SEQUENCES, SHARDS, TOKENS, insert_new, parts
from foldaway.service.database.token_table import spent
from foldaway.service.database.trial_table import read_trial


class ShardRow(msgspec.Struct, frozen=True):
    """The tallies that one server has made durable.

    Attributes:
        shard: The server's name for its share.
        version: How many times it was written.
        n: Records in the state.
        left_out: Records that were given up, since no cohort came together for them.
        state: The state, opened; none before the first commit.
    """

    shard: str
    version: int = 0
    n: int = 0
    left_out: int = 0
    state: bytes | None = None


def left_out(shards: Sequence[ShardRow]) -> int:
    """Records that all servers have given up."""
    return sum(shard.left_out for shard in shards)


def versions(shards: Sequence[ShardRow]) -> dict[str, int]:
    """The version of every shard that was ever written."""
    return {shard.shard: shard.version for shard in shards if shard.version}


# Made once, not for every call.
_SEQUENCES = sa.select(SEQUENCES.c.producer, SEQUENCES.c.sequence).where(SEQUENCES.c.trial == sa.bindparam("in"))
_SEQUENCE_OF = _SEQUENCES.where(SEQUENCES.c.producer == sa.bindparam("one"))  # an `in` is written anew for every call
_SEQUENCES_OF = _SEQUENCES.where(SEQUENCES.c.producer.in_(sa.bindparam("some", expanding=True))).order_by(
    SEQUENCES.c.producer
)
_MOVE = (
    SEQUENCES.update()
    .where(SEQUENCES.c.trial == sa.bindparam("in"), SEQUENCES.c.producer == sa.bindparam("whose"))
    .values(sequence=sa.bindparam("now"))
)
_ITS = (
    SHARDS.c.trial == sa.bindparam("in"),
    SHARDS.c.shard == sa.bindparam("of"),
    SHARDS.c.version == sa.bindparam("was"),
)
_FORMER = sa.select(header_of(SHARDS.c.state)).where(*_ITS)
_WRITE = SHARDS.update().where(*_ITS).values({name: sa.bindparam(f"new_{name}") for name in ("version", "n", "state")})


class ShardTable(SealedTable):
    """The shards of a database's trials."""

    def one(self, trial: str, shard: str) -> ShardRow:
        """A server's share of a trial; version 0 without a state if it has none yet."""
        rows = self._read(trial, SHARDS.c.shard == shard)
        return rows[0] if rows else ShardRow(shard)

    def all(self, trial: str) -> list[ShardRow]:
        """All servers' shares of a trial, as of one moment."""
        return self._read(trial)

    def counts(self, trial: str) -> list[ShardRow]:
        """All servers' shares of a trial, as of one moment, without their states, which need not even open."""
        query = sa.select(SHARDS).with_only_columns(SHARDS.c.shard, SHARDS.c.version, SHARDS.c.n, SHARDS.c.left_out)
        return [ShardRow(*row) for row in self._rows(query.where(SHARDS.c.trial == trial).order_by(SHARDS.c.shard))]

    def _read(self, trial: str, *which: sa.ColumnElement[bool]) -> list[ShardRow]:
        with self._engine.begin() as connection:
            read_trial(connection, trial)
            return self._shards(connection, trial, *which)

    def _shards(self, connection: sa.Connection, trial: str, *which: sa.ColumnElement[bool]) -> list[ShardRow]:
        query = sa.select(SHARDS).where(SHARDS.c.trial == trial, *which).order_by(SHARDS.c.shard)
        rows = connection.execute(query).all()
        return [ShardRow(row.shard, row.version, row.n, row.left_out, self._state(row)) for row in rows]

    def _state(self, row: sa.Row[Any]) -> bytes | None:
        if row.state is None:
            return None
        return self._seals.opened(row.state, SHARDS.c.state, row.trial, row.shard, row.version)

    def sequences(self, trial: str, producers: Iterable[str] | None = None) -> dict[str, int]:
        """The last durable sequence of these producers, or of all; those that have none are not in it."""
        with self._engine.begin() as connection:
            return _read_sequences(connection, trial, producers)

    def producer(self, trial: str, producer: str) -> tuple[int, str | None]:
        """A producer's last durable sequence, 0 for none, and the valid token that its name belongs to, if to any."""
        query = sa.select(SEQUENCES.c.sequence, TOKENS.c.id).join(
            TOKENS, (TOKENS.c.id == SEQUENCES.c.token) & ~spent(), isouter=True
        )
        rows = self._rows(query.where(SEQUENCES.c.trial == trial, SEQUENCES.c.producer == producer))
        return next(((row.sequence, row.id) for row in rows), (0, None))

    def claim(self, trial: str, producer: str, token: str) -> str:
        """The token that a producer's name belongs to: this one from now on, if it is nobody's or that one is spent.

        Raises:
            TrialEnded: The trial takes no more records.
        """
        its = (SEQUENCES.c.trial == trial) & (SEQUENCES.c.producer == producer)
        free = SEQUENCES.c.token.is_(None) | SEQUENCES.c.token.in_(sa.select(TOKENS.c.id).where(spent()))
        with self._writing.begin() as connection:
            if read_trial(connection, trial, lock="share").status != "open":
                raise TrialEnded(f"the trial {trial} has ended and takes no more records.")
            insert_new(connection, SEQUENCES, [{"trial": trial, "producer": producer, "sequence": 0, "token": token}])
            connection.execute(SEQUENCES.update().where(its, free).values(token=token))
            return str(connection.execute(sa.select(SEQUENCES.c.token).where(its)).scalar_one())

    def commit(
        self,
        trial: str,
        shard: str,
        *,
        version: int,
        n: int,
        state: bytes,
        sequences: Mapping[str, tuple[int, int]],
    ) -> int:
        """Make a state durable together with the sequences of the batches in it: both, or neither.

        It was built upon a version, 0 for the first; and for each producer upon a sequence, 0 for none, before the new.

        Returns:
            The new version.

        Raises:
            TrialEnded: The trial takes no more records.
            Conflict: The version or a sequence is no longer the one built upon; nothing was changed.
            Unavailable: The database does not answer. If the connection broke at the last moment the commit may have
                happened; the same call again is then a Conflict.
        """
        with self._seals.sealing(self._engine, "trials") as (connection, sealing):
            # Shared: servers commit side by side, but not while the trial is ending.
            if read_trial(connection, trial, lock="share").status != "open":
                raise TrialEnded(f"the trial {trial} has ended and takes no more records.")
            write_sequences(connection, trial, sequences)
            write_shard(connection, sealing, trial, shard, version=version, n=n, state=state)
        return version + 1

    def rewrite(self, trial: str, rewritten: Callable[[list[ShardRow]], Mapping[str, bytes]]) -> None:
        """Replace states of an open trial's shards, all in one transaction; whoever built upon one has a Conflict.

        The new ones, by shard, are made from the rows of all shards as of one moment.
        """
        with self._seals.sealing(self._engine, "trials") as (connection, sealing):
            if read_trial(connection, trial, lock="update").status != "open":
                return
            rows = {row.shard: row for row in self._shards(connection, trial)}
            for shard, state in rewritten(list(rows.values())).items():
                row = rows[shard]
                write_shard(connection, sealing, trial, shard, version=row.version, n=row.n, state=state)

    def leave_out(self, trial: str, shard: str, count: int) -> None:
        """Count records that were given up, also after the end."""
        with self._writing.begin() as connection:
            read_trial(connection, trial)
            _add_shard(connection, trial, shard)
            change = SHARDS.update().where(SHARDS.c.trial == trial, SHARDS.c.shard == shard)
            connection.execute(change.values(left_out=SHARDS.c.left_out + count))


def read_versions(connection: sa.Connection, trial: str) -> dict[str, int]:
    """The version of every shard that was ever written."""
    query = sa.select(SHARDS.c.shard, SHARDS.c.version).where(SHARDS.c.trial == trial, SHARDS.c.version > 0)
    return {row.shard: row.version for row in connection.execute(query)}


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
    stored = _read_sequences(connection, trial, [producer for producer, _ in moves], lock=True)
    if any(stored.get(producer) != was for producer, (was, _) in moves):
        raise Conflict("another server has taken batches of the same producers; they must send theirs again.")
    if moves:
        rows = [{"in": trial, "whose": producer, "now": now} for producer, (_, now) in moves]
        connection.execute(_MOVE, rows)


def _read_sequences(
    connection: sa.Connection, trial: str, producers: Iterable[str] | None, *, lock: bool = False
) -> dict[str, int]:
    """The last durable sequence of these producers, or of all."""
    if producers is None:
        query = _SEQUENCES.where(SEQUENCES.c.sequence > 0)  # others have only claimed their name
        return {row.producer: row.sequence for row in connection.execute(query, {"in": trial})}
    sequences: dict[str, int] = {}
    for some in parts(producers):
        query, whose = (_SEQUENCE_OF, {"one": some[0]}) if len(some) == 1 else (_SEQUENCES_OF, {"some": some})
        rows = connection.execute(query.with_for_update() if lock else query, {"in": trial, **whose})
        sequences |= {row.producer: row.sequence for row in rows}
    return sequences


def write_shard(
    connection: sa.Connection, sealing: Sealing, trial: str, shard: str, *, version: int, n: int, state: bytes
) -> None:
    """Replace a server's state, which must be the one of this version, with another, sealed for its place.

    Raises:
        Conflict: It is not.
    """
    if version == 0:
        _add_shard(connection, trial, shard)
    place = {"in": trial, "of": shard, "was": version}
    sealing.replaces(connection.execute(_FORMER, place).scalars().all())
    sealed = sealing.seal(state, SHARDS.c.state, trial, shard, version + 1)
    written = connection.execute(_WRITE, {**place, "new_version": version + 1, "new_n": n, "new_state": sealed})
    if written.rowcount != 1:
        raise Conflict("the state was written by someone else in between; two servers must not share a shard's name.")


def _add_shard(connection: sa.Connection, trial: str, shard: str) -> None:
    """A row for a server that has none yet."""
    insert_new(connection, SHARDS, [{"trial": trial, "shard": shard, "version": 0, "n": 0, "left_out": 0}])
