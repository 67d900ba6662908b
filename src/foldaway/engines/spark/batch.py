"""A Spark data frame: every partition folded where it is, the tallies merged in a tree on the executors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from foldaway.engines.partial import (
    Partial,
    fold_partition,
    gathered,
    key_for,
    merged,
    opened,
    plan_columns,
    travel_key,
    trial_of,
)
from foldaway.errors import PlanError, RecordError, SourceError, instead_of
from foldaway.keeping.sealing import seal
from foldaway.plan import Plan
from foldaway.trial import Trial

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

FAN_IN = 8
"""States that the driver merges at the end, and by how much each level of the tree is narrower than the one before."""

# A job's local properties travel with its tasks, in memory, and nowhere else but into the event log. There Spark hides
# those whose names fit `spark.redaction.regex`, by default everything with "secret" in it.
PROPERTY = "foldaway.secret"

_SCHEMA = "place int, parcel binary"
_REDACTED = "(?i)secret|password|token|access[.]?key"


def fold(df: DataFrame, plan: Plan, *, key: bytes | None = None, units_together: bool = False) -> Trial:
    """Fold a Spark data frame of any size.

    Only the plan's columns are read. Records never leave the executor that reads them, unless the plan promises
    complete units and they have to be brought together.

    Args:
        df: The data frame.
        plan: The plan.
        key: The trial's key; if left out, that of the driver's user.
        units_together: With `records_per_unit = "together"`, that all records of a unit already lie in one partition,
            so that Spark need not shuffle the records.

    Returns:
        The trial of all records.

    Raises:
        RecordError: A column is missing, or a record is faulty; nothing was folded.
        PlanError: Spark would have to write records to its disks in the clear.
        SourceError: Spark could not run the data frame.
    """
    require_classic(df)
    if df.isStreaming:
        raise SourceError("this data frame is a stream: use spark.fold_stream.")
    key = key_for(plan, key)
    records = _records(df, plan, units_together)
    context = df.sparkSession.sparkContext
    with _travelling(context) as under:
        states = records.mapInArrow(_FoldPartition(plan, None if key is None else seal(under, key)), _SCHEMA)
        for width in _widths(context.defaultParallelism):
            states = states.repartition(width, "place").mapInArrow(_merge_states, _SCHEMA)
        rows = _collected(states)
        return trial_of((Partial.within(bytes(row.parcel), under) for row in rows), plan, key)


def require_classic(df: Any) -> None:
    """Refuse what is no data frame of a classic Spark session."""
    module = type(df).__module__
    if module.startswith("pyspark.sql.connect"):
        raise SourceError("Spark Connect has no way to pass a key in memory alone; use a classic Spark session.")
    if not module.startswith("pyspark.sql"):
        raise SourceError(f"spark.fold takes a Spark data frame, not {type(df).__name__}.")


def _records(df: DataFrame, plan: Plan, units_together: bool) -> DataFrame:
    """The plan's columns, a unit's records together if the plan says so."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, BooleanType, NumericType, StringType

    names = plan_columns(plan, df.columns)
    taken = df.select([F.col(_quoted(name)) for name in names])
    for column in taken.schema.fields:
        if not isinstance(column.dataType, BinaryType | BooleanType | NumericType | StringType):
            kind = column.dataType.simpleString()
            raise RecordError(
                f"the column {column.name!r} is of type {kind}, not a number or text; nothing was folded."
            )
    if not plan.whole_units or units_together:
        return taken
    if df.sparkSession.sparkContext.getConf().get("spark.io.encryption.enabled", "false") != "true":
        raise PlanError(
            '`records_per_unit = "together"` needs all records of a unit in one partition, and bringing them there '
            "would write records to Spark's disks in the clear: start Spark with spark.io.encryption.enabled=true; "
            "or, if they are together already, say units_together=True; or leave out `moments`: sums by group need "
            "neither."
        )
    assert plan.unit is not None
    return taken.repartition(_quoted(plan.unit))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _widths(cores: int) -> Iterator[int]:
    """How many tasks merge, level by level: one for each core first, then an eighth of them."""
    while cores > FAN_IN:
        yield cores
        cores = -(-cores // FAN_IN)
    yield cores


@contextmanager
def _travelling(context: SparkContext) -> Iterator[bytes]:
    """A key for what travels, on every executor for as long as this lasts, in no closure, broadcast or file."""
    conf = context.getConf()
    if conf.get("spark.eventLog.enabled", "false") == "true" and not re.search(
        conf.get("spark.redaction.regex", _REDACTED) or "", PROPERTY
    ):
        raise SourceError(
            f"this Spark writes an event log that would show a key: let spark.redaction.regex match {PROPERTY!r}."
        )
    before, under = context.getLocalProperty(PROPERTY), travel_key()
    context.setLocalProperty(PROPERTY, under.hex())
    try:
        yield under
    finally:
        context.setLocalProperty(PROPERTY, before)  # type: ignore[arg-type] # None takes it away


def _collected(states: DataFrame) -> list[Any]:
    """The rows; Spark's errors may quote records, so only their kind is told."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    def in_our_words(error: Any) -> SourceError:
        kind = type(error).__name__
        if isinstance(error, PySparkException):
            kind = error.getCondition() or kind
        elif isinstance(error, Py4JJavaError):
            kind = error.java_exception.getClass().getSimpleName()
        return SourceError(
            f"Spark could not run the data frame ({kind}); nothing was folded. Spark's own words may quote records: "
            "to see them, run the data frame by itself."
        )

    with instead_of((PySparkException, Py4JError), in_our_words), _unlogged():
        return states.collect()


@contextmanager
def _unlogged() -> Iterator[None]:
    """While it lasts, PySpark does not log the errors of expressions, which quote the value they stumbled over."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    for logger in loggers:
        logger.addFilter(_nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_nothing)


def _nothing(record: object) -> bool:
    return False


@dataclass(frozen=True)
class _FoldPartition:
    """Folds the batches of a partition; this much is pickled and sent, and Spark may well write it to a disk."""

    plan: Plan
    key: bytes | None = field(repr=False)  # sealed

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        under, place = _here()
        key = None if self.key is None else opened(self.key, under)
        partial = fold_partition(gathered(batches, whole=self.plan.whole_units), self.plan, key)
        if partial.records:
            yield _row(place, under, partial)


def _merge_states(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge all states that have come to this task."""
    under, place = _here()
    parcels = (parcel.as_py() for batch in batches for parcel in batch.column("parcel"))
    partial = merged(Partial.within(parcel, under) for parcel in parcels)
    if partial.records:
        yield _row(place, under, partial)


def _here() -> tuple[bytes, int]:
    """The key for what travels, on an executor, and the number of this task's partition."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    key = task.getLocalProperty(PROPERTY)
    assert key is not None
    return bytes.fromhex(key), task.partitionId()


def _row(place: int, under: bytes, partial: Partial) -> pa.RecordBatch:
    parcel = partial.sealed(under)
    return pa.record_batch({"place": pa.array([place], pa.int32()), "parcel": pa.array([parcel], pa.binary())})
