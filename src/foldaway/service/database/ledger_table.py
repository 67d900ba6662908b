"""The ledgers' table: what happened in each trial, an entry in a row, signed with the store's own key.

Entries are written in the transaction of what they are about, while the trial's row is locked: so they are in one order
for all servers. Only that a key is destroyed has a transaction of its own, after the fact.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import sqlalchemy as sa

from foldaway.auditing.finding import Audit
from foldaway.evidence.ledger import ENDED, KEY_DESTROYED, Ledger, SignedEntry, software
from foldaway.evidence.signing import Signer
from foldaway.inference.rounding import round_count
from foldaway.keeping.secret import Secret
from foldaway.service.database.key_table import KeyTable
from foldaway.service.database.seals import SealedTable, Seals
from foldaway.service.database.tables import LEDGER, SHARDS, Change
from foldaway.service.database.trial_table import TrialRow, read_trial


class LedgerTable(SealedTable):
    """The ledgers of a store's trials."""

    def __init__(self, engine: sa.Engine, seals: Seals, keys: KeyTable) -> None:
        super().__init__(engine, seals)
        self._keys = keys
        self._signer: Signer | None = None

    def signer(self) -> Signer:
        """The store as who signs: the same for all of its servers, made when it is first asked for."""
        if self._signer is None:
            self._signer = Signer(Secret(self._keys.signing("ledger")).of_signing())
        return self._signer

    def read(self, trial: str) -> Ledger:
        """What happened in a trial."""
        with self._engine.begin() as connection:
            return _read(connection, trial)

    def head(self, trial: str) -> str:
        """The hash that stands for all of it; empty if there is nothing."""
        query = sa.select(LEDGER.c.line).where(LEDGER.c.trial == trial).order_by(LEDGER.c.number.desc()).limit(1)
        rows = self._rows(query)
        return msgspec.json.decode(rows[0].line, type=SignedEntry).entry.hash if rows else ""

    def registered(self, row: TrialRow, key: bytes | None) -> Change:
        """Notes, in a transaction, that a plan was registered, and under which key its units will be hashed."""
        mark = None if key is None else Secret(key).mark().hex()
        return self._noting(row.name, lambda ledger, signer: ledger if mark is None else ledger.used(signer, mark))

    def answered(self, trial: str, effects: str, records: int, cohort: int) -> Change:
        """Notes, in a transaction, effects that others see, and the stored tallies they come from."""
        return self._noting(
            trial, lambda ledger, signer: ledger.written(signer, records, cohort).answered(signer, effects, "")
        )

    def ended(self, trial: str, effects: str | None, records: int | None, audit: Audit | None) -> Change:
        """Notes, in the transaction that ends a trial, its audit if it has one, its final effects and its end."""

        def note(ledger: Ledger, signer: Signer) -> Ledger:
            if audit is not None:
                ledger = ledger.audited(signer, audit.attacks, audit.solved, audit.solved_with_keys)
            if effects is not None:
                ledger = ledger.answered(signer, effects, "")
            return ledger.add(signer, ENDED, {"records": None if effects is None else records, **software()})

        return self._noting(trial, note)

    def destroyed(self, trial: str) -> None:
        """Note that the key of a trial that has ended is gone, if that is not noted."""
        ledger = self.read(trial)
        if ledger.ended and ledger.keys_left():
            note = self._noting(trial, _all_destroyed)
            with self._writing.begin() as connection:
                read_trial(connection, trial, lock="update")
                note(connection)

    def _noting(self, trial: str, change: Callable[[Ledger, Signer], Ledger]) -> Change:
        signer = self.signer()  # before the transaction: keys are in another database

        def write(connection: sa.Connection) -> None:
            before = _read(connection, trial)
            ledger = before
            if not ledger:
                # Of a trial that is older than ledgers, records may have come already: then its first entry says so.
                count = sa.select(sa.func.coalesce(sa.func.sum(SHARDS.c.n), 0)).where(SHARDS.c.trial == trial)
                records = round_count(int(connection.execute(count).scalar_one()))
                ledger = ledger.registered(signer, read_trial(connection, trial).fingerprint, records)
            known = len(before.lines)
            new = enumerate(change(ledger, signer).lines[known:], known)
            rows = [{"trial": trial, "number": i, "line": msgspec.json.encode(line).decode()} for i, line in new]
            if rows:
                connection.execute(LEDGER.insert(), rows)

        return write


def _read(connection: sa.Connection, trial: str) -> Ledger:
    query = sa.select(LEDGER.c.line).where(LEDGER.c.trial == trial).order_by(LEDGER.c.number)
    return Ledger([msgspec.json.decode(line, type=SignedEntry) for line in connection.execute(query).scalars()])


def _all_destroyed(ledger: Ledger, signer: Signer) -> Ledger:
    for key in ledger.keys_left():
        ledger = ledger.add(signer, KEY_DESTROYED, {"key": key})
    return ledger
