"""A client for the collecting service: numbers its batches, resends what is not durable, forgets what is."""

from __future__ import annotations

import sys
import uuid
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Self, cast
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from foldaway.asking import Asking
from foldaway.errors import ServerError, ServerWarning
from foldaway.evidence.signing import canonical

ARROW = "application/vnd.apache.arrow.stream"

TOO_LARGE = 413

_MOST_AGAIN = 1_000


class Client:
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
        verify: str | bool = True,
        told: Callable[[ServerError], None] | None = None,
    ) -> None:
        self._patience = patience
        self._asking = Asking(url, token, patience=patience, verify=verify, told=told or self._warn_waiting)
        self._own_name = f"client-{uuid.uuid4().hex}"
        self.producer = producer or self._own_name
        self._streams: dict[tuple[str, str], _Stream] = {}
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
                self._deliver(stream)
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
        return self._send(trial, _table(batch), numbers)

    def _send(self, trial: str, table: pa.Table, numbers: tuple[int, int] | None) -> dict[str, Any]:
        """Send a table whole; or in two parts, if it is too large, or the server has the first part already."""
        limit = self._too_large.get(trial)
        if limit is None or table.num_rows < limit.rows:
            try:
                return self._send_whole(trial, _arrow(table), numbers)
            except ServerError as error:
                refused = error
            parts = self._parts(trial, table, numbers, refused)
        else:
            parts = _halves(table, limit.unit)
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
        unit = plan["unit"] if plan.get("complete_units") else None
        if not (self.producer == self._own_name if numbers is None else by_record and unit is None):
            whose = f"since the producer {self.producer} numbers its own batches"
            raise ServerError(f"{refused} It is not sent in parts, {whose}.", refused.status)
        self._too_large[trial] = _TooLarge(table.num_rows, unit)
        return _halves(table, unit)

    def _send_whole(self, trial: str, body: bytes, numbers: tuple[int, int] | None) -> dict[str, Any]:
        stream = self._stream(trial)
        before = stream.last
        first, stream.last = numbers or (before + 1, before + 1)
        if first != before + 1:
            stream.last = before
            raise ServerError(f"the next batch begins with the number {before + 1:,}, not with {first:,}.")
        stream.held.append((first, stream.last, body))
        try:
            return self._deliver(stream, only_last=True)
        except ServerError as refused:
            if not refused.passes:
                # For good: the number is free again.
                stream.held.pop()
                stream.last = before
            raise

    def _stream(self, trial: str) -> _Stream:
        """This producer's batches of a trial; they begin after the last that is durable."""
        key = self.producer, trial
        if key not in self._streams:
            self.durable(trial)
        return self._streams[key]

    def _deliver(self, stream: _Stream, *, only_last: bool = False) -> dict[str, Any]:
        """Send what is kept, or the last of it and what the server turns out to have lost, in order."""
        receipt: dict[str, Any] = {}
        again = 0
        number = stream.held[-1][0] if only_last else stream.first
        while number <= stream.last:
            batch = stream.batch(number)
            try:
                receipt = self._post(stream, *batch)
            except ServerError as refused:
                if refused.expected is None or not stream.first <= refused.expected < number:
                    raise
                # A crash has taken what was not durable; or another, while it was sent again.
                number = refused.expected
                again += 1
                if again > _MOST_AGAIN:  # without a status: what is kept stays kept
                    raise ServerError("the server loses batches as fast as they are sent again.") from None
            else:
                number = max(batch[1], receipt["durable"]) + 1
                stream.forget(receipt["durable"])
        return receipt

    def _post(self, stream: _Stream, first: int, last: int, body: bytes) -> dict[str, Any]:
        headers = {
            "Content-Type": ARROW,
            "Foldaway-Producer": stream.producer,
            "Foldaway-Sequence": str(first) if first == last else f"{first}-{last}",
        }
        path = f"/v1/trials/{stream.trial}/records"
        return self._ask("POST", path, content=body, headers=headers)

    def kept(self, trial: str) -> int:
        """How many batches this client still holds because they are not durable."""
        stream = self._streams.get((self.producer, trial))
        return 0 if stream is None else len(stream.held)

    def durable(self, trial: str) -> int:
        """The last sequence of this producer that is safe; if none was sent yet, the next ``send`` goes on from it."""
        return int(self.progress(trial)["durable"])

    def progress(self, trial: str) -> dict[str, Any]:
        """The same as ``durable``, and whether the trial is ``closed``."""
        answer = self._ask("GET", f"/v1/trials/{trial}/producers/{quote(self.producer, safe='')}")
        durable = int(answer["durable"])
        self._streams.setdefault((self.producer, trial), _Stream(trial, self.producer, durable)).forget(durable)
        return answer

    def create(self, plan_text: str) -> dict[str, Any]:
        """Register a plan, given as TOML or JSON; answers with an ingest token and a read token."""
        return self._ask("POST", "/v1/trials", content=plan_text.encode(), headers={"Content-Type": "application/toml"})

    def trials(self) -> list[dict[str, Any]]:
        """All trials and how they stand."""
        return cast(list[dict[str, Any]], self._ask("GET", "/v1/trials"))

    def status(self, trial: str) -> dict[str, Any]:
        """How a trial stands."""
        return self._ask("GET", f"/v1/trials/{trial}")

    def plan(self, trial: str) -> dict[str, Any]:
        """A trial's plan."""
        return self._ask("GET", f"/v1/trials/{trial}/plan")

    def effects(self, trial: str, *, exact: bool = False) -> dict[str, Any]:
        """The effects so far, rounded for others; an admin may ask for exact ones, and the server notes it."""
        return self._ask("GET", f"/v1/trials/{trial}/effects" + ("/exact" if exact else ""))

    def report(self, trial: str, *, exact: bool = False) -> str:
        """The same as a page."""
        return self._asking.ask("GET", f"/v1/trials/{trial}/report" + ("/exact" if exact else "")).decode()

    def certificate(self, trial: str) -> bytes:
        """The certificate of a closed trial, as the file that `foldaway verify` checks."""
        return canonical(self._ask("GET", f"/v1/trials/{trial}/certificate"), indent=1) + b"\n"

    def outlook(
        self, trial: str, *, records: int | None = None, days: float | None = None, width: float | None = None
    ) -> dict[str, Any]:
        """What the trial can still find by so many records or days, and when intervals will be as narrow as `width`."""
        asked = {"records": records, "days": days, "width": width}
        wanted = {name: value for name, value in asked.items() if value is not None}
        return self._ask("GET", f"/v1/trials/{trial}/outlook", params=wanted)

    def tokens(self) -> list[dict[str, Any]]:
        """All tokens, without their secrets."""
        return cast(list[dict[str, Any]], self._ask("GET", "/v1/tokens"))

    def issue_token(self, scope: str, trial: str | None = None) -> dict[str, Any]:
        """A new token: ``"admin"``, ``"metrics"``, or ``"ingest"`` or ``"read"`` for one trial."""
        wanted = {"scope": scope} | ({} if trial is None else {"trial": trial})
        return self._ask("POST", "/v1/tokens", json=wanted)

    def revoke_token(self, id: str) -> None:
        """Revoke a token, by its id."""
        self._ask("DELETE", f"/v1/tokens/{quote(id, safe='')}")

    def finish(
        self,
        trial: str,
        *,
        deadline: float | None = None,
        share: float | None = None,
        without_effects: bool = False,
        exact: bool = False,
    ) -> dict[str, Any]:
        """Close a trial; answers with its final effects.

        Args:
            trial: The trial's name.
            deadline: Where records stay on devices, seconds in which their reports still count: until then the answer
                is not ``final``, and the same call again, without a deadline, says how far it is.
            share: The share of the devices whose reports are enough.
            without_effects: Close it even if it ends without effects, which is refused otherwise.
            exact: Answer with exact effects; those that are stored and shown to others are rounded.
        """
        asked = {
            "deadline": deadline,
            "share": share,
            "without_effects": without_effects or None,
            "exact": exact or None,
        }
        wanted = {name: value for name, value in asked.items() if value is not None}
        return self._ask("POST", f"/v1/trials/{trial}/close", **({"json": wanted} if wanted else {}))

    def _ask(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        content = self._asking.ask(method, path, **request)
        return cast(dict[str, Any], msgspec.json.decode(content) if content else None)


class _TooLarge(NamedTuple):
    """A batch that a server did not accept: how many rows it had, and the column of units that must come together."""

    rows: int
    unit: str | None


class _Stream:
    """The batches of one producer for one trial: numbered, and kept until they are durable."""

    def __init__(self, trial: str, producer: str, durable: int) -> None:
        self.trial = trial
        self.producer = producer
        self.last = durable
        self.held: deque[tuple[int, int, bytes]] = deque()  # first and last number, and body

    @property
    def first(self) -> int:
        """The number of the oldest batch that is held; if none is, the number that comes next."""
        return self.held[0][0] if self.held else self.last + 1

    def batch(self, number: int) -> tuple[int, int, bytes]:
        """The batch that holds this number."""
        return next(batch for batch in self.held if batch[1] >= number)

    def forget(self, durable: int) -> None:
        while self.held and self.held[0][1] <= durable:
            self.held.popleft()


def _warn(sentence: str) -> None:
    # At the line outside this file that the client was used on.
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"] in (__name__, Asking.__module__):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(sentence[0].upper() + sentence[1:], ServerWarning, stacklevel=depth)


def _table(batch: Any) -> pa.Table:
    if hasattr(batch, "__arrow_c_stream__"):
        return pa.table(batch)
    if hasattr(batch, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(batch)])
    return pa.table(batch) if isinstance(batch, dict) else pa.Table.from_pylist(list(batch))


def _halves(table: pa.Table, unit: str | None) -> list[pa.Table]:
    """Two parts of a table; if units must come together, with all records of each in the same one."""
    if unit is None or unit not in table.schema.names:
        middle = table.num_rows // 2
        return [table.slice(0, middle), table.slice(middle)]
    units = pc.unique(table[unit])
    if len(units) < 2:
        raise ServerError("all records of a unit must come in one batch, and these are more than the server accepts.")
    first = pc.is_in(table[unit], value_set=units.slice(0, len(units) // 2))
    return [table.filter(first), table.filter(pc.invert(first))]


def _arrow(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
