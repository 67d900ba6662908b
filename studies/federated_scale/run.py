"""A simulated trial from the first client to the effects."""

from __future__ import annotations

import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

import msgspec

from foldaway.client import Client
from foldaway.effects import Effects
from foldaway.errors import FoldawayError, ServerError, instead_of
from foldaway.plan import Plan
from foldaway.plan.reported import errors_of
from foldaway.plan.vocabulary import ERRORS, best
from foldaway.service.keys.tokens import new_token
from studies.federated_scale.clients import work
from studies.federated_scale.population import World
from studies.federated_scale.summary import Summary, analysed

OnClients = Callable[[str, int], None]

# Seconds for which replies are waited for, at the most.
_DEADLINE = 3600


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
                coordinator.end(_DEADLINE)
                workers.do("reply", progress)
            ended = coordinator.end(0)
            memory.append(coordinator.resident())
            workers.do("end")
            seconds = time.monotonic() - began
            disk, worked = coordinator.stored() - disk, coordinator.worked() - worked
            *counted, numbers = zip(*workers.do("count"), strict=True)
        states, messages, sent = (sum(each, start=Counter[str]()) for each in counted)
        progress("analysing kept rows", 0)
        effects = Effects.from_json(msgspec.json.encode(ended["effects"]))
        estimator = "regression" if world.plan.covariates else "difference"
        effect = effects.filter(estimator=estimator, se_kind=best(ERRORS, errors_of(world.plan)))[0]
        about = ended["federated"]
        return Summary(
            world=world,
            seconds=seconds,
            states=dict(states),
            enrolled=sum(about["enrolled"].values()),
            reported=sum(about["reported"].values()),
            missing=sum(about["missing"].values()),
            messages=dict(messages),
            report_bytes=sent["reports"] / max(messages["reports"], 1),
            report_numbers=max(numbers),
            bytes_per_client=sum(sent.values()) / world.clients,
            memory=memory,
            disk=disk,
            worked=worked,
            integrity=about.get("integrity"),
            estimate=effect.estimate,
            std_error=effect.std_error,
            kept=analysed(world, reported_only=not world.replies),
        )


class _Workers:
    """Processes that run devices."""

    def __init__(self, world: World, coordinator: Coordinator, processes: int) -> None:
        context = multiprocessing.get_context("spawn")  # forks would share the parent's connections and locks
        self._said: Any = context.Queue()
        self._orders: list[Any] = [context.Queue() for _ in range(processes)]
        addressed = coordinator.address, coordinator.token
        self._processes = [
            context.Process(
                target=work, args=(world, world.chunks[first::processes], *addressed, orders, self._said), daemon=True
            )
            for first, orders in enumerate(self._orders)
        ]

    def __enter__(self) -> _Workers:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def do(self, order: str, progress: OnClients = lambda what, done: None) -> list[Any]:
        """Have every process do something, and wait until it is done; what each of them gives back."""
        for orders in self._orders:
            orders.put(order)
        given: list[Any] = []
        while len(given) < len(self._processes):
            try:
                kind, what = self._said.get(timeout=1.0)
            except Empty:
                if not all(process.is_alive() for process in self._processes):
                    raise ServerError("a process with simulated devices has died.") from None
                continue
            if kind == "failed":
                raise ServerError(f"a process with simulated devices has failed: {what}")
            if kind == "clients":
                progress(order, what)
            else:
                given.append(what)
        return given


class Coordinator(NamedTuple):
    """A coordinator in a process of its own, as anybody would start it, and a trial on it."""

    pid: int
    url: str
    trial: str
    token: str  # the devices'
    admin: str  # the administrator's
    data: Path  # where it keeps its database

    @property
    def address(self) -> str:
        """The trial's address."""
        return f"{self.url}/v1/trials/{self.trial}"

    def end(self, deadline: int) -> dict[str, Any]:
        """End the trial, with so many seconds for reports that are still to come."""
        few = FoldawayError("too few devices have reported for effects; simulate more clients, or fewer that drop out.")
        with (
            instead_of(ServerError, lambda refused: few if refused.status == 409 else None),
            Client(self.url, self.admin) as client,
        ):
            return client.end(self.trial, deadline=deadline)

    def resident(self) -> int | None:
        """Bytes of memory that it has, where that can be told."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")

    def worked(self) -> float:
        """Seconds of processor time that it has used; not a number where that cannot be told."""
        try:
            # The name of the program, in brackets, may have spaces in it.
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return math.nan

    def stored(self) -> int:
        """Bytes on its disk."""
        return sum(file.stat().st_size for file in self.data.rglob("*") if file.is_file())


@contextmanager
def coordinating(folder: Path, plan: Plan) -> Iterator[Coordinator]:
    """A coordinator on a free port, with its files in this folder and the plan registered; it ends with the block."""
    command = [sys.executable, "-m", "foldaway", "serve", "--data", str(folder / "trials"), "--port", "0", "--quiet"]
    admin = new_token()
    environment = {**os.environ, "FOLDAWAY_ADMIN_TOKEN": admin}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("Listening on ")), None)
        if line is None:
            log_text = (folder / "log").read_text(errors="replace").strip()
            raise ServerError(f"the coordinator did not start: {log_text[-500:]}")
        url = line.split()[-1]
        with Client(url, admin) as client:
            made = client.create(plan.to_toml())
        yield Coordinator(process.pid, url, plan.name, made["ingest_token"], admin, folder / "trials")
    finally:
        process.terminate()
        process.communicate()
