"""A device's state in memory: a place that ends with the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from foldaway.federated.device.state import DeviceState, Forgotten


class MemoryStore:
    """What `LocalStore` does, for simulations.

    Example:
        >>> from foldaway.plan import Plan
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> store = MemoryStore(DeviceState.new(plan))
        >>> with store.changing() as state:
        ...     state.records += 1
        >>> store.state.records
        1
    """

    def __init__(self, state: DeviceState) -> None:
        self.state: DeviceState | None = state
        self._rows: list[tuple[bytes, bytes | None]] = []
        self._messages: dict[bytes, bytes] = {}

    @contextmanager
    def changing(self) -> Iterator[DeviceState]:
        """The state, to be changed in one step."""
        if self.state is None:
            raise Forgotten
        draft = msgspec.structs.replace(self.state)
        before = list(self._rows), dict(self._messages)
        try:
            yield draft
        except BaseException:
            self._rows, self._messages = before
            raise
        self.state = draft

    def add_row(self, row: bytes) -> None:
        """Keep a record's row."""
        self._rows.append((row, None))

    def unsent(self) -> list[bytes]:
        """The rows that no message covers."""
        return [row for row, message in self._rows if message is None]

    def send_later(self, number: bytes, message: bytes) -> None:
        """Keep a message that covers all the rows that none covered before."""
        self._rows = [(row, number if of is None else of) for row, of in self._rows]
        self._messages[number] = message

    def waiting(self) -> list[tuple[bytes, bytes]]:
        """The messages of which it is not known that they are durable."""
        return list(self._messages.items())

    def settle(self, number: bytes, *, durable: bool) -> None:
        """The message is durable, or it will never be: then its rows are dropped."""
        self._messages.pop(number, None)
        if not durable:
            self._rows = [(row, of) for row, of in self._rows if of != number]

    def covered(self) -> list[bytes]:
        """The rows that durable messages cover."""
        return [row for row, of in self._rows if of is not None and of not in self._messages]

    def drop_records(self, *, messages: bool = True) -> None:
        """Delete all rows, and all messages unless these are to stay."""
        self._rows, self._messages = [], {} if messages else self._messages

    def erase(self, fingerprint: str) -> None:
        """Delete everything."""
        self.drop_records()
        self.state = None
