"""NATS JetStream: read after a sequence number, purged or acknowledged up to it.

A stream that keeps its messages for everybody (retention `limits`) is read by a consumer of the moment, made after the
stored sequence; nothing at the server remembers us. A stream that is a work queue hands a message to one consumer and
removes it when that one acknowledges it; there, ours has a name, and is made again at every start, so that all that was
not acknowledged comes again, and in order.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from foldaway.errors import SourceError, instead_of
from foldaway.sources.brokers.broker import Address, Away, Broker, BrokerKind, Message, Positions, required

T = TypeVar("T")

_SECONDS = 10.0
_HANGING = 60.0
_HOUR = 3600.0
_FORGOTTEN_AFTER = 300.0  # seconds without us, after which the server drops the consumer of the moment
_NOT_NOW = (408, 409, 503)


class NatsStream(Broker):
    """A stream of a NATS server.

    Args:
        address: Where it is; `subject` restricts it.
        name: What the consumer of a work queue is called after: the trial's name.
    """

    def __init__(self, address: Address, name: str) -> None:
        self._nats = required("nats", "nats")
        self._api = required("nats.js.api", "nats")
        self._errors = required("nats.js.errors", "nats")
        self._address = address
        self._stream = address.name
        self._subject = address.options.get("subject")
        self._durable = "foldaway-" + name.replace(".", "_")
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None
        self._context: Any = None
        self._consumer = ""
        self._pulling: Any = None
        self._delivered = 0
        self._is_queue = False
        self._made = ""

    def connect(self, positions: Positions) -> Positions:
        """Open the stream and make a consumer after the position."""
        return self._ask(lambda: self._connect(positions))

    async def _connect(self, positions: Positions) -> Positions:
        self._connection = await self._nats.connect(
            [f"{self._address.scheme}://{server}" for server in self._address.servers],
            # A message that is under way when the connection breaks is gone for a consumer that needs no
            # acknowledgement. So connections are not mended: a new consumer starts after what we have.
            allow_reconnect=False,
            max_reconnect_attempts=1,  # when connecting; 0 would be for ever, and waiting is the consumer's business
            reconnect_time_wait=0,
            connect_timeout=5,
            error_cb=_ignore,
            **_login(self._address),
        )
        self._context = self._connection.jetstream(timeout=_SECONDS)
        about = await self._context.stream_info(self._stream)
        self._made = "" if about.created is None else about.created.isoformat()
        retention = about.config.retention
        if retention == self._api.RetentionPolicy.INTEREST:
            raise SourceError(
                f"the stream {self._stream!r} keeps messages only while somebody is interested (retention interest), "
                "so none can be read again after a crash; read from one with retention limits or workqueue."
            )
        self._is_queue = retention == self._api.RetentionPolicy.WORK_QUEUE
        after = self._checked(positions, about.state)
        await self._make_consumer(after.get("", (0,))[0])
        return after

    def _checked(self, positions: Positions, state: Any) -> Positions:
        if "" not in positions:
            return positions
        (reached,) = positions[""]
        if state.last_seq < reached:
            raise SourceError(
                f"the stream ends at sequence {state.last_seq}, before {reached}, up to which it was folded: it was "
                "made again, or has lost its end; consume it into a store of its own."
            )
        # Of another subject it may be that the first messages are gone, so nothing is known with a subject.
        return {"": (max(reached, state.first_seq - 1),)} if self._subject is None else positions

    async def _make_consumer(self, reached: int) -> None:
        policy = self._api.DeliverPolicy
        if self._is_queue:
            await self._drop_consumer(self._durable)
            settings = {
                "durable_name": self._durable,
                "ack_policy": self._api.AckPolicy.EXPLICIT,
                "deliver_policy": policy.ALL,  # a work queue allows no other; what is durable is acknowledged again
                "ack_wait": _HOUR,
                "max_ack_pending": -1,
            }
        else:
            settings = {
                "ack_policy": self._api.AckPolicy.NONE,
                "deliver_policy": policy.BY_START_SEQUENCE,
                "opt_start_seq": reached + 1,
                "inactive_threshold": _FORGOTTEN_AFTER,
                "mem_storage": True,
            }
        config = self._api.ConsumerConfig(filter_subject=self._subject, **settings)
        made = await self._context.add_consumer(self._stream, config)
        self._consumer, self._delivered = made.name, 0
        self._pulling = await self._context.pull_subscribe_bind(consumer=made.name, stream=self._stream)

    async def _drop_consumer(self, name: str) -> None:
        with suppress(self._errors.NotFoundError):
            await self._context.delete_consumer(self._stream, name)

    def identity(self) -> str:
        """When the stream was made."""
        return self._made

    def pull(self, most: int, seconds: float) -> Sequence[Message]:
        """The next messages."""
        return self._ask(lambda: self._pull(most, seconds))

    async def _pull(self, most: int, seconds: float) -> Sequence[Message]:
        try:
            fetched = await self._pulling.fetch(most, timeout=seconds)
        except (TimeoutError, self._nats.errors.TimeoutError):
            fetched = []
        if not self._connection.is_connected:
            raise Away("the connection to NATS broke.")
        return [self._message(each) for each in fetched]

    def _message(self, fetched: Any) -> Message:
        about = fetched.metadata
        self._delivered += 1
        if about.sequence.consumer != self._delivered:  # the server counts what it has sent us
            raise Away("a message from NATS was lost on its way.")
        headers = {name.lower(): value for name, value in (fetched.headers or {}).items()}
        return Message("", (about.sequence.stream,), fetched.data, headers.get("content-type"), fetched.reply)

    def acknowledge(self, positions: Positions, messages: Sequence[Message]) -> None:
        """Acknowledge messages of a work queue, which removes them; other streams know nothing of it."""
        if self._is_queue and messages:
            self._ask(lambda: self._acknowledge(messages))

    async def _acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await self._connection.publish(message.handle, b"+ACK")
        await self._connection.flush()

    def delete(self, positions: Positions) -> bool:
        """Purge up to the position; false if the stream does not allow that."""
        if "" not in positions:
            return True
        (reached,) = positions[""]
        try:
            self._ask(lambda: self._context.purge_stream(self._stream, seq=reached + 1, subject=self._subject))
        except SourceError:
            return False
        return True

    def lag(self, positions: Positions) -> int:
        """What the server has not sent us yet, and what it has sent that we have not taken: it may be under way."""
        about = self._ask(lambda: self._context.consumer_info(self._stream, self._consumer))
        sent = about.delivered.consumer_seq if about.delivered is not None else 0
        return int(about.num_pending or 0) + max(int(sent) - self._delivered, 0)

    def close(self) -> None:
        """Leave, and take the consumer of the moment along."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                self._loop.run_until_complete(asyncio.wait_for(self._leave(connection), 3))

    async def _leave(self, connection: Any) -> None:
        try:
            if connection.is_connected and not self._is_queue and self._consumer:
                await self._drop_consumer(self._consumer)
        finally:
            await connection.close()

    def _ask(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Take a step; its errors in our words."""
        with instead_of((Exception, asyncio.CancelledError), self._in_our_words):
            return self._loop.run_until_complete(asyncio.wait_for(step(), _HANGING))

    def _in_our_words(self, error: BaseException) -> Exception | None:
        client, stream = self._nats.errors, self._errors
        if isinstance(error, client.AuthorizationError):
            return SourceError("NATS refuses this user or password.")
        if isinstance(error, stream.NotFoundError):
            return SourceError(f"there is no stream {self._stream!r} in NATS; check its name, or make it.")
        if isinstance(error, stream.APIError):
            if error.code in _NOT_NOW:
                return Away("NATS is not ready.")
            return SourceError(f"NATS refuses (error {error.err_code or error.code}); its own log says more.")
        if isinstance(error, asyncio.CancelledError):  # by the client library, when the connection breaks
            return Away("the connection to NATS broke.")
        if isinstance(error, client.Error | stream.Error | OSError):
            refused = "authorization" in str(error).lower()
            return SourceError("NATS refuses this user or password.") if refused else Away("NATS cannot be reached.")
        return None


async def _ignore(_: Exception) -> None:
    """What matters comes back from what was asked."""


def _login(address: Address) -> dict[str, Any]:
    login: dict[str, Any] = {}
    if address.user is not None and address.password is not None:
        login |= {"user": address.user, "password": address.password}
    elif address.user is not None or address.password is not None:
        login["token"] = address.user or address.password
    if "credentials" in address.options:
        login["user_credentials"] = address.options["credentials"]
    if address.scheme == "tls":
        login["tls"] = ssl.create_default_context(cafile=address.options.get("ca"))
    return login


KIND = BrokerKind(
    NatsStream,
    {"nats": ("subject", "credentials", "ca"), "tls": ("subject", "credentials", "ca")},
    port=4222,
    apart=("subject",),
)
