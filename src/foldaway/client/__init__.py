"""A client for the collecting service: numbers its batches, resends what is not durable, forgets what is."""

from __future__ import annotations

import sys
import uuid
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import pyarrow as pa

from foldaway.asking import Asking
from foldaway.client.questions import Questions
from foldaway.client.stream import BatchQueue, arrow, halves, table_of
from foldaway.errors import ServerError, ServerWarning

TOO_LARGE = 413


class Client(Questions):
    """Talks to a foldaway server.

    A batch stays in this process until the server says that it is durable; after a break, what is not is sent again,
    and the server counts it once. A `ServerWarning` says so if the server does not answer for more than a moment, or if
    the client is closed while batches are not durable.

    Args:
        url: The server's address.
        token: A token for what is asked.
        producer: The name under which batches are numbered; a random one if left out. A producer that goes on under its
            name after a restart must be the only one to use it, and begins again with the same batch that had the
            number ``durable(trial) + 1``: the server may have it already, and goes by the number. Since the numbers are
            then yours, a batch that is too large for the server is not sent in parts, unless you number records.
        patience: Seconds to go on trying while the server does not answer.
        timeout: Seconds that one try waits for an answer.
        verify: A file with the certificate authority for https, or True for the system's.
        told: Called with what is wrong if the server does not answer for more than a moment, in place of the warning.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        producer: str | None = None,
        patience: float = 60.0,
        timeout: float = 60.0,
        verify: str | bool = True,
        told: Callable[[ServerError], None] | None = None,
    ) -> None:
        self._patience = patience
        told = told or self._warn_waiting
        super().__init__(Asking(url, token, patience=patience, timeout=timeout, verify=verify, told=told))
        self._own_name = f"client-{uuid.uuid4().hex}"
        self.producer = producer or self._own_name
        self._streams: dict[tuple[str, str], BatchQueue] = {}
        self._too_large: dict[str, _TooLarge] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ServerError):
            self._leave()  # it has been tried for long enough
        else:
            self.close()

    def close(self) -> None:
        """Make sure that the server has every batch, and close the connection.

        Batches of a cohort that has not come together are then with the server alone, in its memory.
        """
        try:
            for stream in self._streams.values():
                stream.deliver()
        finally:
            self._leave()

    def _leave(self) -> None:
        self._asking.close()
        for stream in self._streams.values():
            if stream.held:
                _warn(
                    f'Batches sent to the trial "{stream.trial}" that are not durable yet: {len(stream.held):,}. The '
                    "server holds them in memory at most, and they are lost if it stops before their cohort is full. "
                    "To be able to send them again, give the client a producer's name, and keep batches until "
                    "durable() has reached their numbers."
                )

    def _warn_waiting(self, problem: ServerError) -> None:
        _warn(f"{problem} Trying again for up to {self._patience:g} seconds.")

    def send(self, trial: str, batch: Any, *, numbers: tuple[int, int] | None = None) -> dict[str, Any]:
        """Send a batch of records.

        A batch that is larger than the server accepts is sent in parts, each of which is taken or refused by itself.

        Args:
            trial: The trial's name.
            batch: A pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts.
            numbers: The first and the last number of the batch, if its records are numbered, as the lines of a file
                are; by default it has the next number alone. After a restart, batches may then be cut differently.

        Returns:
            The server's receipt: ``folded``, ``durable`` (the last sequence that is safe), ``pending``.

        Raises:
            ServerError: With a ``status``, the batch is faulty or not allowed, and is forgotten. With none, or one that
                passes (5xx), the server could not be reached for as long as the client's patience: the batch is kept
                and goes out before the next one, or at ``close``; do not send it again.
        """
        return self._send(trial, table_of(batch), numbers)

    def _send(self, trial: str, table: pa.Table, numbers: tuple[int, int] | None) -> dict[str, Any]:
        """Send a table whole; or in two parts, if it is too large, or the server has the first part already."""
        limit = self._too_large.get(trial)
        if limit is None or table.num_rows < limit.rows:
            try:
                return self._stream(trial).send(arrow(table), numbers)
            except ServerError as error:
                refused = error
            parts = self._parts(trial, table, numbers, refused)
        else:
            parts = halves(table, limit.unit)
        receipts = []
        for part in parts:
            own = numbers
            if numbers is not None:
                own, numbers = (numbers[0], numbers[0] + part.num_rows - 1), (numbers[0] + part.num_rows, numbers[1])
            receipts.append(self._send(trial, part, own))
        return {**receipts[-1], "folded": sum(receipt["folded"] for receipt in receipts)}

    def _parts(
        self, trial: str, table: pa.Table, numbers: tuple[int, int] | None, refused: ServerError
    ) -> list[pa.Table]:
        """What to send in place of a table that was refused; if that cannot be mended, the refusal is raised."""
        by_record = numbers is not None and numbers[1] - numbers[0] + 1 == table.num_rows
        if by_record and numbers and numbers[0] < (refused.expected or 0) <= numbers[1]:
            # The first part counts as a repetition, and is held here until it is durable.
            known = (refused.expected or 0) - numbers[0]
            return [table.slice(0, known), table.slice(known)]
        if refused.status != TOO_LARGE or table.num_rows < 2:
            raise refused
        plan = self.plan(trial)
        unit = plan["unit"] if plan.get("records_per_unit") == "together" else None
        if not (self.producer == self._own_name if numbers is None else by_record and unit is None):
            whose = f"since the producer {self.producer} numbers its own batches"
            raise ServerError(f"{refused} It is not sent in parts, {whose}.", refused.status)
        self._too_large[trial] = _TooLarge(table.num_rows, unit)
        return halves(table, unit)

    def kept(self, trial: str) -> int:
        """How many batches this client still holds because they are not durable."""
        return len(self._stream(trial).held)

    def durable(self, trial: str) -> int:
        """The last sequence of this producer that is safe; if none was sent yet, the next ``send`` goes on from it."""
        return int(self.progress(trial)["durable"])

    def progress(self, trial: str) -> dict[str, Any]:
        """The same as ``durable``, and whether the trial is ``ended``."""
        return self._stream(trial).progress()

    def _stream(self, trial: str) -> BatchQueue:
        return self._streams.setdefault((self.producer, trial), BatchQueue(self._asking, trial, self.producer))


class _TooLarge(NamedTuple):
    """A batch that a server did not accept: how many rows it had, and the column of units that must come together."""

    rows: int
    unit: str | None


def _warn(sentence: str) -> None:
    # At the line outside this package that the client was used on.
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(("foldaway.client", "foldaway.asking")):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(sentence[0].upper() + sentence[1:], ServerWarning, stacklevel=depth)
