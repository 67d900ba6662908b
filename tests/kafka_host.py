"""A process that hosts librdkafka's own test broker: prints its address and ends with its standard input.

The broker lives inside a client; others reach it over the loopback like any broker. It keeps everything in memory and
knows produce, fetch, offsets and groups, but not DeleteRecords.
"""

from __future__ import annotations

import importlib
import logging
import sys


def host() -> None:
    kafka = importlib.import_module("confluent_kafka")
    silent = logging.getLogger("kafka-host")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    client = kafka.Producer({"test.mock.num.brokers": 1}, logger=silent)
    (broker,) = client.list_topics(timeout=20).brokers.values()
    print(f"{broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    host()
