"""Files folded into a trial, by this process or by several."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import islice
from pathlib import Path

from foldaway.errors import PlanError, SourceError
from foldaway.numerics.threads import cores, one_blas_thread, one_core
from foldaway.plan import Plan
from foldaway.sources.formats.chunk import wanted_by
from foldaway.sources.formats.files import ReadOptions
from foldaway.sources.formats.paths import Stdin, expand, size
from foldaway.sources.runs.processes import Workers
from foldaway.sources.runs.shares import Count, FilePart, fold_columns, fold_share, shares_of
from foldaway.trial import Trial

OnBytes = Callable[[Path | Stdin, int], None]
Folded = tuple[Trial, list[Count]]


def fold_files(
    patterns: str | Path | Sequence[str | Path],
    plan: Plan,
    *,
    processes: int = 1,
    key: bytes | None = None,
    into: Trial | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    progress: OnBytes | None = None,
) -> Trial:
    r"""Fold files into a trial, in bounded memory; only the plan's columns are read.

    Where the plan promises complete units, a file is one batch: all records of a unit must be in one file.

    Args:
        patterns: File names or globs; ``-`` for standard input.
        plan: The plan.
        processes: How many processes to share the files out to. Large Parquet files and Arrow files go by row groups
            and batches, other files whole; standard input is folded by this process. One process folds several shares
            at a time, on all of its cores.
        key: The trial's key; if left out, that of this machine's user. It reaches workers through memory only.
        into: A trial to go on with; a new one if left out. It is left as it was, whatever happens.
        format: csv, tsv, parquet, arrow or ndjson; by default the file's name or first bytes tell.
        delimiter: What stands between two cells of a CSV file, if its first line does not tell.
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
        ...     fold_files(f"{folder}/*.csv", plan)
        Trial: demo | n=6 | a=3, b=3
    """
    trial = started(plan, key=key, into=into)
    options = ReadOptions(format, delimiter)
    given = [patterns] if isinstance(patterns, str | Path) else patterns
    paths = expand([os.fspath(pattern) for pattern in given])
    return fold_paths(trial, paths, options, processes, progress or (lambda path, used: None))


def fold_paths(
    trial: Trial, paths: Sequence[Path | Stdin], options: ReadOptions, processes: int, progress: OnBytes
) -> Trial:
    """The trial with all records of the files in it."""
    files, pipes = files_and_pipes(paths)
    shares = shares_of(files, trial.plan, options.format)
    for _, whole, _ in fold_shares(trial, shares, options, processes, progress):
        trial = whole
    fold_pipes(trial, pipes, options, progress)
    return trial


def started(plan: Plan, *, key: bytes | None = None, into: Trial | None = None) -> Trial:
    """A trial that takes records: a new one, or a copy of the one to go on with."""
    if into is None:
        return Trial(plan, key=key)
    if key is not None:
        raise PlanError("a trial to go on with has its key already: load it with key=, and leave key out here.")
    trial = into.copy()
    trial.fold([])  # one that has ended, or lacks its key, says so before a file is opened
    return trial


def files_and_pipes(paths: Sequence[Path | Stdin]) -> tuple[list[Path], list[Path | Stdin]]:
    """Files, and what only this process can read, and only once: standard input and pipes."""
    files = [path for path in paths if isinstance(path, Path) and size(path) is not None]
    return files, [path for path in paths if path not in files]


def fold_pipes(trial: Trial, pipes: Sequence[Path | Stdin], options: ReadOptions, progress: OnBytes) -> None:
    """Fold what only this process can read into the trial."""
    wanted, whole = wanted_by(trial.plan), trial.plan.whole_units
    for pipe in pipes:
        fold_columns(trial, pipe, wanted, options, whole=whole, progress=partial(progress, pipe))


def fold_shares(
    trial: Trial, shares: Sequence[FilePart], options: ReadOptions, processes: int, progress: OnBytes
) -> Iterator[tuple[FilePart, Trial, list[Count]]]:
    """Each share, the trial with all shares up to it, and what became of the records of each of its pieces."""
    used: Counter[Path] = Counter()

    def tell(path: Path, more: int) -> None:
        used[path] += more
        progress(path, used[path])

    key = trial.key if trial.plan.keyed else None
    if processes < 1:
        raise SourceError("the number of processes must be 1 or more.")
    if processes == 1 or len(shares) < 2:
        # The bootstrap splits its replicates over the cores; splitting the shares as well would crowd them.
        threads = 1 if trial.plan.bootstrap is not None else min(cores(), len(shares))
        fold = partial(fold_share, plan=trial.plan, key=key, options=options)
        for share, (more, counts) in zip(shares, _by_threads(shares, fold, tell, threads), strict=True):
            trial += more
            yield share, trial, counts
        return
    with Workers(trial.plan, key, options, min(processes, len(shares))) as workers:
        for share, answer in zip(shares, workers.fold(shares, tell), strict=True):
            trial += Trial.loads(answer.state, trial.plan, key=key)
            yield share, trial, answer.counts


def _by_threads(
    shares: Sequence[FilePart], fold: Callable[..., Folded], tell: Callable[[Path, int], None], threads: int
) -> Iterator[Folded]:
    """The trial of each share, in order, a few of them folded at a time."""
    if threads <= 1:
        yield from (fold(share, progress=tell) for share in shares)
        return

    def fold_alone(share: FilePart) -> tuple[Folded, list[tuple[Path, int]]]:
        used: list[tuple[Path, int]] = []
        with one_core():
            return fold(share, progress=lambda path, more: used.append((path, more))), used

    ahead: deque[Future[tuple[Folded, list[tuple[Path, int]]]]] = deque()
    waiting = iter(shares)
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for _ in shares:
            upcoming = islice(waiting, threads + 1 - len(ahead))
            # In this thread's context: it has NumPy's allocator, which a server makes wipe what it frees.
            ahead += [pool.submit(copy_context().run, fold_alone, share) for share in upcoming]
            folded, used = ahead.popleft().result()
            for path, more in used:  # whoever listens is called by this thread only
                tell(path, more)
            yield folded
