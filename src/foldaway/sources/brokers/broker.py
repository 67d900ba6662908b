"""What the consumer asks of a broker, so that NATS, Redis and Kafka differ in one small file each.

A new one is a file in this folder and its name in ``_ADAPTERS``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from foldaway.errors import FoldawayError, SourceError, instead_of, not_installed
from foldaway.keeping.saved import Place

Positions = Mapping[str, Place]
"""How far a stream was read: the place of the last message taken, for each of its parts."""

PASSWORD = "FOLDAWAY_BROKER_PASSWORD"
"""The environment's variable for a password, which a command line would show to every user of the machine."""

# Each a module of this folder with a `KIND`. Their client libraries are loaded when one is first spoken to.
_ADAPTERS = ("nats", "redis", "kafka")

# What every broker takes as a name; nothing that could be read as another part of a command or an address.
_NAME = re.compile(r"[^\s/?#*>\x00-\x1f]{1,255}")


@dataclass(frozen=True)
class Address:
    """A stream's address.

    Attributes:
        kind: The kind of broker.
        scheme: What the address begins with: the kind's name, or that of its encrypted form.
        hosts: Each with its port.
        name: The stream or topic.
        user: Who to log in as, if anybody.
        password: With what. Neither `str` nor `repr` shows it.
        options: What follows the question mark.
    """

    kind: BrokerKind
    scheme: str
    hosts: tuple[tuple[str, int], ...]
    name: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.scheme}://{','.join(self.servers)}/{self.name}"

    @property
    def servers(self) -> list[str]:
        """Each host with its port, as text."""
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts]

    def broker(self, name: str) -> Broker:
        """The broker there, not yet connected, which knows us by the name of the trial.

        Raises:
            SourceError: The package that speaks to this kind of broker is not installed.
        """
        return self.kind.adapter(self, name)

    @property
    def stream(self) -> str:
        """What stream it is, wherever its servers are now: they move, and it stays the same stream."""
        parts = [f"{name}={self.options[name]}" for name in self.kind.apart if name in self.options]
        return " ".join([self.kind.name, self.name, *parts])


class BrokerKind(NamedTuple):
    """A kind of broker: how its addresses are written, and what speaks to it.

    Attributes:
        adapter: Makes a broker from an address and the trial's name.
        schemes: What its addresses may begin with, and what may follow their question mark; the first is its name.
        port: The port where none is given.
        noun: What it calls a stream.
        apart: Which options name another stream, not another way to the same one.
        one_server: Whether an address names only one.
    """

    adapter: Callable[[Address, str], Broker]
    schemes: Mapping[str, tuple[str, ...]]
    port: int
    noun: str = "stream"
    apart: tuple[str, ...] = ()
    one_server: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return next(iter(self.schemes))


def kinds() -> list[BrokerKind]:
    """Every kind of broker that we speak to."""
    return [import_module(f"foldaway.sources.brokers.{name}").KIND for name in _ADAPTERS]


def parse(text: str) -> Address:
    """Take an address apart.

    Raises:
        SourceError: It is none; what is wrong with it is said without repeating it, as it may have a password in it.

    Example:
        >>> address = parse("nats://ann:secret@broker:4222/ORDERS?subject=orders.eu")
        >>> print(address)
        nats://broker:4222/ORDERS
        >>> address.stream, address.user, "secret" in repr(address)
        ('nats ORDERS subject=orders.eu', 'ann', False)
    """
    known = kinds()
    *others, last = [f"{kind.name}://HOST:PORT/{kind.noun.upper()}" for kind in known]
    forms = f"{', '.join(others)} or {last}"
    scheme, separated, rest = text.partition("://")
    kind = next((kind for kind in known if scheme in kind.schemes), None)
    if not separated or kind is None:
        raise SourceError(f"a stream's address is {forms}.")
    fault = f"the stream's address cannot be taken apart; write it as {forms}."
    with instead_of(ValueError, SourceError(fault)):
        split = urlsplit(f"//{rest}")
        options = dict(parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
        login, _, places = split.netloc.rpartition("@")
        hosts = tuple(_host(place, kind.port) for place in places.split(","))
    if not all(host for host, _ in hosts):
        raise SourceError(fault)
    name = unquote(split.path.removeprefix("/"))
    if not _NAME.fullmatch(name) or split.fragment:
        form = f"{scheme}://HOST:PORT/{kind.noun.upper()}"
        raise SourceError(f"the address must end with the name of one {kind.noun}: {form}.")
    if len(hosts) > 1 and kind.one_server:
        raise SourceError(f"an address of {kind.name} names one server.")
    allowed = kind.schemes[scheme]
    if not options.keys() <= set(allowed):
        raise SourceError(f"an address of this kind may have {' and '.join(allowed)} after its question mark.")
    user, _, password = login.partition(":")
    secret = unquote(password) or os.environ.get(PASSWORD) or None
    return Address(kind, scheme, hosts, name, unquote(user) or None, secret, options)


def _host(place: str, port: int) -> tuple[str, int]:
    split = urlsplit(f"//{place}")
    return split.hostname or "", split.port or port


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

    def identity(self) -> str:
        """What tells this stream from another of the same name: when it was made. Not every broker knows."""
        return ""

    def pull(self, most: int, seconds: float) -> Sequence[Message]:
        """The next messages, in order within each part; none if none has come within so many seconds."""

    def acknowledge(self, positions: Positions, messages: Sequence[Message]) -> None:
        """Tell the broker that all messages up to the positions are safe; `messages` are those since the last time."""

    def delete(self, positions: Positions) -> bool:
        """Remove all messages up to the positions; false if this broker cannot."""

    def lag(self, positions: Positions) -> int:
        """How many messages wait after the positions; roughly, where others delete or filter."""

    def close(self) -> None:
        """Let go of the connection; never fails."""


def required(module: str, extra: str) -> Any:
    """A package that comes with an extra.

    Example:
        >>> required("surely_not_installed", "nats")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        foldaway.errors.SourceError: surely_not_installed is not installed: pip install 'foldaway[nats]'...
    """
    with instead_of(
        ModuleNotFoundError, lambda error: SourceError(not_installed((error.name or module).partition(".")[0], extra))
    ):
        return import_module(module)
