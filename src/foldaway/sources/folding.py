"""Files folded into a trial, by this process or by several."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from foldaway.errors import PlanError, RecordError, SourceError
from foldaway.plan import Plan
from foldaway.records.faults import FaultyBatch
from foldaway.sources.batch import Batch, Wanted
from foldaway.sources.files import read, require_options
from foldaway.sources.paths import Stdin, expand, size
from foldaway.sources.shares import Share, shares_of
from foldaway.trial import Trial

Progress = Callable[[Path | Stdin, int], None]


class Count(NamedTuple):
    """What became of the records of a piece of a file."""

    folded: int
    dropped: int


class FoldedShare(NamedTuple):
    """A share, the trial with all shares up to it, and what became of the records of each of its pieces."""

    share: Share
    trial: Trial
    counts: list[Count]


class Options(msgspec.Struct, frozen=True):
    """How files are read.

    Attributes:
        format: csv, tsv, parquet, arrow or ndjson; by default the file's name or first bytes tell.
        delimiter: What stands between two cells of a CSV file, if it is not a comma.
    """

    format: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        require_options(self.format, self.delimiter)


def wanted_by(plan: Plan) -> Wanted:
    """The columns that a plan reads, by role.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="id")
        >>> wanted_by(plan)
        Wanted(numeric=('y',), text=('group', 'id'))
    """
    categorical = [name for name in plan.covariates if name in plan.levels]
    numeric = [name for name in (*plan.outcomes, *plan.covariates, plan.weight) if name and name not in categorical]
    text = [name for name in (plan.arm, *categorical, plan.unit) if name]
    return Wanted(tuple(numeric), tuple(text))


def require_columns(wanted: Sequence[str], found: Sequence[str]) -> None:
    """Refuse data without one of the wanted columns, or with one of them twice.

    Raises:
        RecordError: It has.
    """
    for rule, wrong in (
        ("no column", [name for name in wanted if name not in found]),
        ("more than one column", [name for name in wanted if found.count(name) > 1]),
    ):
        if wrong:
            raise RecordError(f"the data has {rule} {', '.join(map(repr, wrong))}; nothing was folded.")


def require_wanted(path: Path | Stdin, wanted: Wanted, batch: Batch) -> None:
    """Refuse a file without one of the wanted columns.

    Raises:
        RecordError: It has not all of them.
    """
    missing = [name for name in wanted.names if name not in batch.records.schema.names]
    if not missing:
        return
    hint = (
        " Is it separated by commas, with the names in the first line? If not, name the delimiter."
        if len(missing) > 1
        else ""
    )
    listed = ", ".join(map(repr, missing))
    raise RecordError(f"{path} has no column {listed}; nothing of it was folded.{hint}")


def fold_files(
    patterns: str | Path | Sequence[str | Path],
    plan: Plan,
    *,
    processes: int = 1,
    key: bytes | None = None,
    into: Trial | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    progress: Progress | None = None,
) -> Trial:
    r"""Fold files into a trial, in bounded memory; only the plan's columns are read.

    Where the plan promises complete units, a file is one batch: all records of a unit must be in one file.

    Args:
        patterns: File names or globs; ``-`` for standard input.
        plan: The plan.
        processes: How many processes to share the files out to. Large Parquet files and Arrow files go by row groups
            and batches, other files whole; standard input is folded by this process.
        key: The bootstrap's key, for plans with one; a new one if left out. It reaches workers through memory only.
        into: A trial to go on with; a new one if left out. It is left as it was, whatever happens.
        format: csv, tsv, parquet, arrow or ndjson; by default the file's name or first bytes tell.
        delimiter: What stands between two cells of a CSV file, if it is not a comma.
        progress: Called with a file and the bytes of it used so far.

    Returns:
        The trial with all records of the files in it.

    Raises:
        SourceError: A file cannot be read.
        RecordError: A batch was refused; the message names the file.
        WorkerError: A worker process ended before its work did.

    Example:
        >>> import tempfile
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for day in range(3):
        ...         _ = Path(folder, f"day{day}.csv").write_text("group;y\na;1\nb;2\n")
        ...     fold_files(f"{folder}/*.csv", plan, delimiter=";")
        Trial: demo | n=6 | a=3, b=3
    """
    trial = started(plan, key=key, into=into)
    options = Options(format, delimiter)
    given = [patterns] if isinstance(patterns, str | Path) else patterns
    return fold_paths(trial, expand([os.fspath(pattern) for pattern in given]), options, processes, progress)


def fold_paths(
    trial: Trial,
    paths: Sequence[Path | Stdin],
    options: Options,
    processes: int = 1,
    progress: Progress | None = None,
) -> Trial:
    """The trial with all records of the files in it."""
    files, pipes = told_apart(paths)
    for done in fold_shares(trial, shares_of(files, trial.plan, options.format), options, processes, progress):
        trial = done.trial
    for pipe in pipes:
        fold_one(trial, pipe, options, progress=None if progress is None else partial(progress, pipe))
    return trial


def started(plan: Plan, *, key: bytes | None = None, into: Trial | None = None) -> Trial:
    """A trial that takes records: a new one, or a copy of the one to go on with."""
    if into is None:
        return Trial(plan, key=key)
    if key is not None:
        raise PlanError("a trial to go on with has its key already: load it with key=, and leave key out here.")
    trial = into.copy()
    trial.fold([])  # one that is sealed, or lacks its key, says so before a file is opened
    return trial


def told_apart(paths: Sequence[Path | Stdin]) -> tuple[list[Path], list[Path | Stdin]]:
    """Files, and what only this process can read, and only once: standard input and pipes."""
    files = [path for path in paths if isinstance(path, Path) and size(path) is not None]
    return files, [path for path in paths if path not in files]


def fold_shares(
    trial: Trial, shares: Sequence[Share], options: Options, processes: int = 1, progress: Progress | None = None
) -> Iterator[FoldedShare]:
    """Fold share after share."""
    used: Counter[Path] = Counter()

    def told(path: Path, more: int) -> None:
        used[path] += more
        if progress is not None:
            progress(path, used[path])

    key = None if trial.plan.resampling is None else trial.key
    if processes < 1:
        raise SourceError("the number of processes must be 1 or more.")
    if processes == 1 or len(shares) < 2:
        for share in shares:
            more, counts = fold_share(share, trial.plan, key, options, told)
            trial += more
            yield FoldedShare(share, trial, counts)
        return
    from foldaway.sources.workers import Workers

    with Workers(trial.plan, key, options, min(processes, len(shares))) as workers:
        for share, answer in zip(shares, workers.fold(shares, told), strict=True):
            trial += Trial.loads(answer.state, trial.plan, key=key)
            yield FoldedShare(share, trial, answer.counts)


def fold_share(
    share: Share, plan: Plan, key: bytes | None, options: Options, progress: Callable[[Path, int], None]
) -> tuple[Trial, list[Count]]:
    """The trial of a share, and a count for each piece; progress is told as so many more bytes of a file."""
    trial, counts = Trial(plan, key=key), []
    for piece in share:
        done = 0

        def told(used: int, path: Path = piece.path) -> None:
            nonlocal done
            progress(path, used - done)
            done = used

        folded, dropped = trial.n, trial.dropped.total
        fold_one(trial, piece.path, options, part=None if piece.part is None else range(*piece.part), progress=told)
        counts.append(Count(trial.n - folded, trial.dropped.total - dropped))
    return trial, counts


def fold_one(
    trial: Trial,
    path: Path | Stdin,
    options: Options,
    *,
    part: range | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Fold one file, or a part of it, into the trial."""
    wanted = wanted_by(trial.plan)
    for batch in read(
        path,
        wanted,
        whole=trial.plan.complete_units,
        format=options.format,
        delimiter=options.delimiter,
        part=part,
        progress=progress,
    ):
        require_wanted(path, wanted, batch)
        refusal = _fold(trial, batch)
        if refusal:
            raise RecordError(f"{path}{refusal}")


def _fold(trial: Trial, batch: Batch) -> str | None:
    """Fold a batch; if it is refused, where and why."""
    try:
        trial.fold(batch.records, text=True, unreadable=batch.ragged)
    except FaultyBatch as error:
        where = "" if batch.line is None or error.first is None else f", first in line {batch.line + error.first:,}"
        return f"{where}: {error}"
    except RecordError as error:
        return f": {error}"
    return None
