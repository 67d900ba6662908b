"""Real servers for the tests, each a process that can be killed and started again, and producers for them."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import coverage
import httpx
import psutil
import pyarrow as pa

from foldaway.client import Client
from measured import measured as in_environment
from postgres import free_port
from traced import WRITTEN_TO, RequestTracer

KEY = bytes(range(32)).hex()

# The tests share two cores.
_ENVIRONMENT = {
    "FOLDAWAY_KEY": KEY,
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


_UNROUNDED = "FOLDAWAY_TESTS_UNROUNDED"

KILLED = "FOLDAWAY_TESTS_KILLED"
"""At which step of sealing a version a server is killed, and the file that must be there for that."""

STEPS = ("unwritten", "unsynced", "uncommitted", "committed", "destroyed")
"""Before its key is written, before that is synced, before and after the commit, and once the old key is destroyed."""


class Nursery:
    """A process that has loaded foldaway and forks servers from it: a start takes a tenth of a second, not three.

    What it forks is the same program, but for the rehearsal before the first batch and the second start that overwrites
    freed memory: neither has to do with what is durable.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT, "FOLDAWAY_HARDENED": "1"},
            text=True,
        )
        self._lock = threading.Lock()

    def start(self, arguments: Sequence[str], out: Path, err: Path, environment: Mapping[str, str] = {}) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            words = json.dumps([list(arguments), str(out), str(err), dict(environment)])
            print(words, file=self._process.stdin, flush=True)
            return int(self._process.stdout.readline())

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Server:
    """`foldaway serve` on a free port of this machine; always on the same one, however often it is started.

    Args:
        folder: Where its output goes, into the files `out` and `err`; and its data, if there is no database.
        database: A PostgreSQL database.
        shard: The server's name among those on one database.
        tick: Seconds between two changes of what others can see; by default everything is stored and told
            at once; None for what a server does by itself.
        nursery: What starts it; if left out, it is started as anybody would.
        measured: Whether its lines count as covered, which makes it slower, and takes an end in good order.
        unrounded: Whether it tells the effects of federated trials as they are, to compare them with kept rows; not
            without a nursery.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database: str | None = None,
        shard: str = "main",
        tick: float | None = 0.0,
        nursery: Nursery | None = None,
        measured: bool = False,
        unrounded: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.out, self.err = folder / "out", folder / "err"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = folder / "data"
        place = ["--data", str(self.data)] if database is None else ["--database", database]
        self._token = folder / "admin.token"
        place += ["--admin-token-file", str(self._token)]
        self._arguments = ["serve", *place, "--port", str(self.port), "--shard", shard, "--quiet"]
        self._arguments += [] if tick is None else ["--tick", str(tick)]
        self._nursery = nursery
        self._program = ["-m", "foldaway"]
        self._measured = in_environment() if measured else {}
        self._environment = {**self._measured, **({_UNROUNDED: "1"} if unrounded else {})}
        self._process: psutil.Process | None = None
        self.admin = ""

    def start(self, *, wait: bool = True) -> None:
        """Start; the first server of a database writes the administrator's token to a file."""
        if self._nursery is not None:
            pid = self._nursery.start(self._arguments, self.out, self.err, self._environment)
        else:
            with self.out.open("ab") as out, self.err.open("ab") as err:
                command = [sys.executable, *self._program, *self._arguments]
                environment = {**os.environ, **_ENVIRONMENT, **self._measured}
                pid = subprocess.Popen(command, stdout=out, stderr=err, env=environment).pid
        try:
            self._process = psutil.Process(pid)
        except psutil.NoSuchProcess:
            raise AssertionError(f"the server ended at once: {self.said()}") from None
        if wait:
            self.wait()

    def wait(self, seconds: float = 90) -> None:
        """Until it answers."""
        deadline = time.monotonic() + seconds
        while not self._answers():
            assert self.runs(), self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)
        if self._token.exists():
            self.admin = self._token.read_text().strip()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5, verify=False).is_success
        except httpx.TransportError:
            return False

    def runs(self) -> bool:
        try:
            return self._process is not None and self._process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def kill(self) -> None:
        """At once, without a chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """In good order."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self.runs():
            self._process.send_signal(how)
            deadline = time.monotonic() + 60
            while (self.runs() or self._holds_its_port()) and time.monotonic() < deadline:
                time.sleep(0.005)
            assert not self.runs()

    def _holds_its_port(self) -> bool:
        """As long as any of its threads is still ending, after the first."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError:
                return True
        return False

    def said(self) -> str:
        """What it wrote to standard error."""
        return self.err.read_text(errors="replace")[-4000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._measured:
            self.stop()
        else:
            self.kill()


class Producer(threading.Thread):
    """Sends numbered batches, and makes them anew from their numbers when it has to begin again.

    Now and then it breaks off, as if it had crashed itself, and goes on from what is durable: at another server, if
    there are several.

    Args:
        name: The producer's name.
        batches: How many there are; they have the numbers from 1.
        make: The batch of a number.
        pause: Seconds between two batches, on average.
        breaks: How likely it is to break off after a batch.
    """

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        token: str,
        trial: str,
        batches: int,
        make: Callable[[int], pa.Table],
        *,
        pause: float = 0.0,
        breaks: float = 0.0,
        patience: float = 300.0,
        seed: int = 0,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._urls = urls
        self._token = token
        self._trial = trial
        self._batches = batches
        self._make = make
        self._pause = pause
        self._breaks = breaks
        self._patience = patience
        self._rng = random.Random(f"{seed} {name}")
        self.sent = 0
        self.receipts = 0
        self.durable = 0
        self.begun = 0
        self.fault: BaseException | None = None

    @property
    def all_sent(self) -> bool:
        """Whether every batch has been taken at least once; some may still be lost with a server's memory."""
        return self.sent == self._batches

    @property
    def all_durable(self) -> bool:
        return self.durable == self._batches

    def run(self) -> None:
        try:
            while not self.all_durable:
                self._session(self._rng.choice(self._urls))
        except BaseException as fault:
            self.fault = fault

    def _session(self, url: str) -> None:
        """One life of the producer."""
        client = Client(url, self._token, producer=self.name, patience=self._patience)
        self.begun += 1
        self._learn(client.durable(self._trial))
        for number in range(self.durable + 1, self._batches + 1):
            receipt = client.send(self._trial, self._make(number))
            # After a break the last receipt may be of an earlier batch, which says that this one is durable as well.
            assert receipt["sequence"] == number or receipt["durable"] >= number
            self.sent = max(self.sent, number)
            self.receipts += 1
            self._learn(receipt["durable"])
            time.sleep(self._rng.uniform(0, 2 * self._pause))
            if self._rng.random() < self._breaks:
                return
        client.close()
        time.sleep(0.1)  # for others to make up the cohort

    def _learn(self, durable: int) -> None:
        assert durable >= self.durable, f"what was durable is gone: {self.durable}, now {durable}"
        self.durable = durable


