"""Where a stream is: ``nats://HOST:PORT/STREAM`` and the like, taken apart, its password never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from foldaway.errors import SourceError

PASSWORD = "FOLDAWAY_BROKER_PASSWORD"
"""The environment's variable for a password, which a command line would show to every user of the machine."""

OPTIONS = {
    "nats": ("subject", "credentials", "ca"),
    "tls": ("subject", "credentials", "ca"),
    "redis": ("db",),
    "rediss": ("db", "ca"),
    "kafka": ("security", "mechanism", "ca"),
}
"""The kinds of address, and what may follow their question mark."""

_PORTS = {"nats": 4222, "tls": 4222, "redis": 6379, "rediss": 6379, "kafka": 9092}
_FORMS = "nats://HOST:PORT/STREAM, redis://HOST:PORT/STREAM or kafka://HOST:PORT/TOPIC"

# What every broker takes as a name; nothing that could be read as another part of a command or an address.
_NAME = re.compile(r"[^\s/?#*>\x00-\x1f]{1,255}")


@dataclass(frozen=True)
class Address:
    """A stream's address.

    Attributes:
        kind: nats (or tls, the same encrypted), redis (or rediss), kafka.
        hosts: Each with its port.
        name: The stream or topic.
        user: Who to log in as, if anybody.
        password: With what. Neither `str` nor `repr` shows it.
        options: What follows the question mark.
    """

    kind: str
    hosts: tuple[tuple[str, int], ...]
    name: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}://{','.join(self.servers)}/{self.name}"

    @property
    def servers(self) -> list[str]:
        """Each host with its port, as text."""
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts]

    @property
    def stream(self) -> str:
        """What stream it is, wherever its servers are now: they move, and it stays the same stream."""
        kind = {"tls": "nats", "rediss": "redis"}.get(self.kind, self.kind)
        parts = {name: self.options[name] for name in ("subject", "db") if name in self.options}
        return " ".join([kind, self.name, *(f"{name}={value}" for name, value in sorted(parts.items()))])


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
    kind, separated, rest = text.partition("://")
    if not separated or kind not in OPTIONS:
        raise SourceError(f"a stream's address is {_FORMS}.")
    try:
        split = urlsplit(f"//{rest}")
        options = dict(parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
        login, _, places = split.netloc.rpartition("@")
        hosts = tuple(_host(place, _PORTS[kind]) for place in places.split(","))
    except ValueError:
        hosts, options, login, split = (), {}, "", None
    if split is None or not all(host for host, _ in hosts):
        raise SourceError(f"the stream's address cannot be taken apart; write it as {_FORMS}.")
    name = unquote(split.path.removeprefix("/"))
    if not _NAME.fullmatch(name) or split.fragment:
        what = "topic" if kind == "kafka" else "stream"
        raise SourceError(f"the address must end with the name of one {what}: {kind}://HOST:PORT/{what.upper()}.")
    if len(hosts) > 1 and kind.startswith("redis"):
        raise SourceError("an address of Redis names one server.")
    unknown = [option for option in options if option not in OPTIONS[kind]]
    if unknown:
        raise SourceError(f"an address of this kind may have {' and '.join(OPTIONS[kind])} after its question mark.")
    user, _, password = login.partition(":")
    secret = unquote(password) or os.environ.get(PASSWORD) or None
    return Address(kind, hosts, name, unquote(user) or None, secret, options)


def _host(place: str, port: int) -> tuple[str, int]:
    split = urlsplit(f"//{place}")
    return split.hostname or "", split.port or port
