"""A backlog of files, folded into a saved state: resumable after any crash, each file deleted if so wished.

The state and the list of the files in it go to the disk in one write. A file is deleted only after that, so at every
moment its records are in the file, or in the state on the disk, or in both; and the list says which. That a file is
to be deleted is in the list before it is; that it was, after: a run that was killed in between leaves it to the next
one to see that the file is gone.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from glob import has_magic
from pathlib import Path

from foldaway.account.account import Account
from foldaway.account.trial_file import TrialFile
from foldaway.errors import RecordError, SourceError, StateError, instead_of
from foldaway.keeping.disk import sync_folder, trouble
from foldaway.keeping.folded_files import FilePositions, FoldedFile, FoldedFiles
from foldaway.keeping.saved import Positions, of_kind
from foldaway.plan import Plan
from foldaway.records.faults import none_folded
from foldaway.sources.formats.files import ReadOptions
from foldaway.sources.formats.paths import Stdin, expand
from foldaway.sources.runs.folding import OnBytes, files_and_pipes, fold_pipes, fold_shares
from foldaway.sources.runs.shares import shares_of
from foldaway.trial import Trial

# Saving may take this share of the time: a small state is saved after nearly every share of the files.
_SAVING = 0.1


@dataclass
class RunOutcome:
    """What became of a backlog.

    Attributes:
        trial: The trial as it is saved.
        folded: Files whose records are new in it.
        known: Files whose records were in it before.
        waiting: Files that wait for the next run, since together they hold fewer records than a cohort.
        waiting_records: How many records these hold.
        deleted: Files that were deleted.
        dropped: How many records of a file were left out as faulty, for files with such.
        barren: Files of which no record was folded. They are never deleted.
        absent: Names and patterns for which there is no file, any more.
        fixed: Whether coefficients were fixed, from all of its records.
    """

    trial: Trial
    folded: list[Path] = field(default_factory=list)
    known: list[Path] = field(default_factory=list)
    waiting: list[Path] = field(default_factory=list)
    waiting_records: int = 0
    deleted: list[Path] = field(default_factory=list)
    dropped: Counter[Path] = field(default_factory=Counter)
    barren: list[Path] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    fixed: bool = False


class Backlog(AbstractContextManager["Backlog"]):
    """Files on their way into a saved state.

    Args:
        plan: The plan.
        save: Where the state is, or is to be.
        resume: The saved state to go on from, if any; the one at ``save`` need not be there yet.
        delete_after: Whether to delete each file once the state that holds its records is on the disk.
        key: The trial's key; if left out, that of this machine's user.
    """

    def __init__(
        self,
        plan: Plan,
        save: Path,
        *,
        resume: Path | None = None,
        delete_after: bool = False,
        key: bytes | None = None,
    ) -> None:
        self.save = save
        self.delete_after = delete_after
        self._next_save = 0.0
        self._struck = False
        with ExitStack() as held:
            self._store = TrialFile(save, plan, FoldedFiles().positions, key=key, resume=resume)
            held.callback(self._store.close)
            self._account = Account(self._store)
            self._account.live.fold([])  # one that lacks its key says so before a file is opened
            self._held = held.pop_all()
        self.files = FoldedFiles(self._account.reached)
        self.outcome = RunOutcome(self._account.durable.tallies)

    def __exit__(self, *_: object) -> None:
        with self._held:
            if self.outcome.deleted or self._struck:
                self._write()  # the tallies as they are; only that files are gone is new
                for folder in {path.parent for path in self.outcome.deleted}:
                    sync_folder(folder)

    def find(self, patterns: Sequence[str]) -> list[Path | Stdin]:
        """The files still to be folded; those that are in the state already are deleted, if so wished.

        Raises:
            SourceError: A pattern never matched a file; or a file has changed since it was folded, or cannot be
                deleted.
        """
        there = [pattern for pattern in patterns if self._is_there(pattern)]
        files, pipes = files_and_pipes(expand(there))
        for file in files if self.delete_after else ():
            require_deletable(file)
        if self.delete_after and pipes:
            raise SourceError(f"--delete-after is for files; {pipes[0]} cannot be deleted.")
        named = {Path(pattern).expanduser().parent for pattern in patterns}  # one that is a pattern itself is no folder
        for folder in named.union(file.parent for file in files):
            self._struck |= self.files.strike_gone(folder)
        is_folded = {file: self.files.is_folded(file) for file in files}
        self.outcome.known = [file for file in files if is_folded[file]]
        self._delete(self.outcome.known)
        return [*(file for file in files if not is_folded[file]), *pipes]

    def fold(
        self,
        paths: Sequence[Path | Stdin],
        options: ReadOptions,
        *,
        processes: int = 1,
        progress: OnBytes = lambda path, used: None,
    ) -> RunOutcome:
        """Fold the files, save after each cohort of records or more, and delete what is saved, if so wished.

        Raises:
            SourceError: A file cannot be read, or changed while it was read.
            RecordError: A batch was refused.
            WorkerError: A worker process ended before its work did.
            StateError: There are too few records in all for a state to be saved.
        """
        files, pipes = files_and_pipes(paths)
        before = {file: self.files.look(file) for file in files}
        account = self._account
        shares = shares_of(files, account.live.plan, options.format)
        complete: list[Path] = []
        folded: Counter[Path] = Counter()
        for share, whole, counts in fold_shares(account.live, shares, options, processes, progress):
            account.live = whole
            for piece, count in zip(share, counts, strict=True):
                folded[piece.path] += count.folded
                self.outcome.dropped += Counter({piece.path: count.dropped})
                if piece.ends:
                    before[piece.path].barren = not folded[piece.path]
            complete += [piece.path for piece in share if piece.ends]
            if share[-1].ends and account.is_due() and time.monotonic() >= self._next_save:
                self._commit(complete, before)
                complete = []
        fold_pipes(account.live, pipes, options, progress)
        self._end(complete, before)
        return self.outcome

    def _end(self, complete: list[Path], before: dict[Path, FoldedFile]) -> None:
        """Save what is left, unless that is too little to be told apart from single records."""
        trial = self._account.live
        if not trial.n:
            raise RecordError(none_folded(trial.dropped, "save"))
        if self._account.is_due() or not self._account.pending:
            if complete or self._account.pending:
                self._commit(complete, before)
        elif not self.outcome.trial.n:
            raise StateError(
                f"nothing was saved: the files hold records of {trial.newcomers.distinct:,} units, and a saved state "
                f"needs the plan's cohort of {trial.plan.privacy.cohort:,}. Fold more files together, or set a smaller "
                "`cohort` in [privacy] of the plan."
            )
        else:
            self.outcome.waiting, self.outcome.waiting_records = complete, self._account.pending

    def _commit(self, complete: list[Path], before: dict[Path, FoldedFile]) -> None:
        start = time.monotonic()
        for path in complete:
            now = self.files.look(path)
            if (now.stamp, now.place) != (before[path].stamp, before[path].place):
                raise SourceError(f"{path} changed while it was read, and is not in the state; run it again.")
            self.files.enter(path, before[path])
            if self.delete_after and not before[path].barren:
                self.files.leave(path)
        self.outcome.fixed |= self._account.live.unfixed  # with what all files of this run have given
        self._account.commit()
        self.outcome.trial = self._account.durable.tallies
        self.outcome.folded += complete
        self._delete(complete)
        end = time.monotonic()
        self._next_save = end + (end - start) / _SAVING

    def _write(self) -> None:
        """Once more, for the list of files has changed."""
        durable = self._account.durable
        self._store.write(durable, durable.tallies, durable.reached)

    def _delete(self, paths: Sequence[Path]) -> None:
        self.outcome.barren += [path for path in paths if self.files.is_barren(path)]
        if not self.delete_after:
            return
        paths = [path for path in paths if not self.files.is_barren(path)]
        newly = [path for path in paths if self.files.leave(path)]
        if newly:
            self._write()
        for path in paths:
            if not self.files.is_folded(path):
                raise SourceError(f"{path} changed after it was folded, so it was not deleted.")
            with instead_of(OSError, partial(_undeleted, path)):
                path.unlink()
            self.files.strike(path)
            self.outcome.deleted.append(path)

    def _is_there(self, pattern: str) -> bool:
        """Whether a pattern names a file; if not, it must be one whose files are folded and gone."""
        if pattern == "-":
            return True
        try:
            expand([pattern])
        except SourceError:
            if (has_magic(pattern) and len(self.files)) or Path(pattern).expanduser() in self.files:
                self.outcome.absent.append(pattern)
                return False
            raise
        return True


def files_of(positions: Positions | None) -> FoldedFiles:
    """The files in a saved state; a new list where nobody has kept positions.

    Raises:
        StateError: The positions are of another kind of source.
    """
    return FoldedFiles(None if positions is None else of_kind(positions, FilePositions))


def not_in(folded: FoldedFiles, patterns: Sequence[str]) -> list[Path | Stdin]:
    """The files of these names that are not in a state yet.

    Raises:
        SourceError: A pattern matches no file, or a file has changed since it was folded.
    """
    files, pipes = files_and_pipes(expand(patterns))
    return [*(file for file in files if not folded.is_folded(file)), *pipes]


def require_deletable(path: Path) -> None:
    """Refuse a file whose deletion would fail, or would leave its records under another name.

    Raises:
        SourceError: It is a link, has another name, or lies in a folder that may not be changed.
    """
    with instead_of(OSError, lambda error: SourceError(f"{path} {trouble(error)}")):
        links = path.lstat().st_nlink
    if path.is_symlink():
        raise SourceError(f"{path} is a symbolic link, and deleting it would leave the records; name the file itself.")
    if links > 1:
        raise SourceError(f"{path} has another name (a hard link), so deleting it would leave the records.")
    if not os.access(path.parent, os.W_OK):
        raise SourceError(f"{path} cannot be deleted: its folder may not be changed.")


def _undeleted(path: Path, error: OSError) -> SourceError:
    return SourceError(f"{path} cannot be deleted: {error.strerror}. Its records are in the state.")
