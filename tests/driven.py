"""Devices and senders of the npm package in a process of their own, which tests tell what to do, and kill."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from node_package import NODE


class Refused(Exception):
    """What the package threw.

    Attributes:
        kind: Its type there.
        status: The HTTP status, of a `ServerError`.
        faults: The faults, of a `RecordError`.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(f"{told['error']}: {told['message']}")
        self.kind: str = told["error"]
        self.status: int | None = told.get("status")
        self.faults: list[dict[str, str]] = told.get("faults", [])


class Driven:
    """A process of Node.

    Attributes:
        seconds: How long the last thing that it was told took.
    """

    def __init__(self, package: Path) -> None:
        self._process = subprocess.Popen(
            [str(NODE), "dist/test/driven.js"],
            cwd=package,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.seconds = 0.0

    def start(self, name: str, what: str, *rest: Any) -> None:
        """Tell it, without waiting for the answer."""
        assert self._process.stdin is not None
        print(json.dumps([name, what, *rest]), file=self._process.stdin, flush=True)

    def ask(self, name: str, what: str, *rest: Any) -> Any:
        """Tell it; the answer."""
        self.start(name, what, *rest)
        return self.answer()

    def answer(self) -> Any:
        """The answer to what was told.

        Raises:
            Refused: The package threw one of its errors.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError(f"the process has ended: {self._process.stderr.read()[-3000:]}")
        told = json.loads(line)
        self.seconds = told["seconds"]
        if "error" in told:
            raise Refused(told)
        return told["answer"]

    def kill(self) -> None:
        """At once, without a chance to tidy up."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
