"""A real nginx for the tests, with the configuration that is shipped, in a folder of its own and without privileges."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pytest

from postgres import INSTALL, free_port

DEPLOY = Path(__file__).parents[1] / "deploy"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def require_nginx() -> None:
    """Skip a test where there is none; under CI there is one."""
    if NGINX is None:
        reason = f"nginx is missing; get it with {INSTALL}"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; under CI nothing may be left out")
        pytest.skip(reason)


def changed(configuration: str, changes: Mapping[str, str]) -> str:
    """The configuration with some lines replaced, each of which must be there."""
    for pattern, line in changes.items():
        assert re.search(pattern, configuration), f"there is no {pattern!r}"
        configuration = line.join(re.split(pattern, configuration))
    return configuration


class Nginx:
    """nginx in front of servers on this machine.

    Args:
        folder: For all that it writes, and its configuration.
        ports: Of the servers.
        secrets: The folder of its certificate, from deploy/secrets.sh.
        prefix: The path to serve below, with a slash at both ends.
        tls: Whether it is reached by https.
        changes: Further patterns in the configuration, and what stands there instead.
    """

    def __init__(
        self,
        folder: Path,
        ports: Sequence[int],
        secrets: Path,
        prefix: str = "/",
        *,
        tls: bool = True,
        changes: Mapping[str, str] = {},
    ) -> None:
        self.folder = folder / "nginx"
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.authority = secrets / "tls.crt"
        self.url = f"http{'s' * tls}://localhost:{self.port}{prefix}".rstrip("/")
        configuration = changed(
            (DEPLOY / "nginx.conf").read_text(),
            {
                r"server foldaway:8321;": " ".join(f"server 127.0.0.1:{port};" for port in ports),
                r"listen 8443 ssl;": f"listen 127.0.0.1:{self.port}{' ssl' * tls};",
                r"/run/secrets/": f"{secrets}/",
                r"location / \{": f"location {prefix} {{",
                r"worker_processes auto;": "worker_processes 1;",
                **changes,
            },
        )
        self._file = folder / "nginx.conf"
        self._file.write_text(configuration)

    def __enter__(self) -> Self:
        assert NGINX is not None
        command = [NGINX, "-p", f"{self.folder}/", "-c", str(self._file), "-g", "daemon off;", "-e", "stderr"]
        who = {}
        if os.geteuid() == 0:  # nobody else's files are in reach then
            for path in (self.folder, *self.authority.parent.iterdir(), self.authority.parent):
                shutil.chown(path, "nobody")
            who = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **who)  # type: ignore[call-overload]
        deadline = time.monotonic() + 30
        while True:
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def files(self) -> bytes:
        """All that is in its files, also in those that it has deleted and still writes to."""
        processes = [psutil.Process(self._process.pid)]
        processes += processes[0].children(recursive=True)
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        for process in processes:
            for handle in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(OSError):
                    if os.readlink(handle).startswith(str(self.folder)):
                        paths.append(handle)
        return b"\0".join(path.read_bytes() for path in paths)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")
