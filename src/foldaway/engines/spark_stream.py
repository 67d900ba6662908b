"""A Spark stream: every micro-batch is in the stored tallies once, and two states of them are a cohort apart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldaway.engines.partial import plan_columns
from foldaway.engines.spark_batch import fold, require_classic
from foldaway.engines.spark_checkpoint import Checkpoint
from foldaway.engines.stream_store import Stored, StreamStore
from foldaway.errors import FoldawayError, PlanError, SourceError, StateError
from foldaway.plan import Plan
from foldaway.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_QUERY = "sql.streaming.queryId"  # the property in which Spark tells a micro-batch whose it is
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_MOST_RETAINED = 10_000
_MARGIN = 10


def fold_stream(
    df: DataFrame,
    plan: Plan,
    *,
    store: str | Path,
    key: bytes | None = None,
    checkpoint: str | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamFold:
    """Fold a Spark stream, each of its micro-batches exactly once, whatever is killed and started again.

    The state is written when at least a cohort of records has come since it was last written, with the number of the
    last micro-batch in it. Until then tallies wait in the driver's memory; a stream that is started again takes its
    checkpoint back to the last batch written, and Spark reads the others anew. So the source must be one that can be
    read again from there: Kafka, files, tables; not a socket.

    Args:
        df: The stream.
        plan: The plan. Units cannot be complete in a stream; by unit, use a bootstrap.
        store: A folder on the driver's machine for the state.
        key: The bootstrap's key, for plans with a bootstrap: the same one at every start.
        checkpoint: Where Spark keeps its checkpoint; in the store if left out.
        trigger: Spark's options for a trigger, for example ``{"processingTime": "1 minute"}`` or
            ``{"availableNow": True}``.

    Returns:
        The running query.

    Raises:
        PlanError: The plan cannot be run on a stream, or needs a key.
        StateError: The store is damaged, of another plan or key, or does not go with the checkpoint.
    """
    require_classic(df)
    if not df.isStreaming:
        raise SourceError("this data frame is no stream: use spark.fold.")
    if plan.complete_units:
        raise PlanError(
            "records of a unit may come in several micro-batches, so `complete_units` cannot hold for a stream; "
            "use a bootstrap by unit instead."
        )
    if plan.resampling is not None and key is None:
        raise PlanError(
            "a stream with a bootstrap needs its key at every start: make one with secrets.token_bytes(16), keep it "
            "apart from the store, and give it as key=."
        )
    plan_columns(plan, df.columns)
    folder = StreamStore(store)
    stored = folder.read(plan, key=key)
    place = checkpoint or str(Path(store).absolute() / "checkpoint")
    _take_back(Checkpoint(df.sparkSession, place), stored, store)
    retain = min(max(int(df.sparkSession.conf.get(_RETAIN) or 0), plan.cohort + 2 * _MARGIN), _MOST_RETAINED)
    batches = _Batches(folder, stored, plan, key, retain - _MARGIN)
    writer = df.writeStream.foreachBatch(batches).option("checkpointLocation", place)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    with _set(df.sparkSession, _RETAIN, str(retain)):
        return StreamFold(writer.start(), batches)


def load(store: str | Path, plan: Plan | None = None, *, key: bytes | None = None) -> Trial:
    """The trial that a stream has stored so far, also while it runs.

    Raises:
        StateError: There is none, or it is damaged or of another plan or key.
    """
    stored = StreamStore(store).read(plan, key=key)
    if stored is None:
        raise StateError(f"{store} holds no state yet: it is written when the first cohort of records has come.")
    return stored.trial


class StreamFold:
    """A stream that is being folded: Spark's query, with all that it has, and a few things of our own.

    Attributes:
        query: Spark's `StreamingQuery`.
    """

    def __init__(self, query: StreamingQuery, batches: _Batches) -> None:
        self.query = query
        self._batches = batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self.query, name)

    @property
    def pending(self) -> int:
        """Records in memory that are not stored yet: fewer than a cohort, but for a batch under way."""
        return self._batches.pending

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """As Spark's, but a fault in the records is raised as what it is.

        Raises:
            RecordError: A micro-batch was refused.
        """
        from pyspark.errors import StreamingQueryException

        try:
            return self.query.awaitTermination(timeout)
        except StreamingQueryException:
            if self._batches.fault is None:
                raise
        raise self._batches.fault

    def processAllAvailable(self) -> None:
        """As Spark's, but a fault in the records is raised as what it is."""
        from pyspark.errors import StreamingQueryException

        try:
            return self.query.processAllAvailable()
        except StreamingQueryException:
            if self._batches.fault is None:
                raise
        raise self._batches.fault

    def close(self) -> Trial:
        """End the trial: stop, and store what is short of a cohort if the plan says ``remainder = "include"``.

        Otherwise these records are left out of the trial that is returned. A stream that is only to be interrupted is
        stopped with ``stop()``: what is pending will be read again.
        """
        self.query.stop()
        return self._batches.close()


class _Batches:
    """Takes micro-batches in, one after the other, as `foreachBatch` hands them over."""

    def __init__(
        self, store: StreamStore, stored: Stored | None, plan: Plan, key: bytes | None, most_pending: int
    ) -> None:
        self.store = store
        self.plan = plan
        self.key = key
        self.fault: FoldawayError | None = None
        self.stored = stored or Stored("", -1, Trial(plan, key=key))
        self.now = self.stored
        self._most_pending = most_pending
        self._written = time.monotonic()

    @property
    def pending(self) -> int:
        """Records that are not stored."""
        return self.now.trial.n - self.stored.trial.n

    def __call__(self, df: DataFrame, batch: int) -> None:
        if batch <= self.now.batch:
            return  # stored, but Spark was killed before it could take note
        try:
            query = df.sparkSession.sparkContext.getLocalProperty(_QUERY)
            trial = self.now.trial + fold(df, self.plan, key=self.key)
            self.now = Stored(str(query), batch, trial)
            if self._due():
                self._write()
            elif batch - self.stored.batch >= self._most_pending:
                raise StateError(
                    f"{self._most_pending:,} micro-batches together had fewer records than a cohort, and Spark's "
                    "checkpoint will not go back further. Nothing is lost: start the stream again, its trigger longer."
                )
        except FoldawayError as error:
            self.fault = error
            raise

    def _due(self) -> bool:
        waited = self.plan.max_wait is not None and time.monotonic() - self._written >= self.plan.max_wait
        return self.pending >= self.plan.cohort or (waited and self.pending > 0)

    def _write(self) -> None:
        self.store.write(self.now)
        self.stored, self._written = self.now, time.monotonic()

    def close(self) -> Trial:
        """The final trial, stored."""
        if self.pending and self.plan.remainder == "include":
            self._write()
        return self.stored.trial


def _take_back(checkpoint: Checkpoint, stored: Stored | None, store: str | Path) -> None:
    """Let Spark go on from the last batch that is stored."""
    query = checkpoint.query()
    if stored is None:
        if query is not None:
            checkpoint.rewind(-1)
        return
    if query != stored.query:
        what = "is empty" if query is None else "is of another query"
        raise StateError(
            f"the checkpoint {checkpoint.folder} {what}, and {store} holds records that were read under its own: "
            "bring that back, or begin with a new store."
        )
    checkpoint.rewind(stored.batch)


@contextmanager
def _set(session: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of the session while a query is made from it."""
    before = session.conf.get(name)
    session.conf.set(name, value)
    try:
        yield
    finally:
        session.conf.set(name, before)  # type: ignore[arg-type] # it has a default
