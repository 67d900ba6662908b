"""What the consumer asks of a broker, so that NATS, Redis and Kafka differ in one small file each."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from foldaway.errors import FoldawayError, SourceError, not_installed
from foldaway.keeping.saved import Place

Positions = Mapping[str, Place]
"""How far a stream was read: the place of the last message taken, for each of its parts."""


class Message(NamedTuple):
    """A message of a stream.

    Attributes:
        part: The partition; empty where a stream has no partitions.
        place: Its place there.
        body: The bytes, or, for an entry of Redis that is one record itself, its fields.
        kind: The media type that its sender gave, if any.
        handle: What the adapter needs to acknowledge it.
    """

    part: str
    place: Place
    body: bytes | dict[str, str]
    kind: str | None = None
    handle: Any = None


class Away(FoldawayError):
    """The broker cannot be reached now; what was asked of it may succeed later."""


class Broker(Protocol):
    """A connection to one stream of a broker.

    Every method raises `Away` if the broker cannot be reached, and `SourceError` if it can and refuses.
    """

    def connect(self, positions: Positions) -> Positions:
        """Open the stream, to be read after these positions; called again after `Away`.

        Returns:
            The positions; later ones where messages after them are gone from the broker, as far as it can tell.

        Raises:
            SourceError: There is no such stream, or it cannot be the one that the positions were taken from.
        """
        ...

    def identity(self) -> str:
        """What tells this stream from another of the same name, if the broker knows: when it was made."""
        ...

    def pull(self, most: int, seconds: float) -> Sequence[Message]:
        """The next messages, in order within each part; none if none has come within so many seconds."""
        ...

    def acknowledge(self, positions: Positions, messages: Sequence[Message]) -> None:
        """Tell the broker that all messages up to the positions are safe; `messages` are those since the last time."""
        ...

    def delete(self, positions: Positions) -> bool:
        """Remove all messages up to the positions; false if this broker cannot."""
        ...

    def lag(self, positions: Positions) -> int:
        """How many messages wait after the positions; roughly, where others delete or filter."""
        ...

    def close(self) -> None:
        """Let go of the connection; never fails."""
        ...


def required(module: str, extra: str) -> Any:
    """A package that comes with an extra.

    Example:
        >>> required("surely_not_installed", "nats")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        foldaway.errors.SourceError: surely_not_installed is not installed: pip install 'foldaway[nats]'...
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
    raise SourceError(not_installed(missing, extra))
