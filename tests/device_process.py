"""Devices in processes of their own, forked from one that has loaded the client, to be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class DeviceNursery:
    """Starts devices in a fraction of the time that a new Python takes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(
        self,
        folder: Path,
        plan: Path,
        address: str,
        token: str,
        records: Sequence[dict[str, Any]],
        seconds: float,
        in_between: bool,
        withdraws: bool,
    ) -> int:
        """A device that records what it has not recorded yet, and reports until it is settled, or for so long.

        One that withdraws does so when it has reported.
        """
        life = [str(folder), str(plan), address, token, list(records), seconds, in_between, withdraws]
        return self._ask(life)

    def wait(self, pid: int) -> int:
        """How the process ended: its exit code, or the signal that killed it, negative."""
        return self._ask(pid)

    def _ask(self, what: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


SETTLED, UNSETTLED = 0, 3


def live(
    folder: str,
    plan: str,
    server: str,
    token: str,
    records: list[dict[str, Any]],
    seconds: float,
    in_between: bool,
    withdraws: bool,
) -> int:
    """One life of a device; its exit code."""
    import time

    from foldaway_device import Device, ServerError

    device = Device.open(server, token=token, plan=Path(plan), store=folder)
    for record in records[device.status.records :] if device.status.state in ("new", "enrolled") or in_between else []:
        device.record(record)
        if in_between:
            device.report(timeout=5.0)
    until = time.monotonic() + seconds
    while True:
        try:
            status = device.report(timeout=5.0, keep_report=True)
            if withdraws and status.state in ("pending", "counted"):
                status = device.withdraw(timeout=5.0)
            if status.settled:
                return SETTLED
        except ServerError as refused:
            if refused.status is not None and refused.status < 500:
                raise
        if time.monotonic() > until:
            return UNSETTLED
        time.sleep(0.05)


def _fork_devices() -> None:
    # What devices load on their way: whoever is killed shall be at work by then.
    import urllib.request  # noqa: F401

    import foldaway_device  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, int):
            print(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(2, 1)
                code = live(*asked)
            finally:
                os._exit(code)
        print(pid, flush=True)


def kill(pid: int) -> None:
    """At once, without a chance to tidy up."""
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _fork_devices()
