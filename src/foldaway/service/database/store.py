"""The store: trials, and in tables of their own their sealed states, history, devices and tokens; SQLite or PostgreSQL.

Every method is one transaction, or two where the trials' keys are apart; those are in an order that a crash between
them, or a second call, does no harm to. Nothing that is secret reaches SQL unsealed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from urllib.parse import quote

import msgspec
import sqlalchemy as sa

from foldaway.errors import Conflict, StoreError, VaultError, instead_of
from foldaway.keeping.locks import locked
from foldaway.keeping.user_keys import state_home
from foldaway.keeping.version_keys import VersionKeys
from foldaway.plan import Plan
from foldaway.service.database.copying import contents, copy, is_empty
from foldaway.service.database.databases import postgres_engine, sqlite_engine, writing
from foldaway.service.database.device_table import DeviceTable
from foldaway.service.database.history_table import HistoryTable, forget_answers
from foldaway.service.database.invitation_table import InvitationTable, forget_invitations
from foldaway.service.database.key_table import KeyTable
from foldaway.service.database.ledger_table import LedgerTable
from foldaway.service.database.look_table import LookTable, forget_looks
from foldaway.service.database.migrations import migrate
from foldaway.service.database.moved import require_unmoved
from foldaway.service.database.outages import guarded
from foldaway.service.database.seals import Seals, key_of, named_in, seal_anew
from foldaway.service.database.shard_table import ShardTable, read_versions
from foldaway.service.database.tables import ABOUT, ENDINGS, META, SHARDS, TRIALS, Change, Part, insert_new
from foldaway.service.database.token_table import TokenTable
from foldaway.service.database.trial_table import TrialRow, find_trial, read_trial
from foldaway.service.keys.master_key import VARIABLE, add_key, drop_old_keys
from foldaway.service.keys.vault import Vault

_NOT_THERE = (
    "the keys of the stored states are not there: bring back {}, or name the file with --version-keys. Servers on "
    "several machines need one file that all of them can reach. If it is lost, see docs/deployment.md."
)
_OTHERS = (
    "{} has keys for another database: name the file of this one with --version-keys. Servers on several machines need "
    "one file that all of them can reach."
)


# Under this purpose, a key that nobody signs with: a store that has the same was copied from this one.
_ORIGIN = "origin"


@guarded
class Store:
    """The trials of one database. Good for several threads, and for several processes.

    Example:
        >>> import tempfile
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store.open(folder, Vault([bytes(32)]))
        ...     new = store.create_trial(plan, None).new
        ...     shards = store.shards
        ...     version = shards.commit("demo", "main", version=0, n=100, state=b"tallies", sequences={"till": (0, 3)})
        ...     new, version, shards.one("demo", "main").state, shards.sequences("demo")
        (True, 1, b'tallies', {'till': 3})
    """

    def __init__(self, trials: sa.Engine, keys: sa.Engine, vault: Vault, versions: VersionKeys) -> None:
        self._engines: dict[Part, sa.Engine] = {"trials": trials, "keys": keys}
        self._trials = trials
        self._seals = Seals(vault, versions)
        self._keys = KeyTable(keys, self._seals)
        self.ledger = LedgerTable(trials, self._seals, self._keys)
        self.shards = ShardTable(trials, self._seals)
        self.history = HistoryTable(trials, self._seals)
        self.looks = LookTable(trials, self._seals)
        self.devices = DeviceTable(trials, self._seals)
        self.tokens = TokenTable(trials, self._seals)
        self.invitations = InvitationTable(trials, self._seals)

    @classmethod
    def open(
        cls,
        where: str | Path,
        vault: Vault,
        password: str | None = None,
        version_keys: Path | None = None,
        *,
        leaving: bool = False,
    ) -> Self:
        """The store in a folder (SQLite) or at a ``postgresql://`` address; its tables are made if they are not there.

        Args:
            where: The folder or the address.
            vault: The master keys.
            password: The database's.
            version_keys: The file of the versions' keys, the same for all servers: by default one in the folder or,
                for a database, one in this user's home, which has its name.
            leaving: Open a folder that is being moved elsewhere, which nobody else may.

        Raises:
            VaultError: What is there is sealed under a key that the vault does not hold, or the versions' keys are in
                another file.
            StoreError: The address is none, the tables were made by a later foldaway, or the trials were moved.
            Unavailable: The database cannot be opened.
        """
        if "://" in str(where):
            engine = postgres_engine(str(where), password)
            name = quote(engine.url.database or engine.url.username or "", safe="")
            file = version_keys or state_home() / "versions" / f"{name}.keys"
            store = cls(engine, engine, vault, VersionKeys(file))
        else:
            folder = Path(where)
            if not leaving:
                require_unmoved(folder)
            keys = VersionKeys(version_keys or folder / "version.keys")
            store = cls(sqlite_engine(folder / "foldaway.db"), sqlite_engine(folder / "keys.db"), vault, keys)
        store.prepare()
        return store

    def prepare(self) -> None:
        """Make what tables are not there yet, or upgrade them, and finish what a crash has left undone."""
        for part, engine in self._engines.items():
            with writing(engine).begin() as connection:
                migrate(connection, part)
                key = connection.execute(sa.select(META[part].c.key)).scalar_one_or_none()
                if key is None:
                    key = self.vault.current
                    connection.execute(META[part].insert().values(key=key))
                self._seals.under(key)
        self._find_versions()
        for part, engine in self._engines.items():
            with self._seals.sealing(engine, part, "update") as (connection, sealing):
                seal_anew(connection, part, sealing)  # what an earlier foldaway has sealed under the master key alone
        with self._trials.begin() as connection:
            query = sa.select(TRIALS.c.fingerprint, TRIALS.c.name).where(TRIALS.c.status == "ended")
            ended: dict[str, str] = {row.fingerprint: row.name for row in connection.execute(query)}
        # Those whose trial ended right before a crash.
        if left := self._keys.fingerprints() & ended.keys():
            self._keys.destroy(left)
            for fingerprint in left:
                self.ledger.destroyed(ended[fingerprint])
        self._forget_versions()

    def close(self) -> None:
        """Let go of all connections."""
        for engine in self._engines.values():
            engine.dispose()

    def ping(self) -> None:
        """Find out whether the database answers; Unavailable if it does not."""
        self.sealed_under()

    @property
    def vault(self) -> Vault:
        """What seals states and keys."""
        return self._seals.vault

    def sealed_under(self) -> set[str]:
        """The id of the key that all is sealed under; more than one if a rotation has broken off."""
        keys = set()
        for part, engine in self._engines.items():
            with engine.begin() as connection:
                keys.add(key_of(connection, part))
        return keys

    def rotate(self, vault: Vault) -> None:
        """Seal everything under the current key of another vault, which takes the place of the old one."""
        self._seals.vault = both = vault.over(self.vault)  # another server may have been faster
        for part, engine in self._engines.items():
            with self._seals.sealing(engine, part, "update") as (connection, sealing):
                sealing.vault = both
                seal_anew(connection, part, sealing)
        self._seals.vault = vault

    def create_trial(self, plan: Plan, trial_key: bytes | None, team: str | None = None) -> TrialRow:
        """Register a plan; ``new`` in the row says whether this call has done it, or the same plan was there.

        Ask ``trial_key`` for the key afterwards: if two servers register a plan at once, one key counts for both.

        Raises:
            TrialExists: The name is taken by another plan, or by another's trial than the team's for which it is.
        """
        with self._trials.begin() as connection:
            stored = find_trial(connection, plan.name)
        if stored is not None:
            return stored.require_plan(plan, team)
        if trial_key is not None:  # first, since a trial without its key could take no records
            self._keys.add(plan.fingerprint, trial_key)
        row = TrialRow(plan.name, plan.canonical().decode(), plan.fingerprint, "open", time.time(), team=team)
        note = self.ledger.registered(row, None if trial_key is None else self._keys.find(plan.fingerprint))
        with writing(self._trials).begin() as connection:
            values = {column: getattr(row, column) for column in TRIALS.c.keys()}  # noqa: SIM118
            if insert_new(connection, TRIALS, [values]):
                note(connection)
            stored = read_trial(connection, plan.name)
        return msgspec.structs.replace(row, new=True) if stored == row else stored.require_plan(plan, team)

    def trial(self, name: str) -> TrialRow:
        """A trial by its name.

        Raises:
            UnknownTrial: There is none.
        """
        with self._trials.begin() as connection:
            return read_trial(connection, name)

    def trials(self) -> list[TrialRow]:
        """All trials, by name."""
        query = sa.select(TRIALS).where(TRIALS.c.status != "removed").order_by(TRIALS.c.name)
        with self._trials.begin() as connection:
            return [TrialRow(**row._mapping) for row in connection.execute(query)]

    def remove_trial(self, name: str) -> None:
        """Delete a trial that has ended: its plan, effects, course, ledger, producers and tokens. Its name stays taken.

        Raises:
            Conflict: It is open.
        """
        with writing(self._trials).begin() as connection:
            if read_trial(connection, name, lock="update").status == "open":
                raise Conflict(f"{name} is open: end it first.")
            for table in reversed(ABOUT["trials"].sorted_tables):
                if "trial" in table.c:
                    connection.execute(table.delete().where(table.c.trial == name))
            change = TRIALS.update().where(TRIALS.c.name == name)
            connection.execute(change.values(status="removed", plan="", final=None, exact_answers=0))

    def count_exact_answer(self, name: str) -> None:
        """Note that somebody has asked for exact numbers."""
        with writing(self._trials).begin() as connection:
            change = TRIALS.update().where(TRIALS.c.name == name)
            connection.execute(change.values(exact_answers=TRIALS.c.exact_answers + 1))

    def trial_key(self, name: str) -> bytes | None:
        """The key of a trial; none if its plan needs none, or it has ended."""
        row = self.trial(name)
        return self._keys.find(row.fingerprint) if row.status == "open" else None

    def end_trial(
        self, name: str, final: str, versions: Mapping[str, int] | None = None, also: Iterable[Change] = ()
    ) -> TrialRow:
        """End a trial, and destroy its tallies and its key.

        A second call changes nothing but makes sure that the key is gone.

        Args:
            name: The trial.
            final: The final answer, as JSON.
            versions: The version of each shard that ``final`` was computed from.
            also: What else is to be written or made sure of in the transaction that ends it.

        Returns:
            The trial that has ended, with the ``final`` of the call that ended it.

        Raises:
            Conflict: A server has committed since: compute ``final`` again.
        """
        with self._seals.sealing(self._trials, "trials") as (connection, sealing):
            row = read_trial(connection, name, lock="update")
            if row.status == "open":
                if versions is not None and read_versions(connection, name) != dict(versions):
                    raise Conflict(f"records have come in while {name} was ending; end it once more.")
                row = msgspec.structs.replace(row, status="ended", ended=time.time(), final=final)
                change = TRIALS.update().where(TRIALS.c.name == name)
                connection.execute(change.values(status=row.status, ended=row.ended, final=row.final))
                for each in also:
                    each(connection)
                connection.execute(SHARDS.update().where(SHARDS.c.trial == name).values(state=None))
                connection.execute(ENDINGS.update().where(ENDINGS.c.trial == name).values(published=None))
                forget_answers(connection, sealing, name)
                forget_invitations(connection, name)
                forget_looks(connection, sealing, name)
        # Then: an open trial without its key would be stuck, one that has ended is finished here, by another call or at
        # the next start.
        self._keys.destroy([row.fingerprint])
        self._forget_versions()
        self.ledger.destroyed(name)
        return row

    def require_empty(self) -> None:
        """Refuse a database that holds anything.

        Raises:
            StoreError: It does.
        """
        with self._trials.begin() as connection:
            if not is_empty(connection):
                raise StoreError("something is in that database already: name an empty one.")

    def take_over(self, source: Store) -> None:
        """Copy everything from another store to this one, which is empty: in one transaction, all or nothing."""
        source._keys.signing(_ORIGIN)
        copy(source._engines, source._seals, self._trials, self._seals)

    def is_copy_of(self, source: Store) -> bool:
        """Whether everything was copied from that store."""
        origin = self._keys.made(_ORIGIN)
        return origin is not None and origin == source._keys.made(_ORIGIN)

    def has_all_of(self, source: Store) -> bool:
        """Whether both hold the same rows, opened, each once."""
        return contents(self._engines, self._seals) == contents(source._engines, source._seals)

    def _forget_versions(self) -> None:
        """Destroy the keys of all versions but those that the database has now: of what has ended, or broke off."""
        with ExitStack() as held:
            names: set[bytes] = set()
            for part, engine in self._engines.items():
                connection = held.enter_context(writing(engine).begin())
                key_of(connection, part, lock="update")  # nobody is sealing
                names |= named_in(connection, part)
            self._seals.versions.keep(names)

    def _find_versions(self) -> None:
        """Make sure that the versions' keys are those of this database, beginning their file with it.

        Raises:
            VaultError: They are not.
        """
        versions = self._seals.versions
        with self._trials.begin() as trials, self._engines["keys"].begin() as keys:
            sealed = named_in(trials, "trials") | named_in(keys, "keys")
        if not versions.file.exists() and sealed:
            raise VaultError(_NOT_THERE.format(versions.file))
        empty = versions.make()  # somebody has put it there, since the one before is lost
        if self._keys.signing("versions", versions.identity(), anew=empty) != versions.identity():
            raise VaultError(_OTHERS.format(versions.file))


def rotate_key(store: Store) -> None:
    """Seal everything under a new key, and forget the old one: with the server running, and safe to repeat.

    The key file holds both keys until nothing is sealed under the old one. If its first key is not the one that the
    data is sealed under, somebody, or a rotation that broke off, has put it there for this: it is used. Servers on
    other machines need the new key file; until they have it they take no records, and they lose none.

    Raises:
        VaultError: The new key cannot be written down, or must be given by other means.
    """
    file = store.vault.file
    if file is None:
        if store.sealed_under() == {store.vault.current}:
            raise VaultError(f"the key comes from {VARIABLE}: put a new one before it there, and rotate again.")
        store.rotate(store.vault)
        return
    unusable = "the key file {} cannot be rotated: {}."
    with instead_of(OSError, lambda error: VaultError(unusable.format(file, error.strerror))), locked(file):
        # One rotation of a key file at a time: another could drop the key of this one.
        if store.sealed_under() == {store.vault.reread().current}:
            add_key(file)
        store.rotate(store.vault.reread())
        left = f"all is sealed under the new key, but the old one stays in {file}: remove it by hand."
        with instead_of(VaultError, VaultError(left)):
            drop_old_keys(file)
