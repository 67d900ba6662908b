"""The store: trials, their sealed states, their producers' sequences and their tokens, in SQLite or PostgreSQL.

Every method is one transaction, or two where the bootstrap's keys are apart; those are in an order that a crash between
them, or a second call, does no harm to. Nothing that is secret reaches SQL unsealed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import msgspec
import sqlalchemy as sa

from foldaway.errors import Conflict, TrialClosed
from foldaway.plan import Plan
from foldaway.service.database.commits import add_shard, read_sequences, write_sequences, write_shard
from foldaway.service.database.databases import postgres_engine, sqlite_engine, writing
from foldaway.service.database.device_table import DeviceTable
from foldaway.service.database.history_table import HistoryTable
from foldaway.service.database.key_table import KeyTable
from foldaway.service.database.outages import guarded
from foldaway.service.database.rows import ShardRow, TrialRow
from foldaway.service.database.seals import Seals, key_of, seal_anew, state_context
from foldaway.service.database.tables import CLOSINGS, SHARDS, TRIALS, Part, insert_new, prepare
from foldaway.service.database.token_table import TokenTable
from foldaway.service.database.trial_table import find_trial, read_trial, read_versions, same_trial
from foldaway.service.keys.tokens import TokenRow
from foldaway.service.keys.vault import Vault

__all__ = ["ShardRow", "Store", "TokenRow", "TrialRow"]


class Store(TokenTable):
    """The trials of one database. Good for several threads, and for several processes.

    Args:
        trials: The database of the trials.
        keys: The database of the bootstrap's keys.
        vault: What seals states and keys.

    Example:
        >>> import tempfile
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store.open(folder, Vault([bytes(32)]))
        ...     new = store.create_trial(plan, None).new
        ...     version = store.commit("demo", "main", version=0, n=100, state=b"tallies", sequences={"till-1": (0, 3)})
        ...     new, version, store.shard("demo", "main").state, store.sequences("demo")
        (True, 1, b'tallies', {'till-1': 3})
    """

    def __init__(self, trials: sa.Engine, keys: sa.Engine, vault: Vault) -> None:
        super().__init__(trials)
        self._engines: dict[Part, sa.Engine] = {"trials": trials, "keys": keys}
        self._seals = Seals(vault)
        self._keys = KeyTable(keys, self._seals)
        self.history = HistoryTable(trials, self._seals)
        self.devices = DeviceTable(trials, self._seals)

    @classmethod
    def open(cls, where: str | Path, vault: Vault) -> Self:
        """The store in a folder (SQLite) or at a ``postgresql://`` address; its tables are made if they are not there.

        Raises:
            VaultError: What is there is sealed under a key that the vault does not hold.
            StoreError: The address is none, or the tables were made by a later foldaway.
            Unavailable: The database cannot be opened.
        """
        if "://" in str(where):
            engine = postgres_engine(str(where))
            store = cls(engine, engine, vault)
        else:
            folder = Path(where)
            store = cls(sqlite_engine(folder / "foldaway.db"), sqlite_engine(folder / "keys.db"), vault)
        store._prepare()
        return store

    @guarded
    def _prepare(self) -> None:
        for part, engine in self._engines.items():
            with writing(engine).begin() as connection:
                self._seals.under(prepare(connection, part, self.vault.current))
        # Those whose trial was closed right before a crash.
        if left := self._keys.fingerprints() & self._closed():
            self._keys.destroy(left)

    def close(self) -> None:
        """Let go of all connections."""
        for engine in self._engines.values():
            engine.dispose()

    @guarded
    def ping(self) -> None:
        """Find out whether the database answers; Unavailable if it does not."""
        self.sealed_under()

    @property
    def vault(self) -> Vault:
        """What seals states and keys."""
        return self._seals.vault

    @guarded
    def sealed_under(self) -> set[str]:
        """The id of the key that all is sealed under; more than one if a rotation has broken off."""
        found = set()
        for part, engine in self._engines.items():
            with engine.begin() as connection:
                found.add(key_of(connection, part))
        return found

    @guarded
    def rotate(self, vault: Vault) -> None:
        """Seal everything under the current key of another vault, which takes the place of the old one."""
        both = vault.over(self.vault)
        for part, engine in self._engines.items():
            with writing(engine).begin() as connection:
                seal_anew(connection, part, both)
        self._seals.vault = vault

    # Trials.

    @guarded
    def create_trial(self, plan: Plan, bootstrap_key: bytes | None) -> TrialRow:
        """Register a plan; ``new`` in the row says whether this call has done it, or the same plan was there.

        Ask ``bootstrap_key`` for the key afterwards: if two servers register a plan at once, one key counts for both.

        Raises:
            TrialExists: The name is taken by another plan.
        """
        with self._trials.begin() as connection:
            found = find_trial(connection, plan.name)
        if found is not None:
            return same_trial(found, plan)
        if bootstrap_key is not None:  # first, since a trial without its key could take no records
            self._keys.keep(plan.fingerprint, bootstrap_key)
        row = TrialRow(plan.name, plan.canonical().decode(), plan.fingerprint, "open", time.time())
        with writing(self._trials).begin() as connection:
            values = {column: getattr(row, column) for column in TRIALS.c.keys()}  # noqa: SIM118
            insert_new(connection, TRIALS, [values])
            found = read_trial(connection, plan.name)
        return msgspec.structs.replace(row, new=True) if found == row else same_trial(found, plan)

    @guarded
    def trial(self, name: str) -> TrialRow:
        """A trial by its name.

        Raises:
            UnknownTrial: There is none.
        """
        with self._trials.begin() as connection:
            return read_trial(connection, name)

    @guarded
    def trials(self) -> list[TrialRow]:
        """All trials, by name."""
        with self._trials.begin() as connection:
            return [TrialRow(**row._mapping) for row in connection.execute(sa.select(TRIALS).order_by(TRIALS.c.name))]

    @guarded
    def bootstrap_key(self, name: str) -> bytes | None:
        """The key of a trial's bootstrap; none if the plan has none, or the trial is closed."""
        row = self.trial(name)
        return self._keys.find(row.fingerprint) if row.status == "open" else None

    @guarded
    def close_trial(
        self, name: str, final: str, versions: Mapping[str, int] | None = None, *, wipe: bool = False
    ) -> TrialRow:
        """Close a trial and destroy its key. A second call changes nothing but makes sure that the key is gone.

        Args:
            name: The trial.
            final: What was found, as JSON.
            versions: The version of each shard that ``final`` was computed from.
            wipe: Whether to delete the tallies, and what was published, since ``final`` is all that may remain.

        Returns:
            The closed trial, with the ``final`` of the call that closed it.

        Raises:
            Conflict: A server has committed since: compute ``final`` again.
        """
        with writing(self._trials).begin() as connection:
            row = read_trial(connection, name, lock="update")
            if row.status == "open":
                if versions is not None and read_versions(connection, name) != dict(versions):
                    raise Conflict(f"records have come in while {name} was being closed; close it once more.")
                row = msgspec.structs.replace(row, status="closed", closed=time.time(), final=final)
                change = TRIALS.update().where(TRIALS.c.name == name)
                connection.execute(change.values(status=row.status, closed=row.closed, final=row.final))
                if wipe:
                    connection.execute(SHARDS.update().where(SHARDS.c.trial == name).values(state=None))
                    connection.execute(CLOSINGS.update().where(CLOSINGS.c.trial == name).values(published=None))
        # Second: an open trial without its key would be stuck, a closed one is finished here, by another call or at
        # the next start.
        self._keys.destroy([row.fingerprint])
        return row

    def _closed(self) -> set[str]:
        with self._trials.begin() as connection:
            query = sa.select(TRIALS.c.fingerprint).where(TRIALS.c.status == "closed")
            return set(connection.execute(query).scalars())

    # States and sequences.

    @guarded
    def shard(self, name: str, shard: str) -> ShardRow:
        """A server's share of a trial; version 0 without a state if it has none yet."""
        found = self._shards(name, SHARDS.c.shard == shard)
        return found[0] if found else ShardRow(shard)

    @guarded
    def shards(self, name: str) -> list[ShardRow]:
        """All servers' shares of a trial, as of one moment."""
        return self._shards(name)

    def _shards(self, name: str, *which: sa.ColumnElement[bool]) -> list[ShardRow]:
        query = sa.select(SHARDS).where(SHARDS.c.trial == name, *which).order_by(SHARDS.c.shard)
        with self._trials.begin() as connection:
            read_trial(connection, name)
            found = connection.execute(query).all()
        return [
            ShardRow(
                row.shard,
                row.version,
                row.n,
                row.left_out,
                None
                if row.state is None
                else self._seals.opened(row.state, state_context(name, row.shard, row.version)),
            )
            for row in found
        ]

    @guarded
    def sequences(self, name: str, producers: Iterable[str] | None = None) -> dict[str, int]:
        """The last durable sequence of these producers, or of all; those that have none are not in it."""
        with self._trials.begin() as connection:
            return read_sequences(connection, name, producers)

    @guarded
    def commit(
        self,
        name: str,
        shard: str,
        *,
        version: int,
        n: int,
        state: bytes,
        sequences: Mapping[str, tuple[int, int]],
        left_out: int = 0,
    ) -> int:
        """Make a state durable together with the sequences of the batches in it: both, or neither.

        Args:
            name: The trial.
            shard: The server's name for its share.
            version: The version that the state was built upon; 0 for the first.
            n: Records in the state.
            state: The state.
            sequences: For each producer the sequence that was durable before (0 for none), and the new one.
            left_out: Records given up, to be added to those before.

        Returns:
            The new version.

        Raises:
            TrialClosed: The trial takes no more records.
            Conflict: The version or a sequence is no longer the one built upon; nothing was changed.
            Unavailable: The database does not answer. If the connection broke at the last moment the commit may have
                happened; the same call again is then a Conflict.
        """
        with writing(self._trials).begin() as connection:
            vault = self._seals.sealing(connection, "trials")
            # Shared: servers commit side by side, but not while the trial is being closed.
            if read_trial(connection, name, lock="share").status != "open":
                raise TrialClosed(f"the trial {name} is closed and takes no more records.")
            write_sequences(connection, name, sequences)
            sealed = vault.encrypt(state, state_context(name, shard, version + 1))
            write_shard(connection, name, shard, version=version, n=n, left_out=left_out, sealed=sealed)
        return version + 1

    @guarded
    def leave_out(self, name: str, shard: str, count: int) -> None:
        """Count records that were given up, also after the close."""
        with writing(self._trials).begin() as connection:
            read_trial(connection, name)
            add_shard(connection, name, shard)
            change = SHARDS.update().where(SHARDS.c.trial == name, SHARDS.c.shard == shard)
            connection.execute(change.values(left_out=SHARDS.c.left_out + count))
