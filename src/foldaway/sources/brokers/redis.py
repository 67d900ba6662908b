"""Redis Streams: read after an entry's id, trimmed up to it.

Reading leaves no trace at the server, so no consumer group is needed; one of our name is kept all the same, set to what
is durable, so that `XINFO GROUPS` shows how far we are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from foldaway.errors import SourceError, instead_of
from foldaway.keeping.saved import Place
from foldaway.sources.brokers.broker import Address, Away, Broker, BrokerKind, Message, Positions, required

T = TypeVar("T")

_BEGINNING: Place = (0, 0)
_PAYLOAD, _KIND = b"data", b"content-type"
# Counted where the entries are, so that none is sent for it.
_COUNT = "return #redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])"
_MOST_COUNTED = 10_000
_TEMPORARY = ("LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED")


class RedisStream(Broker):
    """A stream of a Redis server, which keeps our position under the trial's name."""

    def __init__(self, address: Address, name: str) -> None:
        self._redis = required("redis", "redis")
        retry = required("redis.retry", "redis").Retry(required("redis.backoff", "redis").NoBackoff(), 0)
        if not (db := address.options.get("db", "0")).isdecimal():
            raise SourceError("`db` in an address of Redis is a whole number.")
        host, port = address.hosts[0]
        secure = {"ssl": True, "ssl_ca_certs": address.options.get("ca")} if address.scheme == "rediss" else {}
        self._client = self._redis.Redis(
            host=host,
            port=port,
            db=int(db),
            username=address.user,
            password=address.password,
            socket_timeout=10,
            socket_connect_timeout=5,
            retry=retry,  # waiting is the consumer's business
            protocol=2,
            **secure,
        )
        self._key = address.name
        self._group = f"foldaway-{name}"
        self._after = _BEGINNING
        self._seen = False

    def connect(self, positions: Positions) -> Positions:
        """See that the stream is there and can be the one that was read."""
        kind = self._ask(lambda: self._client.type(self._key))
        if kind not in (b"stream", b"none"):
            raise SourceError(f"{self._key!r} is no stream but a {kind.decode()} in Redis.")
        if kind == b"none" and not self._seen:
            raise SourceError(f"there is no stream {self._key!r} in Redis yet; check its name, or add a record to it.")
        self._seen = True
        self._after = positions.get("", _BEGINNING)
        if kind == b"none":
            return positions
        about = self._ask(lambda: self._client.xinfo_stream(self._key))
        last = _place(about["last-generated-id"])
        if last < self._after and about["length"]:
            raise SourceError(
                f"the stream ends at {_id(last)}, before the entry {_id(self._after)} that was folded: it was made "
                "again, or Redis has lost its end. If it holds nothing new, say XSETID with that entry to Redis; if "
                "all is new, consume it into a store of its own."
            )
        return positions

    def pull(self, most: int, seconds: float) -> Sequence[Message]:
        """Entries after the last that was pulled."""
        wait = max(1, round(1000 * seconds))
        answer = self._ask(lambda: self._client.xread({self._key: _id(self._after)}, count=most, block=wait))
        messages = [_message(_place(number), fields) for _, entries in answer or [] for number, fields in entries]
        if messages:
            self._after = messages[-1].place
        return messages

    def acknowledge(self, positions: Positions, messages: Sequence[Message]) -> None:
        """Move our group to what is durable, for people to see."""
        reached = _id(positions.get("", _BEGINNING))
        error = self._redis.exceptions.ResponseError
        try:
            self._ask(lambda: self._client.xgroup_setid(self._key, self._group, reached), passing=True)
        except error:  # there is no such group yet, or none may be made: nothing hangs on it
            with suppress(error):
                self._ask(lambda: self._client.xgroup_create(self._key, self._group, reached), passing=True)

    def delete(self, positions: Positions) -> bool:
        """Remove entries up to the position."""
        milliseconds, number = positions.get("", _BEGINNING)
        first_kept = _id((milliseconds, number + 1))
        self._ask(lambda: self._client.xtrim(self._key, minid=first_kept, approximate=False))
        return True

    def lag(self, positions: Positions) -> int:
        """Entries after the position, counted up to ten thousand."""
        after = f"({_id(positions.get('', _BEGINNING))}"
        error = self._redis.exceptions.ResponseError
        try:
            return int(self._ask(lambda: self._client.eval(_COUNT, 1, self._key, after, _MOST_COUNTED), passing=True))
        except error:  # scripts may be forbidden
            return len(self._ask(lambda: self._client.xrange(self._key, min=after, count=1)))

    def close(self) -> None:
        """Give the connections back; the next command opens one."""
        with suppress(Exception):
            self._client.connection_pool.disconnect()

    def _ask(self, step: Callable[[], T], *, passing: bool = False) -> T:
        """Take a step; its errors in our words, without what Redis quotes; its refusal may be let through."""
        with instead_of(Exception, lambda error: self._in_our_words(error, passing=passing)):
            return step()

    def _in_our_words(self, error: Exception, *, passing: bool) -> Exception | None:
        theirs = self._redis.exceptions
        if isinstance(error, theirs.AuthenticationError | theirs.AuthorizationError | theirs.NoPermissionError):
            return SourceError("Redis refuses this user or password, or does not let it use the stream.")
        if isinstance(error, theirs.ConnectionError | theirs.TimeoutError | OSError):
            return Away("Redis cannot be reached.")
        if not isinstance(error, theirs.ResponseError):
            # An answer that breaks the protocol is quoted in the error.
            return Away("Redis gave an answer that cannot be read.") if isinstance(error, theirs.RedisError) else None
        code = str(error).partition(" ")[0]
        if code in _TEMPORARY:
            return Away("Redis is not ready.")
        said = code if code.isupper() else "an error"
        return None if passing else SourceError(f"Redis refuses ({said}); its own log says more.")


def _message(place: Place, fields: dict[bytes, bytes]) -> Message:
    """An entry with nothing but a payload is a message; any other is one record, its fields the columns."""
    if _PAYLOAD in fields and set(fields) <= {_PAYLOAD, _KIND}:
        kind = fields.get(_KIND)
        return Message("", place, fields[_PAYLOAD], None if kind is None else kind.decode(errors="replace"))
    try:
        return Message("", place, {name.decode(): value.decode() for name, value in fields.items()})
    except UnicodeDecodeError:
        return Message("", place, b"\xff")  # which is no record, and is told so


def _place(number: bytes | str) -> Place:
    text = number.decode() if isinstance(number, bytes) else number
    milliseconds, _, count = text.partition("-")
    return int(milliseconds), int(count)


def _id(place: Place) -> str:
    return "{}-{}".format(*place)


KIND = BrokerKind(RedisStream, {"redis": ("db",), "rediss": ("db", "ca")}, port=6379, apart=("db",), one_server=True)
