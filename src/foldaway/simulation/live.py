"""The live demo: a server on this machine, simulated records that stream into it, and nothing left at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from foldaway.client import Client
from foldaway.errors import ServerError, ServerWarning
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN

# Records in the first second; each second then brings one per cent more, so that the interval keeps narrowing in view.
_FIRST, _GROWTH, _MOST = 200, 1.01, 2_000
_TICK = 5.0


def stream_live(seconds: float, seed: int, tell: Callable[[str], None]) -> None:
    """Serve on loopback and send simulated records for so long, or until control-C; then end the server and delete all.

    Raises:
        ServerError: The server did not start, or ended before its time.
    """
    with (
        interrupted_by_signals(),
        tempfile.TemporaryDirectory(prefix="foldaway-demo-") as folder,
        suppress(KeyboardInterrupt),
        _server(Path(folder)) as (server, address),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ServerWarning)  # at the end, the last batches need not be durable
        admin = Path(folder, "admin.token").read_text(encoding="ascii").strip()
        with Client(address, admin, patience=5) as client:
            created = client.create(PLAN.to_toml())
            tell(f"Dashboard:  {address}")
            tell(f"Sign in:    {created['read_token']}")
            tell(f"It ends after {seconds / 60:g} minutes, or with control-C, and deletes everything.")
            _send(client, server, time.monotonic() + seconds, seed)
    tell("The server has ended, and its folder is deleted.")


def _send(client: Client, server: subprocess.Popen[str], until: float, seed: int) -> None:
    for batch in _batches(seed):
        if server.poll() is not None:
            raise ServerError("the server of the demo has ended by itself.")
        client.send(PLAN.name, batch)
        if (left := until - time.monotonic()) <= 0:
            return
        time.sleep(min(1.0, left))


def _batches(seed: int) -> Iterator[pa.RecordBatch]:
    """A second's records each, without an end."""
    size = float(_FIRST)
    for number in range(sys.maxsize):
        yield next(checkout(int(size), seed=seed + number)).set_column(
            5, "user_id", pa.array([f"u{number}-{i}" for i in range(int(size))])
        )
        size = min(size * _GROWTH, _MOST)


@contextmanager
def _server(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`foldaway serve` on a free port, and its address. Control-C is for this process, which then ends it."""
    words = ["serve", "--data", str(folder / "data"), "--admin-token-file", str(folder / "admin.token")]
    words += ["--port", "0", "--tick", str(_TICK), "--quiet"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("FOLDAWAY_")}
    log = folder / "log"
    with log.open("wb") as written:
        server = subprocess.Popen(
            [sys.executable, "-m", "foldaway", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
            env=own,
            start_new_session=True,
        )
    try:
        assert server.stdout is not None
        _, _, address = server.stdout.readline().strip().partition("Listening on ")
        if not address:
            raise ServerError(
                f"the server of the demo did not start. {log.read_text(encoding='utf-8').strip()}".strip()
            )
        yield server, address
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """A closed terminal and `kill` end the block as control-C does."""
    signals = [signal.SIGTERM, signal.SIGHUP]
    before = [signal.signal(each, signal.default_int_handler) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
