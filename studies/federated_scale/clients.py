"""The devices of one process: they record and report, wait for the end, reply, and some are late."""

from __future__ import annotations

import math
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import msgspec

import foldaway.errors
from foldaway.asking import Asking
from foldaway_device import Device, ServerError
from foldaway_device.floats import base64
from foldaway_device.plan import read_plan
from foldaway_device.state import MemoryStore, State
from foldaway_device.status import Status
from studies.federated_scale.population import CHUNK, Client, Role, World, clients

# Devices of one process that talk at once: as many connections as are kept open.
THREADS = 16


class CountingLink:
    """A connection that all devices of the process share, and that counts what goes over it."""

    def __init__(self, address: str, token: str) -> None:
        self._asking = Asking(address, token)
        self._lock = threading.Lock()
        self._plan: bytes | None = None
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.numbers = 0

    def expect(self, fingerprint: str) -> None:
        """All devices here have the coordinator's plan."""

    def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
        """Ask, and count it; for the plan, which devices would ask for one by one, once."""
        if path == "/plan" and self._plan is not None:
            return self._plan
        kind = path.removeprefix("/")
        with self._lock:
            self.messages[kind] += 1
            self.bytes[kind] += len(body or b"")
            if kind == "reports" and not self.numbers:
                found = msgspec.json.decode(body or b"")
                encoded = next(found[name] for name in ("factor", "sums", "scores") if name in found)
                self.numbers = len(b64decode(encoded)) // 8
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            answer = self._asking.ask(
                method, path, content=body, headers=headers, patience=max(0.0, until - time.monotonic())
            )
        except foldaway.errors.ServerError as refused:
            raise ServerError(str(refused), refused.status) from None
        if path == "/plan":
            self._plan = answer
        return answer


class Crowd:
    """The devices of one process; ``progress`` is called with the number of clients done since the last call."""

    def __init__(self, world: World, link: CountingLink, progress: Callable[[int], None]) -> None:
        self._world = world
        self._plan = world.plan
        self._read = read_plan(self._plan.canonical())
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
        store = MemoryStore()
        with store.changing(self._plan.name) as held:
            held.state = State.new(self._read)
            held.state.identity = base64(client.identity)
        device = Device(self._plan.name, store, self._read, self._link)
        for record in client.records:
            device.record(record)
        if self._world.replies:
            _report(device)  # everyone streams moments; who drops out, or is late, does so with the reply
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
        for device, status in zip(devices, self._threads.map(_report, devices), strict=True):
            if status.settled:
                self.states[status.state] += 1
            else:
                unsettled.append(device)
        return unsettled

    def reply(self) -> None:
        """The trial is ending: all who wait report; twice, for the cohort of most has come together by then."""
        self._done(len(self._late) + self.states["dropped out"])  # who will not
        self.again(self._done)
        self.again()

    def end(self) -> None:
        """The trial is over: the last to report learn that they are counted, and the late ones that they are not."""
        self._waiting, self._late = [*self._waiting, *self._late], []
        self.again()


def _report(device: Device) -> Status:
    return device.report(timeout=60.0)


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
