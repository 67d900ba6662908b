"""Fixtures that several rooms' tests use."""

from __future__ import annotations

from brokers import broker, kafka_server, nats_server, redis_server
from browser import browser
from postgres import postgres
from served import served_from

__all__ = ["broker", "browser", "kafka_server", "nats_server", "postgres", "redis_server", "served_from"]
