"""Counts and times for Prometheus; nothing else."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The server's own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter("foldaway_requests", "Requests answered.", ["route", "status"], registry=self._registry)
        self.seconds = Histogram("foldaway_request_seconds", "Time to answer.", ["route"], registry=self._registry)
        self.records = Counter("foldaway_records_folded", "Records folded.", registry=self._registry)
        self.messages = Counter(
            "foldaway_messages_received", "Messages of devices and sites.", ["kind"], registry=self._registry
        )
        self.refused = Counter("foldaway_batches_refused", "Batches refused.", registry=self._registry)
        self.pending = Gauge("foldaway_records_pending", "Records waiting for their cohort.", registry=self._registry)
        self.queued = Gauge("foldaway_batches_queued", "Batches waiting to be folded.", registry=self._registry)

    def text(self) -> str:
        """In Prometheus' text format."""
        return generate_latest(self._registry).decode()
