"""Which files of ours a run goes through: the order in which they are first called, and last come back."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/foldaway"
CLIENT = ROOT / "clients/python/src"
WRITTEN_TO = "FOLDAWAY_TESTS_WAY"


class Way(NamedTuple):
    """The files in the order of their first call, and of their last return."""

    down: list[str]
    up: list[str]


def read_way(file: Path) -> Way:
    """The way that another process has written."""
    return Way(*json.loads(file.read_text()))


class Tracer:
    """Follows every thread while it is entered."""

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}
        self._importing = threading.local()
        self.forget()

    def forget(self) -> None:
        """Begin anew, with what is called from now on."""
        self._steps = 0
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def _name_of(self, file: str) -> str | None:
        if file not in self._names:
            path = Path(file)
            inside = path.is_relative_to(SOURCE) and path.relative_to(SOURCE)
            beside = path.is_relative_to(CLIENT) and path.relative_to(ROOT)
            self._names[file] = str(inside or beside or "") or None
        return self._names[file]

    def follow(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call or a return, as `sys.setprofile` tells of them."""
        if event not in ("call", "return"):
            return
        if frame.f_code.co_name == "<module>":  # what a file does as it is imported is no step of a walk
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + (1 if event == "call" else -1)
            return
        if getattr(self._importing, "depth", 0) > 0 or (name := self._name_of(frame.f_code.co_filename)) is None:
            return
        self._steps += 1
        if event == "call":
            self._first.setdefault(name, self._steps)
        else:
            self._last[name] = self._steps

    def way(self) -> Way:
        return Way(sorted(self._first, key=self._first.__getitem__), sorted(self._last, key=self._last.__getitem__))

    def write(self, file: Path) -> None:
        """Write the way to a file, in one step."""
        file.with_suffix(".part").write_text(json.dumps(self.way()))
        file.with_suffix(".part").replace(file)

    def __enter__(self) -> Self:
        threading.setprofile(self.follow)
        sys.setprofile(self.follow)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


class RequestTracer(Tracer):
    """Of a server: where a file `begin` lies beside its own, the next request is the first that it follows.

    Where a file `end` lies there, the next request has it write the way until then.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def follow(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename == _FIRST:
            if self._is_told("begin"):
                self.forget()
            if self._is_told("end"):
                self.write(self._file)
        super().follow(frame, event, argument)

    def _is_told(self, word: str) -> bool:
        told = self._file.with_name(word)
        is_told = told.exists()
        told.unlink(missing_ok=True)
        return is_told


_FIRST = str(SOURCE / "service/http/connections.py")
