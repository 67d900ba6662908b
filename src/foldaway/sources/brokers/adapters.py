"""The adapter for an address."""

from __future__ import annotations

from foldaway.sources.brokers.address import Address
from foldaway.sources.brokers.broker import Broker


def broker_at(address: Address, name: str) -> Broker:
    """The broker at an address, not yet connected.

    Args:
        address: Where the stream is.
        name: The trial's name, under which the broker knows us.

    Raises:
        SourceError: The package that speaks to this kind of broker is not installed.
    """
    if address.kind in ("nats", "tls"):
        from foldaway.sources.brokers.nats import NatsStream

        return NatsStream(address, name)
    if address.kind in ("redis", "rediss"):
        from foldaway.sources.brokers.redis import RedisStream

        return RedisStream(address, name)
    from foldaway.sources.brokers.kafka import KafkaTopic

    return KafkaTopic(address, name)
