"""The brokers that we speak to, and their addresses taken apart; a new one is a file in this folder and a line here."""

from __future__ import annotations

import os
import re
from importlib import import_module
from urllib.parse import parse_qsl, unquote, urlsplit

from foldaway.errors import SourceError, instead_of
from foldaway.sources.brokers.broker import Address, BrokerKind

PASSWORD = "FOLDAWAY_BROKER_PASSWORD"
"""The environment's variable for a password, which a command line would show to every user of the machine."""

# Each a module of this folder with a `KIND`. Their client libraries are loaded when one is first spoken to.
_ADAPTERS = (
    "nats",
    "redis",
    "kafka",
)

# What every broker takes as a name; nothing that could be read as another part of a command or an address.
_NAME = re.compile(r"[^\s/?#*>\x00-\x1f]{1,255}")


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
    *others, last = [kind.form for kind in known]
    forms = f"{', '.join(others)} or {last}"
    scheme, separated, rest = text.partition("://")
    kind = next((kind for kind in known if scheme in kind.schemes), None)
    if not separated or kind is None:
        raise SourceError(f"a stream's address is {forms}.")
    broken = SourceError(f"the stream's address cannot be taken apart; write it as {forms}.")
    with instead_of(ValueError, broken):
        split = urlsplit(f"//{rest}")
        options = dict(parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
        login, _, places = split.netloc.rpartition("@")
        hosts = tuple(_host(place, kind.port) for place in places.split(","))
    if not all(host for host, _ in hosts):
        raise broken
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
