"""What a source is asked for and what it gives: the wanted columns, and batches of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

ROWS = 65_536
"""Rows in a batch: large enough that the cost per batch vanishes, small enough to stay in cache."""

_LONGEST_TEXT = 2**31 - 1  # bytes that Arrow's `string` can address in one array
_MOST_ROWS = 2**31  # a column of nulls takes no bytes, so a damaged file can claim any number of rows


class Unreadable(Exception):
    """A file that cannot be read, in plain words without a record's value; `files.read` puts the name before."""


@dataclass(frozen=True)
class WantedColumns:
    """The columns a plan reads, by role.

    Attributes:
        numeric: Outcomes, numeric covariates, the weight.
        text: The arm, categorical covariates, the unit. A column in both roles is read as text.
    """

    numeric: tuple[str, ...]
    text: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every wanted column once.

        >>> WantedColumns(numeric=("revenue", "age"), text=("variant", "age")).names
        ('revenue', 'age', 'variant')
        """
        return tuple(dict.fromkeys((*self.numeric, *self.text)))


@dataclass(frozen=True)
class Chunk:
    """Some records of a file.

    Attributes:
        records: The wanted columns that the file has, in the order of `WantedColumns.names`.
        ragged: How many lines around these records could not be taken apart into columns.
        line: The number of the first record's line in the file, where each record is one line and that can be told.
    """

    records: pa.RecordBatch
    ragged: int = 0
    line: int | None = None


def present(found: Sequence[str], wanted: WantedColumns) -> dict[str, int]:
    """Where the wanted columns stand among those of the file; a column the file does not have is left out.

    >>> present(["id", "age", "arm"], WantedColumns(numeric=("age", "weight"), text=("arm",)))
    {'age': 1, 'arm': 2}
    """
    for name in wanted.names:
        if found.count(name) > 1:
            raise Unreadable(f"has more than one column named {name!r}; rename one of them")
    return {name: found.index(name) for name in wanted.names if name in found}


def blank(names: Iterable[str]) -> pa.RecordBatch:
    """A batch without rows, to show the columns of a file without records.

    Its columns have the type null: a damaged file can give a column a type with which Arrow ends the process.
    """
    names = list(names)
    return pa.RecordBatch.from_arrays([pa.nulls(0)] * len(names), names=names)


def slices(batch: Chunk, rows: int = ROWS) -> Iterator[Chunk]:
    """The batch in pieces of at most `rows` records, and in one piece if it has none."""
    if batch.records.num_rows > _MOST_ROWS:
        raise Unreadable("claims more rows in one batch than can be; the file is damaged, write it again")
    yield Chunk(batch.records.slice(0, rows), batch.ragged, batch.line)
    for start in range(rows, batch.records.num_rows, rows):
        yield Chunk(batch.records.slice(start, rows), line=None if batch.line is None else batch.line + start)


def join(batches: Iterable[Chunk]) -> Chunk:
    """All batches as one.

    >>> numbers = pa.record_batch({"age": pa.array([30.0])})
    >>> joined = join([Chunk(numbers), Chunk(pa.record_batch({"age": pa.array(["old"])}), ragged=1)])
    >>> joined.records.to_pydict(), joined.ragged
    ({'age': ['30', 'old']}, 1)
    """
    parts = list(batches)
    names = parts[0].records.schema.names
    columns = [_concatenate([part.records.column(name) for part in parts]) for name in names]
    joined = pa.RecordBatch.from_arrays(columns, names=names)
    return Chunk(joined, sum(part.ragged for part in parts), _first_line(parts))


def _first_line(parts: list[Chunk]) -> int | None:
    """The line of the first record, if the records of the parts stand on consecutive lines."""
    starts = accumulate((part.records.num_rows for part in parts[:-1]), initial=parts[0].line or 0)
    return parts[0].line if all(part.line == start for part, start in zip(parts, starts, strict=True)) else None


def _concatenate(arrays: list[pa.Array]) -> pa.Array:
    if len({array.type for array in arrays}) > 1:
        # A numeric column with a bad cell in some blocks: text in these, which can hold the others' numbers too.
        arrays = [array.cast(pa.string()) for array in arrays]
    if arrays[0].type == pa.string() and sum(array.nbytes for array in arrays) > _LONGEST_TEXT:
        arrays = [array.cast(pa.large_string()) for array in arrays]
    return pa.concat_arrays(arrays)
