"""A simulated trial from the first client to the effects."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foldaway.errors import FoldawayError, ServerError
from foldaway.simulation.federated.clients import ClientCounts, work
from foldaway.simulation.federated.kept_rows import analysed
from foldaway.simulation.federated.population import World
from foldaway.simulation.federated.serving import Coordinator, coordinating
from foldaway.simulation.federated.summary import Cost, Summary, effect_of

OnClients = Callable[[str, int], None]

# Seconds for which replies are waited for, at the most.
_DEADLINE = 3600

# Seconds in which a process that has said all may end by itself.
_FAREWELL = 10


def simulate(world: World, *, processes: int = 2, progress: OnClients = lambda what, done: None) -> Summary:
    """Run the devices of a simulated world against a real coordinator.

    Args:
        world: What is simulated.
        processes: Processes to run devices in.
        progress: Called with what is going on, and the number of clients that have done it since the last call.
    """
    with (
        tempfile.TemporaryDirectory(prefix="foldaway-") as folder,
        coordinating(Path(folder), world.plan) as coordinator,
    ):
        return _simulate(world, coordinator, processes, progress)


def _simulate(world: World, coordinator: Coordinator, processes: int, progress: OnClients) -> Summary:
    memory, disk, worked = [coordinator.resident()], coordinator.stored(), coordinator.worked()
    began = time.monotonic()
    with _Workers(world, coordinator, processes) as workers:
        collected = 0

        def halfway(what: str, done: int) -> None:
            nonlocal collected
            collected += done
            if 2 * collected >= world.clients and len(memory) == 1:
                memory.append(coordinator.resident())
            progress(what, done)

        workers.do("collect", halfway)
        if world.replies:
            _close(coordinator, _DEADLINE)
            workers.do("reply", progress)
        closed = _close(coordinator, 0)
        memory.append(coordinator.resident())
        workers.do("end", lambda what, done: None)
        seconds = time.monotonic() - began
        cost = Cost(seconds, memory, coordinator.stored() - disk, coordinator.worked() - worked)
        counts = workers.leave()
    progress("analysing kept rows", 0)
    kept = analysed(world, reported_only=not world.replies)
    estimator = "regression" if world.plan.covariates else "difference"
    return Summary.of(world, counts, closed, cost, kept, effect_of(closed, estimator))


def _close(coordinator: Coordinator, deadline: int) -> dict[str, Any]:
    try:
        return coordinator.ask("POST", "/close", json={"deadline": deadline})
    except ServerError as refused:
        if refused.status != 409:
            raise
    raise FoldawayError("too few devices have reported for effects; simulate more --clients, or less --drop-out.")


class _Workers:
    """Processes that run devices."""

    def __init__(self, world: World, coordinator: Coordinator, processes: int) -> None:
        context = multiprocessing.get_context("spawn")  # forks would share the parent's connections and locks
        self._said: Any = context.Queue()
        self._orders: list[Any] = [context.Queue() for _ in range(processes)]
        chunks = [world.chunks[first::processes] for first in range(processes)]
        self._processes = [
            context.Process(
                target=work, args=(world, mine, coordinator.address, coordinator.token, orders, self._said), daemon=True
            )
            for mine, orders in zip(chunks, self._orders, strict=True)
        ]

    def __enter__(self) -> _Workers:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def do(self, order: str, progress: OnClients) -> None:
        """Have every process do something, and wait until it is done."""
        for orders in self._orders:
            orders.put(order)
        left = len(self._processes)
        while left:
            kind, what = self._next()
            if kind == "clients":
                progress(order, what)
            left -= kind == "done"

    def leave(self) -> ClientCounts:
        """End the processes; what they have done together."""
        for orders in self._orders:
            orders.put("leave")
        whole = ClientCounts(Counter(), Counter(), Counter(), 0)
        for _ in self._processes:
            whole += self._next()[1]
        for process in self._processes:
            process.join(_FAREWELL)
        return whole

    def _next(self) -> tuple[str, Any]:
        from queue import Empty

        while True:
            try:
                kind, what = self._said.get(timeout=1.0)
            except Empty:
                if not all(process.is_alive() for process in self._processes):
                    raise ServerError("a process with simulated devices has died.") from None
                continue
            if kind == "failed":
                raise ServerError(f"a process with simulated devices has failed: {what}")
            return kind, what
