"""Addresses of streams: taken apart, refused in plain words, and never with a password in sight."""

from __future__ import annotations

import traceback

import pytest

from foldaway.errors import SourceError
from foldaway.sources.brokers.broker import PASSWORD, kinds, parse

SECRET = "hush%40word"


def test_every_kind_of_broker_has_schemes_of_its_own_and_reads_the_form_it_tells() -> None:
    schemes = [scheme for kind in kinds() for scheme in kind.schemes]
    assert len(set(schemes)) == len(schemes) > 0
    for kind in kinds():
        address = parse(f"{kind.name}://HOST:{kind.port}/{kind.noun.upper()}")
        assert (address.kind, str(address)) == (kind, f"{kind.name}://host:{kind.port}/{kind.noun.upper()}")


@pytest.mark.parametrize(
    ("text", "shown", "stream", "hosts"),
    [
        ("nats://broker:4223/ORDERS", "nats://broker:4223/ORDERS", "nats ORDERS", (("broker", 4223),)),
        ("nats://broker/ORDERS", "nats://broker:4222/ORDERS", "nats ORDERS", (("broker", 4222),)),
        ("tls://a,b:1/S?subject=s.eu", "tls://a:4222,b:1/S", "nats S subject=s.eu", (("a", 4222), ("b", 1))),
        ("redis://[::1]:7/orders?db=2", "redis://[::1]:7/orders", "redis orders db=2", (("::1", 7),)),
        ("rediss://h/a%3Ab", "rediss://h:6379/a:b", "redis a:b", (("h", 6379),)),
        ("kafka://a:1,b:2/topic", "kafka://a:1,b:2/topic", "kafka topic", (("a", 1), ("b", 2))),
    ],
)
def test_the_parts(text: str, shown: str, stream: str, hosts: object) -> None:
    address = parse(text)
    assert (str(address), address.stream, address.hosts) == (shown, stream, hosts)
    assert address.user is address.password is None


def test_a_password_comes_from_the_address_or_the_environment_and_is_shown_by_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = parse(f"nats://ann:{SECRET}@h/S")
    monkeypatch.setenv(PASSWORD, "from-there")
    found = parse("nats://ann@h/S")
    assert (given.user, given.password, found.password) == ("ann", "hush@word", "from-there")
    for address, word in ((given, "hush"), (found, "from-there")):
        assert word not in f"{address} {address!r} {address.stream}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("orders", "a stream's address is nats://HOST"),
        (f"amqp://ann:{SECRET}@h/S", "a stream's address is nats://HOST"),
        (f"nats://ann:{SECRET}@h:port/S", "cannot be taken apart"),
        (f"nats://ann:{SECRET}@h:99999/S", "cannot be taken apart"),
        (f"nats://ann:{SECRET}@/S", "cannot be taken apart"),
        (f"nats://ann:{SECRET}@h/", "the name of one stream"),
        (f"nats://ann:{SECRET}@h/a/b", "the name of one stream"),
        (f"nats://ann:{SECRET}@h/a.*", "the name of one stream"),
        (f"kafka://ann:{SECRET}@h", "the name of one topic"),
        (f"redis://ann:{SECRET}@a,b/S", "names one server"),
        (f"redis://ann:{SECRET}@h/S?subject=x", "may have db after its question mark"),
        (f"redis://ann:{SECRET}@h/S?db", "cannot be taken apart"),
        (f"nats://ann:{SECRET}@[h/S", "cannot be taken apart"),
    ],
)
def test_what_is_no_address_is_refused_without_being_repeated(text: str, told: str) -> None:
    with pytest.raises(SourceError) as refused:
        parse(text)
    assert told in str(refused.value)
    shown = "".join(traceback.format_exception_only(refused.value))
    assert "hush" not in shown
    assert refused.value.__context__ is None
