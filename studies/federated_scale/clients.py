"""The devices of one process: they record and report, wait for the close, reply, and some are late."""

from __future__ import annotations

import math
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import msgspec

from foldaway.federated.device.device import Device
from foldaway.federated.device.state import DeviceState, MemoryStore
from foldaway.federated.link import HttpLink
from foldaway.federated.messages import Coefficients, Kind, Received, new_number
from studies.federated_scale.population import CHUNK, Client, Role, World, clients

# Devices of one process that talk at once: as many connections as are kept open.
THREADS = 16


class CountingLink(HttpLink):
    """A connection that all devices of the process share, and that counts what goes over it."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, token)
        self._lock = threading.Lock()
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.numbers = 0

    def post(self, kind: Kind, message: bytes, *, patience: float | None = None) -> Received:
        """Send a message, and count it."""
        with self._lock:
            self.messages[kind] += 1
            self.bytes[kind] += len(message)
            if kind == "reports" and not self.numbers:
                found = msgspec.json.decode(message)
                encoded = next(found[name] for name in ("factor", "sums", "scores") if name in found)
                self.numbers = len(b64decode(encoded)) // 8
        return super().post(kind, message, patience=patience)

    def coefficients(self) -> Coefficients | None:
        """What the coordinator has published."""
        with self._lock:
            self.messages["coefficients"] += 1
        return super().coefficients()


class Crowd:
    """The devices of one process; ``progress`` is called with the number of clients done since the last call."""

    def __init__(self, world: World, link: CountingLink, progress: Callable[[int], None]) -> None:
        self._world = world
        self._plan = world.plan
        self._done = progress
        self._link = link
        self.states: Counter[str] = Counter()
        self._waiting: list[Device] = []
        self._late: list[Device] = []
        self._threads = ThreadPoolExecutor(THREADS)

    def collect(self, chunks: Iterable[int]) -> None:
        """Every client joins, records and reports, as far as it does."""
        for start in chunks:
            joined = list(self._threads.map(self._joined, clients(self._world, self._plan, start)))
            roles = {role: [device for of, device in joined if of == role] for role in get_args(Role)}
            self.states["dropped out"] += len(roles["drops out"])
            self._late += roles["is late"]
            if self._world.replies:
                self._waiting += roles["reports"]
            else:
                pending = self._report(roles["reports"])
                asking = pending[: math.ceil(len(pending) * self._world.ask_again)]
                self.states["pending"] += len(pending) - len(asking)
                self._waiting += asking
            self._done(len(joined))

    def _joined(self, client: Client) -> tuple[Role, Device]:
        state = DeviceState(self._plan.canonical().decode(), client.identity, new_number())
        device = Device(self._plan, store=MemoryStore(state), link=self._link)
        for record in client.records:
            device.record(record)
        if self._world.replies:
            device.report()  # everyone streams moments; who drops out, or is late, does so with the reply
        return client.role, device

    def again(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """All who wait report once more."""
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), CHUNK):
            some = waiting[start : start + CHUNK]
            self._waiting += self._report(some)
            progress(len(some))

    def _report(self, devices: list[Device]) -> list[Device]:
        """All report; those who must do so again."""
        unsettled = []
        for device, status in zip(devices, self._threads.map(Device.report, devices), strict=True):
            if status.settled:
                self.states[status.state] += 1
            else:
                unsettled.append(device)
        return unsettled

    def reply(self) -> None:
        """The trial is being closed: all who wait report; twice, for the cohort of most has come together by then."""
        self._done(len(self._late) + self.states["dropped out"])  # who will not
        self.again(self._done)
        self.again()

    def end(self) -> None:
        """The trial is over: the last to report learn that they are counted, and the late ones that they are not."""
        self._waiting, self._late = [*self._waiting, *self._late], []
        self.again()


def work(world: World, chunks: Sequence[int], address: str, token: str, orders: Any, said: Any) -> None:
    """The program of one process: does what it is told by words in `orders`, and says what is done in `said`."""
    try:
        link = CountingLink(address, token)
        crowd = Crowd(world, link, lambda done: said.put(("clients", done)))
        steps: dict[str, Callable[[], Any]] = {
            "collect": lambda: crowd.collect(chunks),
            "reply": crowd.reply,
            "end": crowd.end,
            "count": lambda: (crowd.states, link.messages, link.bytes, link.numbers),
        }
        while True:
            said.put(("done", steps[orders.get()]()))
    except BaseException as error:
        said.put(("failed", f"{type(error).__name__}: {error}"))
        raise
