"""One share of files, or one file, folded by this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from foldaway.errors import RecordError
from foldaway.plan import Plan
from foldaway.records.faults import FaultyBatch
from foldaway.sources.formats.chunk import Chunk
from foldaway.sources.formats.columns import require_wanted, wanted_by
from foldaway.sources.formats.files import read, require_options
from foldaway.sources.formats.paths import Stdin
from foldaway.sources.runs.shares import Share
from foldaway.trial import Trial


class Count(NamedTuple):
    """What became of the records of a piece of a file."""

    folded: int
    dropped: int


class ReadOptions(msgspec.Struct, frozen=True):
    """How files are read.

    Attributes:
        format: csv, tsv, parquet, arrow or ndjson; by default the file's name or first bytes tell.
        delimiter: What stands between two cells of a CSV file, if it is not a comma.
    """

    format: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        require_options(self.format, self.delimiter)


def fold_share(
    share: Share, plan: Plan, key: bytes | None, options: ReadOptions, progress: Callable[[Path, int], None]
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
    options: ReadOptions,
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


def _fold(trial: Trial, batch: Chunk) -> str | None:
    """Fold a batch; if it is refused, where and why."""
    try:
        trial.fold(batch.records, text=True, unreadable=batch.ragged)
    except FaultyBatch as error:
        where = "" if batch.line is None or error.first is None else f", first in line {batch.line + error.first:,}"
        return f"{where}: {error}"
    except RecordError as error:
        return f": {error}"
    return None