def check(producers: Sequence[Producer]) -> None:
    """Raise what has gone wrong in a producer."""
    for producer in producers:
        if producer.fault is not None:
            raise producer.fault


def wait_for(done: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{what} took more than {seconds} seconds"
        time.sleep(0.02)


def _fork_servers() -> None:
    """The nursery's program: a line in, a process number out."""
    import litestar.plugins.pydantic  # noqa: F401 - what servers load as they start

    import foldaway.cli.terminal.consumer  # noqa: F401 - what consumers load
    from commands import warm_up
    from foldaway import cli
    from foldaway.effects.door import OWN
    from foldaway.federated.modes import MODES
    from foldaway.service import server

    warm_up()
    setattr(server, "rehearse", lambda: None)  # noqa: B010
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that those that are killed are gone
    for line in sys.stdin:
        arguments, out, err, environment = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ.update(environment)
            coverage.process_startup()  # if the environment says so
            for mode in MODES.values() if _UNROUNDED in environment else ():
                setattr(type(mode).results, "__defaults__", (OWN,))  # noqa: B010
            if KILLED in environment:
                _kill_at(*environment[KILLED].split(":", 1))
            if WRITTEN_TO in environment:
                RequestTracer(Path(environment[WRITTEN_TO])).__enter__()
            _become_server(cli.main, arguments, out, err)
        print(pid, flush=True)


def _kill_at(step: str, armed: str) -> None:
    """Kill this process, as `kill -9` does, at a step of sealing a version."""
    from foldaway.keeping.version_keys import VersionKeys
    from foldaway.service.database.seals import Sealing

    def kill(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    method = "new" if step in STEPS[:3] else "committed"
    owner: Any = VersionKeys if method == "new" else Sealing
    original = getattr(owner, method)

    def killed(self: Any) -> Any:
        if not os.path.exists(armed):
            return original(self)
        if step in ("unwritten", "committed"):
            kill()
        if step == "unsynced":
            setattr(os, "fsync", kill)  # noqa: B010
        original(self)
        return kill()

    setattr(owner, method, killed)


def _become_server(main: Callable[[], Any], arguments: list[str], out: str, err: str) -> None:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for stream, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["foldaway", *arguments]
        main()
    finally:
        os._exit(70)


if __name__ == "__main__":
    _fork_servers()
