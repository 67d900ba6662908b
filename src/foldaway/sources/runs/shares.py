"""Files shared out: pieces of about equal size, each of which a worker can fold by itself; and how it does.

How files are cut depends on the files and the plan alone, not on the number of workers, and shares are merged in their
order: so any number of processes gives the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from foldaway.calibrating import Calibration, Earlier
from foldaway.errors import RecordError, instead_of
from foldaway.plan import Plan
from foldaway.records.faults import FaultyBatch
from foldaway.sources.formats.chunk import Chunk, WantedColumns, wanted_by
from foldaway.sources.formats.files import ReadOptions, parts, read, require_wanted
from foldaway.sources.formats.paths import Stdin, size
from foldaway.tallies import empty_holding
from foldaway.trial import Trial

_LARGEST = 64 * 2**20  # bytes: a few seconds of work
_SHARES = 16  # of a smaller whole, so that all workers end at about the same time

# A share costs a state to send, check and merge, which must not take long next to the records in it.
_BYTES_PER_BYTE_OF_STATE = 4


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A file, or some of its row groups or batches.

    Attributes:
        name: The file's name as the operating system's bytes, for not every name is text.
        size: How many of the file's bytes this is.
        part: The first of the file's parts, and the one after the last; None for all of the file.
        ends: Whether the file ends with it.
    """

    name: bytes
    size: int
    part: tuple[int, int] | None = None
    ends: bool = True

    @property
    def path(self) -> Path:
        """The file."""
        return Path(os.fsdecode(self.name))


FilePart = list[Piece]


def shares_of(paths: Sequence[Path], plan: Plan, format: str | None = None) -> list[FilePart]:
    r"""The files in shares: several small files in one, a large one in many if its format allows.

    Where the plan promises complete units, every file stays whole: a unit's records may be anywhere in it.

    Example:
        >>> import tempfile
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = [Path(folder, name) for name in ("a.csv", "b.csv")]
        ...     _ = [file.write_text("group,y\na,1\n") for file in files]
        ...     [[piece.path.name for piece in share] for share in shares_of(files, plan)]
        [['a.csv', 'b.csv']]
    """
    sizes = {path: size(path) or 0 for path in paths}
    least = _BYTES_PER_BYTE_OF_STATE * (1000 + 8 * empty_holding(plan).size)
    enough = max(min(_LARGEST, sum(sizes.values()) // _SHARES), least)
    shares: list[FilePart] = []
    small: FilePart = []
    for path in paths:
        if sizes[path] > enough and not plan.whole_units:
            shares += [small] if small else []
            shares += [[piece] for piece in _pieces(path, parts(path, format), enough)]
            small = []
        else:
            small.append(Piece(os.fsencode(path), sizes[path]))
            if sum(piece.size for piece in small) >= enough:
                shares.append(small)
                small = []
    return shares + ([small] if small else [])


def _pieces(path: Path, sizes: list[int], enough: int) -> list[Piece]:
    """The parts of a file put together until they are enough."""
    name, pieces, start, total = os.fsencode(path), [], 0, 0
    if len(sizes) == 1:
        return [Piece(name, sizes[0])]
    for i, more in enumerate(sizes, start=1):
        total += more
        if total >= enough or i == len(sizes):
            pieces.append(Piece(name, total, (start, i), i == len(sizes)))
            start, total = i, 0
    return pieces


class Count(NamedTuple):
    """What became of the records of a piece of a file."""

    folded: int
    dropped: int


def fold_share(
    share: FilePart, plan: Plan, key: bytes | None, options: ReadOptions, progress: Callable[[Path, int], None]
) -> tuple[Trial, list[Count]]:
    """The trial of a share, and a count for each piece; progress is told as so many more bytes of a file."""
    trial, counts, wanted, whole = Trial(plan, key=key), [], wanted_by(plan), plan.whole_units
    for piece in share:
        done = 0

        def tell(used: int, path: Path = piece.path) -> None:
            nonlocal done
            progress(path, used - done)
            done = used

        folded, dropped = trial.n, trial.dropped.total
        part = None if piece.part is None else range(*piece.part)
        fold_columns(trial, piece.path, wanted, options, whole=whole, part=part, progress=tell)
        counts.append(Count(trial.n - folded, trial.dropped.total - dropped))
    return trial, counts


def fold_columns(
    into: Trial | Calibration | Earlier,
    path: Path | Stdin,
    wanted: WantedColumns,
    options: ReadOptions,
    *,
    whole: bool = False,
    part: range | None = None,
    progress: Callable[[int], None],
) -> None:
    """Fold these columns of a file, or of a part of it, chunk by chunk."""
    for chunk in read(path, wanted, options, whole=whole, part=part, progress=progress):
        require_wanted(path, wanted, chunk, options.delimiter)
        with instead_of(RecordError, partial(_with_place, path, chunk)):
            into.fold(chunk.records, text=True, unreadable=chunk.ragged)


def _with_place(path: Path | Stdin, chunk: Chunk, error: RecordError) -> RecordError:
    first = error.first if isinstance(error, FaultyBatch) else None
    where = chunk.place(first) if isinstance(error, FaultyBatch) else ""
    return RecordError(f"{path}{where}: {error}")
