"""The batches of one producer for one trial: numbered, resent while they are not durable, forgotten once they are.

They come as tables of any kind, and are sent as Arrow, whole or in two parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from foldaway.asking import Asking
from foldaway.errors import RecordError, ServerError, instead_of

ARROW = "application/vnd.apache.arrow.stream"

_MOST_AGAIN = 1_000

_BATCHES = "a batch is a table, a dict of columns or a list of dicts"


class BatchQueue:
    """A queue of batches.

    Attributes:
        trial: The trial's name.
        held: The first and the last number, and the body, of each batch that is not durable.
    """

    def __init__(self, asking: Asking, trial: str, producer: str) -> None:
        self._asking = asking
        self._producer = producer
        self._last: int | None = None  # until the server has said what is durable
        self.trial = trial
        self.held: deque[tuple[int, int, bytes]] = deque()

    def progress(self) -> dict[str, Any]:
        """What is ``durable``, and whether the trial is ``ended``; the first batch goes on from there."""
        answer = self._asking.ask_json("GET", f"/v1/trials/{self.trial}/producers/{quote(self._producer, safe='')}")
        durable = int(answer["durable"])
        if self._last is None:
            self._last = durable
        self._forget(durable)
        return answer

    def send(self, body: bytes, numbers: tuple[int, int] | None) -> dict[str, Any]:
        """Send a batch under the next number, or under several; the server's receipt."""
        before = int(self.progress()["durable"]) if self._last is None else self._last
        first, last = numbers or (before + 1, before + 1)
        if first != before + 1:
            raise ServerError(f"the next batch begins with the number {before + 1:,}, not with {first:,}.")
        self._last = last
        self.held.append((first, last, body))
        try:
            return self._deliver(first)
        except ServerError as refused:
            if not refused.passes:
                # For good: the number is free again.
                self.held.pop()
                self._last = before
            raise

    def deliver(self) -> None:
        """Make sure that the server has every batch."""
        if self.held:
            self._deliver(self.held[0][0])

    def _deliver(self, number: int) -> dict[str, Any]:
        """Send what is held from a number on, and before it what the server turns out to have lost, in order."""
        receipt: dict[str, Any] = {}
        again = 0
        while self.held and number <= self.held[-1][1]:
            first, last, body = next(batch for batch in self.held if batch[1] >= number)
            try:
                receipt = self._post(first, last, body)
            except ServerError as refused:
                if refused.expected is None or not self.held[0][0] <= refused.expected < number:
                    raise
                # A crash has taken what was not durable; or another, while it was sent again.
                number = refused.expected
                again += 1
                if again > _MOST_AGAIN:  # without a status: what is kept stays kept
                    raise ServerError("the server loses batches as fast as they are sent again.") from None
            else:
                number = max(last, receipt["durable"]) + 1
                self._forget(receipt["durable"])
        return receipt

    def _post(self, first: int, last: int, body: bytes) -> dict[str, Any]:
        headers = {
            "Content-Type": ARROW,
            "Foldaway-Producer": self._producer,
            "Foldaway-Sequence": str(first) if first == last else f"{first}-{last}",
        }
        return self._asking.ask_json("POST", f"/v1/trials/{self.trial}/records", content=body, headers=headers)

    def _forget(self, durable: int) -> None:
        while self.held and self.held[0][1] <= durable:
            self.held.popleft()


def table_of(batch: Any) -> pa.Table:
    """Any kind of batch as a table: of records that are dicts, every column that one of them has.

    Raises:
        RecordError: It is the name of a file, a single record, no table at all, or has a column of several types.

    Example:
        >>> table_of([{"variant": "new"}, {"variant": "old", "revenue": 2.5}])["revenue"].to_pylist()
        [None, 2.5]
    """
    if isinstance(batch, str | bytes | PathLike):
        raise RecordError(f"{_BATCHES}, not the name of a file. `foldaway send TRIAL FILE` sends files.")
    if hasattr(batch, "__arrow_c_stream__"):
        return pa.table(batch)
    if hasattr(batch, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(batch)])
    columns = batch if isinstance(batch, Mapping) else _columns_of(batch)
    arrays = {name: _array(name, values) for name, values in columns.items()}
    if len(lengths := {len(array) for array in arrays.values()}) > 1:
        raise RecordError(f"nothing was sent: the columns have different lengths ({', '.join(map(str, lengths))}).")
    return pa.table(arrays)


def _columns_of(batch: Any) -> dict[str, list[Any]]:
    if not isinstance(batch, Iterable):
        raise RecordError(f"cannot send {type(batch).__name__}: {_BATCHES}.")
    records = list(batch)
    if not all(isinstance(record, Mapping) for record in records):
        raise RecordError(f"nothing was sent: of a list, each record must be a dict; {_BATCHES}.")
    names = dict.fromkeys(name for record in records for name in record)
    return {str(name): [record.get(name) for record in records] for name in names}


def _array(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """A column. What Arrow cannot take is refused without Arrow's sentence, which quotes the value."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise RecordError(f"the column {name!r} is not a sequence; for a single record, send a list of one dict.")
    several = RecordError(
        f"nothing was sent: in the column {name!r}, values have several types, or one that cannot be sent. Write them "
        "all as numbers, or all as text."
    )
    with instead_of(Exception, several):
        return pa.array(values if hasattr(values, "dtype") else list(values))


def halves(table: pa.Table, unit: str | None) -> list[pa.Table]:
    """Two parts of a table; if units must come together, with all records of each in the same one."""
    if unit is None or unit not in table.schema.names:
        middle = table.num_rows // 2
        return [table.slice(0, middle), table.slice(middle)]
    units = pc.unique(table[unit])
    if len(units) < 2:
        raise ServerError("all records of a unit must come in one batch, and these are more than the server accepts.")
    first = pc.is_in(table[unit], value_set=units.slice(0, len(units) // 2))
    return [table.filter(first), table.filter(pc.invert(first))]


def arrow(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
