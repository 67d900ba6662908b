"""A stream folded into a trial, exactly once: the loop that all brokers share.

When a cohort of records has come, the tallies and the places reached in the stream are written in one step, and only
then is the broker told that it may forget the messages. Whatever is killed, and whenever, the next consumer
goes on after the stored positions: acknowledgements free the broker's memory and decide nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from foldaway.account.account import Account
from foldaway.account.stream_file import StreamFile
from foldaway.backoff import pauses
from foldaway.errors import EndedError, RecordError, SourceError
from foldaway.inference.fixing import is_ripe
from foldaway.sources.brokers.broker import Away, Broker, Message
from foldaway.sources.brokers.messages import fold_messages
from foldaway.sources.formats.chunk import wanted_by
from foldaway.trial import Trial

T = TypeVar("T")


@dataclass(frozen=True)
class ConsumerOptions:
    """How to consume.

    Attributes:
        until_empty: End when every message that waited has been read; else only when told to.
        delete: Remove messages from the broker once the state that holds them is durable.
        skip_faulty: Pass over messages that the plan refuses, counted; else stop at the first.
        end: When the stream is empty, end the trial.
        without_effects: Whether to end it even if effects would be withheld.
        rest: Seconds between two writes while messages keep coming; with many replicates a state is megabytes.
        wait: Seconds to wait for messages before looking whether to stop.
        bytes_at_once: About how many bytes of messages to hold at a time.
    """

    until_empty: bool = False
    delete: bool = False
    skip_faulty: bool = False
    end: bool = False
    without_effects: bool = False
    rest: float = 0.5
    wait: float = 0.5
    bytes_at_once: int = 16 * 2**20


class ConsumerProgress(msgspec.Struct, frozen=True):
    """How far a consumer is.

    Attributes:
        records: Records in the durable state.
        pending: Records folded since, which wait for their cohort; the broker still has them.
        lag: Messages that wait at the broker; null if it has not been asked yet.
        rate: Records a second, lately.
        skipped: Faulty messages passed over.
        missed: Messages that were gone from the broker before they were read.
        away: Seconds until the broker is tried again; null while it is there.
    """

    records: int
    pending: int
    lag: int | None
    rate: float
    skipped: int
    missed: int
    away: float | None = None


class FaultyMessage(RecordError):
    """A message that the plan refuses: where it stands and what is wrong, by column, rule and count."""


class _Stopped(Exception):
    """Told to stop while the broker was away."""


MOST_AT_ONCE = 2_000
_LARGE = 2**20  # what a message is taken to be before one has come
_LAG_EVERY = 1.0
_RATE_OVER = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_NAP = 0.1  # how often to look whether to stop


class Consumer:
    """Reads one stream into one store.

    Args:
        broker: The stream.
        store: Where the tallies and the places reached are saved.
        options: How to consume.
        told: Called with the progress after every step.
        stopping: Asked before every step whether to stop.
    """

    def __init__(
        self,
        broker: Broker,
        store: StreamFile,
        *,
        options: ConsumerOptions | None = None,
        told: Callable[[ConsumerProgress], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.can_delete = True  # until the broker says that it cannot
        self._broker = broker
        self._account = Account(store)
        self._options = options or ConsumerOptions()
        self._told = told
        self._stopping = stopping
        self._wanted = wanted_by(self._account.live.plan)
        self._taken: list[Message] = []  # since the last write, without their bodies
        self._safe: list[Message] = []  # written, not yet acknowledged
        self._owing = bool(
            self._account.reached.places
        )  # a consumer before us may have been killed before it acknowledged
        self._written = self._lag_asked = 0.0
        self._at_once = self._as_many_of(_LARGE)
        self._lag: int | None = None
        self._seen: deque[tuple[float, int]] = deque()  # how many records there were, in the last few seconds
        self._connected = False

    @property
    def progress(self) -> ConsumerProgress:
        """How far it is."""
        pending, reached = self._account.pending, self._account.reached
        durable = self._account.live.n - pending
        return ConsumerProgress(durable, pending, self._lag, self._rate(), reached.skipped, reached.missed)

    @property
    def _has_ended(self) -> bool:
        return self._account.durable.tallies.ended

    def _reach(self, **what: Any) -> None:
        """Note how far the stream was read."""
        self._account.reached = msgspec.structs.replace(self._account.reached, **what)

    def _rate(self) -> float:
        """Records a second, lately."""
        now, count = time.monotonic(), self._account.live.n
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] < now - _RATE_OVER:
            self._seen.popleft()
        then, before = self._seen[0]
        return round((count - before) / (now - then), 1) if now > then else 0.0

    def run(self) -> Trial:
        """Consume until told to stop, or until the stream is empty.

        Returns:
            The trial as far as it is durable, or all of it if it was ended now.

        Raises:
            FaultyMessage: The plan refuses a message; what was before it stays counted, and it stays at the broker.
            EndedError: The trial in the store has ended.
            SourceError: The broker refuses.
            StateError: The store cannot be written.
        """
        if self._has_ended and not self._options.end:
            raise EndedError("the trial in this store has ended: it takes no more records.")
        try:
            self._patiently(lambda: None)
            while not (self._has_ended or self._stopping()):
                if self._step() and (self._options.until_empty or self._options.end):
                    if self._options.end:
                        self._end()
                    break
            self._write_if_due(at_rest=True)
            self._settle()
        except _Stopped:
            self._write_if_due(at_rest=True)
        finally:
            self._broker.close()
        self._tell()
        return self._account.live if self._has_ended else self._account.durable.tallies

    def _patiently(self, step: Callable[[], T]) -> T:
        """The step's result, however often the broker goes away meanwhile: we wait, and connect again."""
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                if not self._connected:
                    self._reconnect()
                    self._connected = True
                return step()
            except Away:
                self._connected = False
            pause = next(waits)
            self._tell(away=pause)
            until = time.monotonic() + pause
            while (left := until - time.monotonic()) > 0 and not self._stopping():
                time.sleep(min(left, _NAP))
            if self._stopping():
                raise _Stopped

    def _reconnect(self) -> None:
        """Open the stream after what has been folded so far, durable or not."""
        self._broker.close()
        before = self._account.reached
        after = self._broker.connect(before.places)
        identity = self._broker.identity()
        if before.identity not in ("", identity):
            raise SourceError(
                "the stream was deleted and made again since the store was written, so its positions mean nothing "
                "there; consume it into a store of its own, and merge the two."
            )
        gone = sum(place[0] - before.places[part][0] for part, place in after.items() if part in before.places)
        self._reach(identity=identity, missed=before.missed + gone, places={**before.places, **after})

    def _step(self) -> bool:
        """Pull, fold, write, acknowledge; whether the stream was empty."""
        pulled = self._patiently(lambda: self._broker.pull(self._at_once, self._options.wait))
        fault = self._take(pulled)
        if is_ripe(self._account.live.tallies) or fault is not None:
            self._write_if_due(at_rest=not pulled or fault is not None)
        self._settle()
        if not pulled or time.monotonic() - self._lag_asked >= _LAG_EVERY:
            self._lag = self._patiently(lambda: self._broker.lag(self._account.reached.places))
            self._lag_asked = time.monotonic()
        self._tell()
        if fault is not None:
            raise fault
        return not pulled and not self._lag

    def _as_many_of(self, size: int) -> int:
        """How many messages of such a size to hold at a time."""
        return max(1, min(self._options.bytes_at_once // size, MOST_AT_ONCE))

    def _take(self, pulled: Sequence[Message]) -> FaultyMessage | None:
        """Fold messages that have not come before; the fault of the first that is refused, if that is to stop us."""
        if pulled:
            self._at_once = self._as_many_of(sum(len(message.body) for message in pulled) // len(pulled) + 1)
        for messages, fault in fold_messages(self._account.live, self._fresh(pulled), self._wanted):
            if fault is not None and not self._options.skip_faulty:
                part = f"partition {messages[0].part}, " if messages[0].part else ""
                place = f"{part}position {'-'.join(map(str, messages[0].place))}"
                return FaultyMessage(
                    f"the message at {place} is refused and stays at the broker: {fault}\n"
                    "What was before it stays counted. Mend or remove it there, or pass over such messages with "
                    "--skip-faulty, which counts them."
                )
            reached = self._account.reached
            skipped = reached.skipped + (0 if fault is None else len(messages))
            self._reach(places=reached.places | {each.part: each.place for each in messages}, skipped=skipped)
            self._taken += [message._replace(body=b"") for message in messages]
        return None

    def _fresh(self, pulled: Sequence[Message]) -> list[Message]:
        """Those after all that was folded before; brokers may deliver a message again."""
        fresh, reached = [], dict(self._account.reached.places)
        for message in pulled:
            if message.place > reached.get(message.part, ()):
                fresh.append(message)
                reached[message.part] = message.place
            elif message.place <= self._account.durable.reached.places.get(message.part, ()):
                self._safe.append(message._replace(body=b""))
            else:
                self._taken.append(message._replace(body=b""))
        return fresh

    def _write_if_due(self, *, at_rest: bool) -> None:
        """Write if the cohort gate lets us, but not all the time."""
        rested = at_rest or time.monotonic() - self._written >= self._options.rest
        if rested and self._account.is_due():
            self._account.live.fix()  # moments are destroyed with the first write, not with the last
            self._write()

    def _write(self) -> None:
        self._account.commit()
        self._safe += self._taken
        self._taken, self._owing = [], True
        self._written = time.monotonic()

    def _settle(self) -> None:
        """Let the broker forget what is durable."""
        if self._owing or self._safe:
            self._patiently(self._acknowledge)
            self._owing, self._safe = False, []

    def _acknowledge(self) -> None:
        places = self._account.durable.reached.places
        self._broker.acknowledge(places, self._safe)
        if self._options.delete and self.can_delete:
            self.can_delete = self._broker.delete(places)

    def _end(self) -> None:
        """End the trial: its effects, of all records, take the place of its tallies, and its key goes."""
        self._account.live.conclude(without_effects=self._options.without_effects)
        self._write()
        self._account.live.destroy_key()  # only now: what a crash leaves must be able to go on

    def _tell(self, away: float | None = None) -> None:
        self._told(msgspec.structs.replace(self.progress, away=away))
