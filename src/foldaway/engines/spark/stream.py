"""A Spark stream: every micro-batch is in the stored tallies once, and two states of them are a cohort apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from foldaway.account.account import Account
from foldaway.account.stream_file import STATE, StreamFile
from foldaway.engines.partial import key_for, plan_columns
from foldaway.engines.spark.batch import fold, require_classic
from foldaway.engines.spark.checkpoint import Checkpoint
from foldaway.errors import EndedError, FoldawayError, PlanError, SourceError, StateError
from foldaway.inference.fixing import is_ripe
from foldaway.keeping.saved import StreamPositions
from foldaway.plan import Plan
from foldaway.trial import Trial, finish_ending

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

_QUERY = "sql.streaming.queryId"  # the property in which Spark tells a micro-batch whose it is
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_MOST_RETAINED = 10_000
_MARGIN = 10

# In the store, a query's identifier tells its stream from others, and the place in it is the number of the last
# micro-batch that is in the tallies; those before are in them, too.
_STREAM, _PART = "a Spark stream", ""
_BEFORE_THE_FIRST = -1

_HOLDERS: dict[Path, StreamFold] = {}
"""Which stream of this process has which store: Spark does not tell when a query has ended."""


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
        plan: The plan. Units cannot be complete in a stream.
        store: A folder on the driver's machine for the state.
        key: The trial's key, the same at every start; if left out, that of the driver's user.
        checkpoint: Where Spark keeps its checkpoint; in the store if left out.
        trigger: Spark's options for a trigger, for example ``{"processingTime": "1 minute"}`` or
            ``{"availableNow": True}``.

    Returns:
        The running query.

    Raises:
        PlanError: The plan cannot be run on a stream, or needs a key.
        EndedError: The trial in the store has ended.
        SourceError: Another program has the store.
        StateError: The store is damaged, of another plan or key, or does not go with the checkpoint.
    """
    require_classic(df)
    if not df.isStreaming:
        raise SourceError("this data frame is no stream: use spark.fold.")
    if plan.whole_units:
        raise PlanError(
            'records of a unit may come in several micro-batches, so `records_per_unit = "together"` cannot hold for a '
            "stream; leave out `moments` and this promise: sums by group allow for scattered records."
        )
    key = key_for(plan, key)
    plan_columns(plan, df.columns)
    folder = Path(store).absolute()
    place = checkpoint or str(folder / "checkpoint")
    if folder in _HOLDERS and not _HOLDERS[folder].query.isActive:  # it has ended, by itself or by a fault
        _HOLDERS[folder]._let_go()
    with ExitStack() as until_started:
        opened = until_started.enter_context(StreamFile(folder, plan, _STREAM, key=key))  # before the checkpoint
        account = Account(opened)
        if account.durable.tallies.ended:
            finish_ending(opened.path)  # a crash may have left its key
            raise EndedError("the trial in this store has ended: it takes no more records.")
        _take_back(Checkpoint(df.sparkSession, place), account, store)
        settings = df.sparkSession.conf
        before = settings.get(_RETAIN)
        retain = min(max(int(before or 0), plan.privacy.cohort + 2 * _MARGIN), _MOST_RETAINED)
        stream = StreamFold(opened, account, key, retain - _MARGIN)
        writer = df.writeStream.foreachBatch(stream._take_in).option("checkpointLocation", place)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        settings.set(_RETAIN, str(retain))
        try:
            stream.query = writer.start()
        finally:
            settings.set(_RETAIN, before)  # type: ignore[arg-type] # it has a default
        until_started.pop_all()
    _HOLDERS[folder] = stream
    return stream


def load(store: str | Path, plan: Plan | None = None, *, key: bytes | None = None) -> Trial:
    """The trial that a stream has stored so far, also while it runs.

    Raises:
        StateError: There is none, or it is damaged or of another plan or key.
    """
    path = Path(store) / STATE
    if not path.exists():
        raise StateError(f"{store} holds no state yet: it is written when the first cohort of records has come.")
    return Trial.load(path, plan, key=key)


