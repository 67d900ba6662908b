"""The batches of one producer for one trial: numbered, resent while they are not durable, forgotten once they are."""

from __future__ import annotations

from collections import deque
from typing import Any
from urllib.parse import quote

from foldaway.asking import Asking
from foldaway.errors import ServerError

ARROW = "application/vnd.apache.arrow.stream"

_MOST_AGAIN = 1_000


class Stream:
    """A queue of batches.

    Attributes:
        trial: The trial's name.
        held: The first and the last number, and the body, of each batch that is not durable.
    """

    def __init__(self, asking: Asking, trial: str, producer: str) -> None:
        self._asking = asking
        self._producer = producer
        self._last: int | None = None  # until the server has said what is durable
        self.trial = trial
        self.held: deque[tuple[int, int, bytes]] = deque()

    def progress(self) -> dict[str, Any]:
        """What is ``durable``, and whether the trial is ``closed``; the first batch goes on from there."""
        answer = self._asking.ask_json("GET", f"/v1/trials/{self.trial}/producers/{quote(self._producer, safe='')}")
        durable = int(answer["durable"])
        if self._last is None:
            self._last = durable
        self._forget(durable)
        return answer

    def send(self, body: bytes, numbers: tuple[int, int] | None) -> dict[str, Any]:
        """Send a batch under the next number, or under several; the server's receipt."""
        before = int(self.progress()["durable"]) if self._last is None else self._last
        first, last = numbers or (before + 1, before + 1)
        if first != before + 1:
            raise ServerError(f"the next batch begins with the number {before + 1:,}, not with {first:,}.")
        self._last = last
        self.held.append((first, last, body))
        try:
            return self._deliver(first)
        except ServerError as refused:
            if not refused.passes:
                # For good: the number is free again.
                self.held.pop()
                self._last = before
            raise

    def deliver(self) -> None:
        """Make sure that the server has every batch."""
        if self.held:
            self._deliver(self.held[0][0])

    def _deliver(self, number: int) -> dict[str, Any]:
        """Send what is held from a number on, and before it what the server turns out to have lost, in order."""
        receipt: dict[str, Any] = {}
        again = 0
        while self.held and number <= self.held[-1][1]:
            first, last, body = next(batch for batch in self.held if batch[1] >= number)
            try:
                receipt = self._post(first, last, body)
            except ServerError as refused:
                if refused.expected is None or not self.held[0][0] <= refused.expected < number:
                    raise
                # A crash has taken what was not durable; or another, while it was sent again.
                number = refused.expected
                again += 1
                if again > _MOST_AGAIN:  # without a status: what is kept stays kept
                    raise ServerError("the server loses batches as fast as they are sent again.") from None
            else:
                number = max(last, receipt["durable"]) + 1
                self._forget(receipt["durable"])
        return receipt

    def _post(self, first: int, last: int, body: bytes) -> dict[str, Any]:
        headers = {
            "Content-Type": ARROW,
            "Foldaway-Producer": self._producer,
            "Foldaway-Sequence": str(first) if first == last else f"{first}-{last}",
        }
        return self._asking.ask_json("POST", f"/v1/trials/{self.trial}/records", content=body, headers=headers)

    def _forget(self, durable: int) -> None:
        while self.held and self.held[0][1] <= durable:
            self.held.popleft()
