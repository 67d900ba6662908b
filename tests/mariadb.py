"""A real MariaDB for the tests: one server for each process that runs tests, a database for each test that asks."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from postgres import INSTALL, account, quick_folder

SETTINGS = {
    "skip-networking": None,
    "skip-grant-tables": None,
    "innodb-buffer-pool-size": "32M",
    "innodb-flush-log-at-trx-commit": "0",
    "max-allowed-packet": "64M",
}


class MariaDB:
    """A MariaDB server in a temporary folder, which answers on a socket there and nowhere else."""

    def __init__(self, programs: list[str]) -> None:
        self._server, install = programs
        # Not under pytest's folders: a socket's path has at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="fa-my-", dir=quick_folder()))
        self.socket = self.folder / "socket"
        if (who := account()) is not None:
            shutil.chown(self.folder, who)
        self._account = who
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        made = self._popen(install, "--no-defaults", f"--datadir={self.folder / 'data'}", *options)
        assert made.wait(120) == 0, self.log()
        (self.folder / "tmp").mkdir()  # of its own: a server that starts removes the temporary tables of all others
        if who is not None:
            shutil.chown(self.folder / "tmp", who)
        options = [f"--{name}" if value is None else f"--{name}={value}" for name, value in SETTINGS.items()]
        places = [f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder / 'tmp'}", f"--socket={self.socket}"]
        self.process = self._popen(self._server, "--no-defaults", *places, *options)
        deadline = time.monotonic() + 60
        while not self.socket.exists():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def _popen(self, *command: str) -> subprocess.Popen[bytes]:
        who: dict[str, Any] = {}
        if self._account is not None:
            who = {"user": self._account, "group": pwd.getpwnam(self._account).pw_gid, "extra_groups": []}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"PATH": f"{os.environ['PATH']}:/usr/sbin", "LC_ALL": "C"}, **who,
            )  # fmt: skip

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def connection(self) -> Any:
        """A connection to a new, empty database, of the server's default character set and collation."""
        name = f"test_{secrets.token_hex(6)}"
        connection = pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
            cursor.execute(f"USE {name}")
        return connection

    def remove(self) -> None:
        """Stop, and leave no file."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """A running server."""
    found = [shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("mariadbd", "mariadb-install-db")]
    programs = [program for program in found if program is not None]
    if len(programs) < 2:
        reason = f"MariaDB is missing; get it with {INSTALL}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    server = MariaDB(programs)
    try:
        yield server
    finally:
        server.remove()
