"""How often senders of records and devices may come: by token, and by the address that they come from.

Neither tokens nor addresses are kept for this, only hashes of them under a key of this process, for some seconds.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from foldaway.errors import IngestError
from foldaway.service.http import problems
from foldaway.service.http.monitoring import Metrics
from foldaway.service.http.origins import sending

AHEAD = 10.0
"""Seconds' worth of requests that may come at once."""

_MOST = 100_000


@dataclass(frozen=True)
class Rates:
    """How many requests a second.

    Attributes:
        token: Of those that come with one token; 0 for any number.
        address: Of those that come from one address.
        proxies: How many proxies stand in front of the server: the last of them saw the address that stands so many
            places from the end of X-Forwarded-For.
    """

    token: float = 0.0
    address: float = 0.0
    proxies: int = 0


UNLIMITED = Rates()


class Rate:
    """At most so many a second of everybody (the generic cell rate algorithm: one number for each).

    Args:
        rate: How many.
        now: The clock.

    Example:
        >>> rate = Rate(0.1, lambda: 0.0)
        >>> rate.wait("somebody"), rate.wait("somebody"), rate.wait("another")
        (0.0, 10.0, 0.0)
    """

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._step = 1 / rate
        self._ahead = max(AHEAD, self._step)
        self._now = now
        # When each will have used no more than its share, in the order in which they came last.
        self._due: dict[int, float] = {}

    def wait(self, whose: object) -> float:
        """Seconds until they may come again; 0 if they may now, which counts."""
        now, key = self._now(), hash(whose)
        due = max(self._due.get(key, 0.0), now) + self._step
        if due - now > self._ahead:
            return due - now - self._ahead
        self._due.pop(key, None)
        self._due[key] = due
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Forget those who have used no more than their share, and the first if there are too many."""
        while self._due:
            first = next(iter(self._due))
            if self._due[first] > now and len(self._due) <= _MOST:
                return
            del self._due[first]


def limited(app: ASGIApp, rates: Rates, metrics: Metrics) -> ASGIApp:
    """The application, which senders and devices may ask so often and no more."""
    by_token = Rate(rates.token) if rates.token else None
    by_address = Rate(rates.address) if rates.address else None
    if by_token is by_address is None:
        return app

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        asked = sending(scope["path"]) if scope["type"] == ScopeType.HTTP else None
        if asked is None:
            await app(scope, receive, send)
            return
        limits: list[tuple[str, Rate | None, Any]] = [
            ("address", by_address, address_of(scope, rates.proxies)),
            ("token", by_token, dict(scope["headers"]).get(b"authorization", b"")),
        ]
        for reason, rate, whose in limits:
            if rate is not None and (seconds := rate.wait(whose)):
                scope["path_template"] = asked[1]
                metrics.turned_away(reason)
                sentence = f"more requests came with this {reason} than the server takes; try again later."
                problem = problems.of_error(IngestError(429, sentence.replace("with this a", "from this a")))
                await problems.send_problem(send, problem, **{"Retry-After": str(math.ceil(seconds))})
                return
        await app(scope, receive, send)

    return run


def address_of(scope: Any, proxies: int) -> str:
    """Where a request comes from; of IPv6 the network (/64), of which one sender has all addresses.

    Example:
        >>> asked = {"client": ("10.0.0.1", 1), "headers": [(b"x-forwarded-for", b"9.9.9.9, 192.0.2.7")]}
        >>> address_of(asked, 0), address_of(asked, 1), address_of({"client": ("2001:db8::7", 1), "headers": []}, 0)
        ('10.0.0.1', '192.0.2.7', '2001:db8::')
    """
    text: str = scope["client"][0] if scope["client"] else ""
    if proxies:
        lines = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        seen = [part.strip() for part in ",".join(lines).split(",")]
        text = seen[-proxies] if len(seen) >= proxies else text
    with suppress(ValueError):
        address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv6Address):
            own = address.ipv4_mapped
            text = str(own) if own else str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)).network_address)
    return text