class StreamFold:
    """A stream that is being folded: Spark's query, with all that it has, and a few things of our own.

    Attributes:
        query: Spark's `StreamingQuery`.
    """

    def __init__(
        self, store: StreamFile, account: Account[Trial, StreamPositions], key: bytes | None, most_pending: int
    ) -> None:
        self.query: StreamingQuery = None  # type: ignore[assignment] # until `fold_stream` has started it
        self._key = key
        self._fault: FoldawayError | None = None  # why a micro-batch was refused, if one was
        self._store: StreamFile | None = store
        self._account = account
        self._most_pending = most_pending

    def __getattr__(self, name: str) -> Any:
        return getattr(self.query, name)

    @property
    def pending(self) -> int:
        """Records in memory that are not stored yet: fewer than a cohort, but for a batch under way."""
        return self._account.pending

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """As Spark's, but a fault in the records is raised as what it is.

        Raises:
            RecordError: A micro-batch was refused.
        """
        return self._awaited(lambda: self.query.awaitTermination(timeout))

    def processAllAvailable(self) -> None:
        """As Spark's, but a fault in the records is raised as what it is."""
        self._awaited(self.query.processAllAvailable)

    def _awaited(self, until: Callable[[], T]) -> T:
        from pyspark.errors import StreamingQueryException

        try:
            return until()
        except StreamingQueryException:
            if self._fault is None:
                raise
        raise self._fault

    def stop(self) -> None:
        """Interrupt the stream, and let go of its store; what is pending will be read again."""
        self.query.stop()
        self._let_go()

    def end(self, *, without_effects: bool = False) -> Trial:
        """End the trial: stop, and store its effects, of all records, in place of its tallies.

        The key of this machine's user is destroyed; destroy any other that you gave.

        Raises:
            StateError: The stream was stopped before, and another may have gone on from its store.
                Start it again to end the trial.
        """
        self.query.stop()
        trial = self._account.live
        if not self._account.durable.tallies.ended:
            trial.conclude(without_effects=without_effects)
            self._write()
            trial.destroy_key()  # only now: what a crash leaves must be able to go on
            if self._store is not None:
                finish_ending(self._store.folder / STATE)
            self._let_go()
        return trial

    def _take_in(self, df: DataFrame, batch: int) -> None:
        """Take a micro-batch in, as `foreachBatch` hands it over, one after the other."""
        if batch <= _last_batch(self._account.reached):
            return  # stored, but Spark was killed before it could take note
        try:
            query = df.sparkSession.sparkContext.getLocalProperty(_QUERY)
            self._take(fold(df, self._account.live.plan, key=self._key), str(query), batch)
        except FoldawayError as error:
            self._fault = error
            raise

    def _take(self, records: Trial, query: str, batch: int) -> None:
        """Add a micro-batch, folded, to the tallies, and write them if the cohort gate allows."""
        account = self._account
        account.live += records
        account.reached = StreamPositions(_STREAM, query, {_PART: (batch,)})
        last = batch - _last_batch(account.durable.reached) >= self._most_pending
        if account.is_due() and (last or is_ripe(account.live.tallies)):
            account.live.fix()  # moments are destroyed with the first write, not with the last
            self._write()
        elif last:
            raise StateError(
                f"{self._most_pending:,} micro-batches together had fewer units than a cohort, and Spark's "
                "checkpoint will not go back further. Nothing is lost: start the stream again, its trigger longer."
            )

    def _write(self) -> None:
        if self._store is None:
            raise StateError("the stream was stopped, and another may have gone on from its store: start it again.")
        self._account.commit()

    def _let_go(self) -> None:
        """Let another stream have the store."""
        if self._store is not None:
            self._store.close()
            self._store = None


def _last_batch(reached: StreamPositions) -> int:
    return reached.places.get(_PART, (_BEFORE_THE_FIRST,))[0]


def _take_back(checkpoint: Checkpoint, account: Account[Trial, StreamPositions], store: str | Path) -> None:
    """Let Spark go on from the last batch that is stored."""
    query, reached = checkpoint.query(), account.durable.reached
    if account.durable.tallies.n and query != reached.identity:
        what = "is empty" if query is None else "is of another query"
        raise StateError(
            f"the checkpoint {checkpoint.folder} {what}, and {store} holds records that were read under its own: "
            "bring that back, or begin with a new store."
        )
    if query is not None:
        checkpoint.rewind(_last_batch(reached))
