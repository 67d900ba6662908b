"""Saving a state: whether it may go where it is to go, and what became of the files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from glob import has_magic
from pathlib import Path

from foldaway.cli.terminal.progress import file_progress
from foldaway.errors import StateError
from foldaway.keeping.saved import Positions, is_saved
from foldaway.plan import Plan
from foldaway.sources.runs.backlog import Backlog, ledger_of, not_in
from foldaway.sources.runs.folding import fold_paths, started
from foldaway.sources.runs.shares import ReadOptions
from foldaway.trial import Trial, open_saved


def require_savable(target: Path | None, resume: Path | None, overwrite: bool) -> None:
    """Refuse a place that cannot be written, or that holds something else: records cannot be had again.

    Args:
        target: Where the state is to go, if anywhere.
        resume: The state that the run goes on from, if any, and which it may replace.
        overwrite: Whether it may replace another state. It may never replace anything that is no state.
    """
    if target is None:
        return
    if not target.parent.is_dir():
        raise StateError(f"the state cannot be saved as {target}: there is no folder {target.parent}.")
    if not os.access(target.parent, os.W_OK):
        raise StateError(f"the state cannot be saved as {target}: the folder may not be written to.")
    if not target.exists():
        return
    if not target.is_file() or not _is_state(target):
        raise StateError(f"{target} exists and is no foldaway state; save to another name.")
    if not overwrite and (resume is None or resume.resolve() != target.resolve()):
        raise StateError(
            f"{target} holds a state: go on from it with --resume {target}, or say --overwrite to replace it."
        )


def fold_only(
    patterns: Sequence[str], plan: Plan, options: ReadOptions, *, resume: Path | None, key: bytes | None, processes: int
) -> Trial:
    """Fold files into a trial that is saved nowhere."""
    into, positions = (None, None) if resume is None else open_saved(resume, plan, key=key)
    paths = not_in(ledger_of(positions), patterns)
    with file_progress(paths) as progress:
        return fold_paths(started(plan, key=None if into else key, into=into), paths, options, processes, progress)


def fold_and_save(
    patterns: Sequence[str],
    plan: Plan,
    save: Path,
    options: ReadOptions,
    *,
    resume: Path | None,
    delete_after: bool,
    key: bytes | None,
    processes: int,
) -> tuple[Trial, Positions]:
    """Fold files into a saved state, and say what became of them; the trial, and which files are in it."""
    with Backlog(plan, save, resume=resume, delete_after=delete_after, key=key) as backlog:
        outcome = backlog.outcome
        try:
            paths = backlog.find(patterns)
            with file_progress(paths) as progress:
                backlog.fold(paths, options, processes=processes, progress=progress)
        finally:
            for path in outcome.deleted:
                _tell(f"deleted {path}")
            for path, count in outcome.dropped.items():
                _tell(f"{path}: {count:,} faulty records left out")
            for path in outcome.barren:
                _tell(f"{path}: no record of it was folded" + ("; it was not deleted" if delete_after else ""))
    for pattern in outcome.absent:
        _tell(
            f"{pattern}: matches no file now; only what was folded before is in the state"
            if has_magic(pattern)
            else f"{pattern}: not there any more; the state knows it from before"
        )
    if outcome.known:
        _tell(f"{counted(outcome.known)} skipped: {save} holds their records already.")
    if outcome.waiting_records:
        _tell(
            f"{outcome.waiting_records:,} records ({counted(outcome.waiting)}) wait for the next run and are not in "
            f"the effects: a saved state grows by at least the plan's cohort of {plan.privacy.cohort:,} records."
        )
    tell_saved(save)
    return outcome.trial, backlog.ledger.pages


def tell_saved(path: Path) -> None:
    """Say where the state is."""
    _tell(f"State written to {path} ({path.stat().st_size:,} bytes).")


def counted(files: Sequence[Path]) -> str:
    """The number of files in words.

    Example:
        >>> counted([Path("a")]), counted([])
        ('1 file', '0 files')
    """
    return f"{len(files):,} file{'' if len(files) == 1 else 's'}"


def _tell(sentence: str) -> None:
    # Not every name of a file is text; what is not is shown as it would be typed.
    print(sentence.encode(errors="backslashreplace").decode(), file=sys.stderr)


def _is_state(path: Path) -> bool:
    with path.open("rb") as file:
        return is_saved(file.read(8))
