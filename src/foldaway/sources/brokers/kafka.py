"""Kafka: every partition read after its offset, offsets committed for people to see, records deleted up to them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from foldaway.errors import SourceError, instead_of
from foldaway.sources.brokers.broker import Address, Away, Broker, BrokerKind, Message, Positions, required

T = TypeVar("T")

_SECONDS = 10.0
_LOOK_EVERY = 60.0  # for new partitions

# The client library would write to standard error; what matters comes back as errors.
_SILENT = logging.getLogger("foldaway.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class KafkaTopic(Broker):
    """A topic, with all of its partitions; offsets are committed under the trial's name."""

    def __init__(self, address: Address, name: str) -> None:
        self._kafka = required("confluent_kafka", "kafka")
        self._admin = required("confluent_kafka.admin", "kafka")
        self._topic = address.name
        self._settings = {"bootstrap.servers": ",".join(address.servers), **_security(address)}
        self._reading = {
            "group.id": f"foldaway-{name}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # what is gone is to be told, not passed over
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,  # other questions wait behind a fetch
            "error_cb": self._note,
        }
        self._consumer: Any = None
        self._ends: dict[str, int] = {}
        self._refused = self._down = False
        self._looked = 0.0

    def _note(self, error: Any) -> None:
        """What the client library says by itself; it would go on trying in silence."""
        codes = self._kafka.KafkaError
        self._refused |= error.code() in (codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED)
        self._down |= error.code() == codes._ALL_BROKERS_DOWN

    def connect(self, positions: Positions) -> Positions:
        """Assign every partition, each after its position."""
        self._refused = self._down = False
        self._consumer = self._ask(lambda: self._kafka.Consumer({**self._settings, **self._reading}, logger=_SILENT))
        after, assigned = dict(positions), []
        for part in self._partitions():
            low, high = self._watermarks(part)
            first = positions[part][0] + 1 if part in positions else low
            if first > high:
                raise SourceError(
                    f"partition {part} of the topic ends before offset {first}, up to which it was folded: the topic "
                    "was made again, or has lost its end; consume it into a store of its own."
                )
            if first < low:
                first, after[part] = low, (low - 1,)
            assigned.append(self._kafka.TopicPartition(self._topic, int(part), first))
        self._ends = {}
        self._ask(lambda: self._consumer.assign(assigned))
        return after

    def _partitions(self) -> list[str]:
        about = self._ask(lambda: self._consumer.list_topics(self._topic, timeout=_SECONDS)).topics[self._topic]
        if about.error is not None:
            raise self._in_our_words(about.error)
        return [str(part) for part in sorted(about.partitions)]

    def _watermarks(self, part: str, *, cached: bool = False) -> tuple[int, int]:
        where = self._kafka.TopicPartition(self._topic, int(part))
        low, high = self._ask(lambda: self._consumer.get_watermark_offsets(where, timeout=_SECONDS, cached=cached))
        return int(low), int(high)

    def pull(self, most: int, seconds: float) -> Sequence[Message]:
        """What the client library has fetched ahead."""
        first = self._ask(lambda: self._consumer.poll(seconds))
        if first is None and self._down:
            raise Away("no broker of Kafka can be reached.")
        more = [] if first is None or most < 2 else self._ask(lambda: self._consumer.consume(most - 1, 0.01))
        messages = []
        for record in [*([] if first is None else [first]), *more]:
            if record.error() is None:
                messages.append(_message(record))
            elif record.error().code() == self._kafka.KafkaError._PARTITION_EOF:
                self._ends[str(record.partition())] = record.offset()
            else:
                raise self._in_our_words(record.error())
        return messages

    def acknowledge(self, positions: Positions, messages: Sequence[Message]) -> None:
        """Commit the offsets, for people to see."""
        if offsets := self._offsets(positions):
            with suppress(SourceError):  # nothing hangs on it
                self._ask(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))

    def delete(self, positions: Positions) -> bool:
        """Delete records up to the offsets; false if the broker does not know how, or does not let us."""
        offsets = self._offsets(positions)
        if not offsets:
            return True
        admin = self._ask(lambda: self._admin.AdminClient(self._settings, logger=_SILENT))
        try:
            for done in self._ask(lambda: admin.delete_records(offsets, request_timeout=_SECONDS)).values():
                self._ask(done.result)
        except SourceError:
            return False
        return True

    def lag(self, positions: Positions) -> int:
        """Records after the positions, as of the last fetch."""
        assigned = {str(where.partition) for where in self._consumer.assignment()}
        if time.monotonic() - self._looked >= _LOOK_EVERY:
            self._looked = time.monotonic()
            if set(self._partitions()) - assigned:
                raise Away("the topic has a new partition.")  # which is read after connecting again
        return sum(self._waiting(part, positions) for part in assigned)

    def _waiting(self, part: str, positions: Positions) -> int:
        low, high = self._watermarks(part, cached=True)
        if high < 0:
            low, high = self._watermarks(part)
        reached = positions[part][0] + 1 if part in positions else low
        # At the end there may be marks of transactions, which are no records.
        return max(high - max(reached, self._ends.get(part, 0)), 0)

    def _offsets(self, positions: Positions) -> list[Any]:
        """Kafka names the next offset, not the last."""
        return [
            self._kafka.TopicPartition(self._topic, int(part), place[0] + 1)
            for part, place in positions.items()
            if place[0] >= 0
        ]

    def close(self) -> None:
        """Leave the brokers."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(Exception):
                consumer.close()

    def _ask(self, step: Callable[[], T]) -> T:
        """Take a step; its errors in our words."""
        with (
            instead_of(self._kafka.KafkaException, lambda error: self._in_our_words(error.args[0])),
            instead_of(TimeoutError, Away("Kafka does not answer.")),
            instead_of(ValueError, SourceError("the client library for Kafka does not take the address's settings.")),
        ):
            return step()

    def _in_our_words(self, error: Any) -> Exception:
        codes, code = self._kafka.KafkaError, error.code()
        if self._refused or code in (codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED):
            return SourceError("Kafka refuses this user or password.")
        if code in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC, codes._UNKNOWN_PARTITION):
            return SourceError(f"there is no topic {self._topic!r} in Kafka; check its name, or make it.")
        unreachable = code in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._TIMED_OUT, codes._RESOLVE)
        gone = code in (codes._AUTO_OFFSET_RESET, codes._WAIT_COORD, codes.OFFSET_OUT_OF_RANGE)
        if error.retriable() or unreachable or gone:
            return Away("Kafka cannot be reached.")
        return SourceError(f"Kafka refuses ({error.name()}); its own log says more.")


def _message(record: Any) -> Message:
    headers = {name.lower(): value for name, value in record.headers() or []}
    kind = headers.get("content-type")
    media_type = kind.decode(errors="replace") if isinstance(kind, bytes) else None
    return Message(str(record.partition()), (record.offset(),), record.value() or b"", media_type)


def _security(address: Address) -> dict[str, str]:
    protocol = address.options.get("security") or ("SASL_SSL" if address.user else "PLAINTEXT")
    settings = {"security.protocol": protocol}
    if address.user:
        settings["sasl.mechanism"] = address.options.get("mechanism", "PLAIN")
        settings["sasl.username"], settings["sasl.password"] = address.user, address.password or ""
    if "ca" in address.options:
        settings["ssl.ca.location"] = address.options["ca"]
    return settings


KIND = BrokerKind(KafkaTopic, {"kafka": ("security", "mechanism", "ca")}, port=9092, noun="topic")
