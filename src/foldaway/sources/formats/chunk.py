"""What a source is asked for and what it gives: the wanted columns, and chunks of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

from foldaway.errors import RecordError
from foldaway.plan import Plan
from foldaway.records.columns import missing_columns

ROWS = 65_536
"""Rows in a chunk: large enough that the cost per chunk vanishes, small enough to stay in cache."""

_LONGEST_TEXT = 2**31 - 1  # bytes that Arrow's `string` can address in one array
_MOST_ROWS = 2**31  # a column of nulls takes no bytes, so a damaged file can claim any number of rows


class Unreadable(Exception):
    """What cannot be read, in words without a record's value that go on after its name: "is empty"."""


class TooLarge(Unreadable):
    """Holds more than is allowed."""


def too_large(what: str) -> TooLarge:
    """The refusal of a body that holds more than this."""
    return TooLarge(f"holds more than {what}; send smaller batches")


@dataclass(frozen=True)
class WantedColumns:
    """The columns a plan reads, by role.

    Attributes:
        numeric: Outcomes, numeric covariates, the weight.
        text: The arm, categorical covariates, the unit. A column in both roles is read as text.
        either: Those of the numeric ones that may have text instead: characteristics without levels.
    """

    numeric: tuple[str, ...]
    text: tuple[str, ...]
    either: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Every wanted column once.

        >>> WantedColumns(numeric=("revenue", "age"), text=("variant", "age")).names
        ('revenue', 'age', 'variant')
        """
        return tuple(dict.fromkeys((*self.numeric, *self.text)))


@dataclass(frozen=True)
class Chunk:
    """Some records of a file, or those of a body.

    Attributes:
        records: The wanted columns that are there, in the order of `WantedColumns.names`: a record batch, or a table
            where a body holds several.
        ragged: How many lines around these records could not be taken apart into columns.
        line: The number of the first record's line in the file, where each record is one line and that can be told.
        ragged_line: The number of the first line that is not a record, where that can be told.
        slow: Lines that had to be read one by one.
    """

    records: pa.RecordBatch | pa.Table
    ragged: int = 0
    line: int | None = None
    ragged_line: int | None = None
    slow: int = 0

    def place(self, first: int | None) -> str:
        """Which line is faulty, for a message: that of a record, or else one that is not a record."""
        if self.line is not None and first is not None:
            return f", first in line {self.line + first:,}"
        return "" if self.ragged_line is None else f", line {self.ragged_line:,} is not a record"


def wanted_by(plan: Plan) -> WantedColumns:
    """The columns that a plan reads, by role.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="id")
        >>> wanted_by(plan)
        WantedColumns(numeric=('y',), text=('group', 'id'), either=frozenset())
    """
    categorical = [name for name in plan.covariates if name in plan.levels]
    listed = [name for name in plan.baseline if plan.levels_of(name)]
    numeric = [name for name in (*plan.measured, *plan.covariates, plan.weight) if name and name not in categorical]
    numeric += [name for name in plan.baseline if name not in listed and name not in numeric]
    stratum = None if plan.strata is None else plan.strata.column
    text = dict.fromkeys(
        name for name in (plan.arm, *categorical, plan.unit, plan.cluster, *plan.segments, stratum, *listed) if name
    )
    return WantedColumns(tuple(numeric), tuple(text), frozenset(plan.unlisted_characteristics))


def require_columns(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Refuse data without one of the wanted columns, or with one of them twice.

    Raises:
        RecordError: It has.
    """
    if missing := [name for name in wanted if name not in names]:
        raise RecordError(f"nothing was folded: the data has no column {missing_columns(missing, wanted, names)}")
    if twice := [name for name in wanted if names.count(name) > 1]:
        raise RecordError(f"the data has more than one column {', '.join(map(repr, twice))}; nothing was folded.")


def present(names: Sequence[str], wanted: WantedColumns) -> dict[str, int]:
    """Where the wanted columns stand among those of the file; a column the file does not have is left out.

    >>> present(["id", "age", "arm"], WantedColumns(numeric=("age", "weight"), text=("arm",)))
    {'age': 1, 'arm': 2}
    """
    for name in wanted.names:
        if names.count(name) > 1:
            raise Unreadable(f"has more than one column named {name!r}; rename one of them")
    return {name: names.index(name) for name in wanted.names if name in names}


def blank(names: Iterable[str]) -> pa.RecordBatch:
    """A record batch without rows, to show the columns of a file without records.

    Its columns have the type null: a damaged file can give a column a type with which Arrow ends the process.
    """
    names = list(names)
    return pa.RecordBatch.from_arrays([pa.nulls(0)] * len(names), names=names)


def slices(chunk: Chunk, rows: int = ROWS) -> Iterator[Chunk]:
    """The chunk in pieces of at most `rows` records, and in one piece if it has none."""
    if chunk.records.num_rows > _MOST_ROWS:
        raise Unreadable("claims more rows in one batch than can be; the file is damaged, write it again")
    yield Chunk(chunk.records.slice(0, rows), chunk.ragged, chunk.line, chunk.ragged_line)
    for start in range(rows, chunk.records.num_rows, rows):
        yield Chunk(chunk.records.slice(start, rows), line=None if chunk.line is None else chunk.line + start)


def join(chunks: Iterable[Chunk]) -> Chunk:
    """All chunks as one.

    >>> numbers = pa.record_batch({"age": pa.array([30.0])})
    >>> joined = join([Chunk(numbers), Chunk(pa.record_batch({"age": pa.array(["old"])}), ragged=1)])
    >>> joined.records.to_pydict(), joined.ragged
    ({'age': ['30', 'old']}, 1)
    """
    parts = list(chunks)
    if len(parts) == 1:
        return parts[0]
    names = parts[0].records.schema.names
    columns = [_concatenate([array for part in parts for array in _arrays(part, name)]) for name in names]
    joined = pa.RecordBatch.from_arrays(columns, names=names)
    ragged = next((part.ragged_line for part in parts if part.ragged), None)
    return Chunk(joined, sum(part.ragged for part in parts), _first_line(parts), ragged)


def _first_line(parts: list[Chunk]) -> int | None:
    """The line of the first record, if the records of the parts stand on consecutive lines."""
    starts = accumulate((part.records.num_rows for part in parts[:-1]), initial=parts[0].line or 0)
    return parts[0].line if all(part.line == start for part, start in zip(parts, starts, strict=True)) else None


def _arrays(chunk: Chunk, name: str) -> list[pa.Array]:
    column = chunk.records.column(name)
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _concatenate(arrays: list[pa.Array]) -> pa.Array:
    if len({array.type for array in arrays}) > 1:
        # A numeric column with a bad cell in some blocks: text in these, which can hold the others' numbers too.
        arrays = [array.cast(pa.string()) for array in arrays]
    if arrays[0].type == pa.string() and sum(array.nbytes for array in arrays) > _LONGEST_TEXT:
        arrays = [array.cast(pa.large_string()) for array in arrays]
    return pa.concat_arrays(arrays)


def as_numbers(cells: pa.Array) -> pa.Array | None:
    """The cells as float64 if every one that is not null is a number, else None.

    >>> as_numbers(pa.array(["1.5", "-2e3", None])).to_pylist()
    [1.5, -2000.0, None]
    >>> as_numbers(pa.array(["1.5", "old"])) is None
    True
    """
    try:
        return cells.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
