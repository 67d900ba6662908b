"""A database's sums on their way into a trial: what ``run`` does with an answer, or with a query."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import foldaway as fa
from foldaway.account.account import Account
from foldaway.account.trial_file import TrialFile
from foldaway.cli.terminal.words import tell
from foldaway.errors import RecordError, SourceError, StateError, many
from foldaway.keeping.folded_files import FoldedFiles
from foldaway.keeping.saved import Positions
from foldaway.records.faults import none_folded
from foldaway.sources.formats.chunk import WantedColumns
from foldaway.sources.formats.files import ReadOptions, read
from foldaway.sources.formats.paths import expand
from foldaway.tallies.answer import TEXTS, columns_of_numbers
from foldaway.trial import Trial


class DatabaseSums:
    """Sums of a database on their way into a trial: a statement's answer in a file, or a query for it to answer.

    Args:
        answer: The file of an answer; ``-`` for standard input.
        database: The address of a database, in place of an answer.
        query: What to select there.
        label: What the records are called.
        options: How to read the file.
    """

    def __init__(
        self, answer: str | None, database: str | None, query: str | None, label: str | None, options: ReadOptions
    ) -> None:
        if answer is not None and (database is not None or query is not None):
            raise SourceError("give --sums, or --database and --query, but not both.")
        if answer is None and (database is None or query is None):
            raise SourceError("--database and --query go together: where the records are, and which of them to sum.")
        if not label:
            raise SourceError(
                "sums and queries need a label, so that none counts twice: --label 2026-03-01, for instance."
            )
        self._answer, self._database, self._query, self._label = answer, database, query, label
        self._options = options

    def into(self, trial: Trial) -> Trial:
        """The trial with these records in it."""
        trial.require_new(self._label)  # before the database is asked
        if self._answer is None:
            from foldaway.engines.sql.connecting import connected

            assert self._database is not None
            assert self._query is not None
            with closing(connected(self._database)) as connection, catch_warnings(record=True) as warned:
                simplefilter("always", fa.StreamedWarning)
                try:
                    return fa.fold_query(connection, self._query, trial.plan, label=self._label, into=trial)
                finally:  # it may be the reason for an error
                    for warning in warned:
                        tell(f"note: {warning.message}")
        trial = trial.copy()
        trial.fold_sums(self._lines(trial.plan), label=self._label)
        return trial

    def _lines(self, plan: fa.Plan) -> Any:
        """The answer in the file."""
        assert self._answer is not None
        paths = expand([self._answer])
        if len(paths) > 1:
            raise SourceError("--sums takes one answer; fold each under a label of its own.")
        wanted = WantedColumns(tuple(columns_of_numbers(plan)), TEXTS)
        (chunk,) = read(paths[0], wanted, self._options, whole=True)
        return chunk.records

    def save(self, plan: fa.Plan, target: Path, resume: Path | None, key: bytes | None) -> tuple[Trial, Positions]:
        """Fold them into a saved state, if they are a cohort by themselves."""
        with TrialFile(target, plan, FoldedFiles().positions, key=key, resume=resume) as store:
            account = Account(store)
            account.live = self.into(account.live)
            if not account.live.n:
                raise RecordError(none_folded(account.live.dropped, "save"))
            if account.pending and not account.is_due():
                raise StateError(
                    f"nothing was saved: these sums are of {many(account.live.newcomers.distinct, 'unit')}, and a "
                    f"saved state grows by at least the plan's cohort of {plan.privacy.cohort:,}. Sum several days "
                    "together, or set a smaller `cohort` in [privacy] of the plan."
                )
            account.commit()
            return account.durable.tallies, account.reached
