"""`foldaway` on the command line: real processes, forked from one that has it loaded.

A start takes a tenth of a second that way, not one. What is forked is the same program; that it also starts by itself
is seen wherever tests kill it, watch it on a terminal, or run the documentation's snippets.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import coverage
import pyarrow as pa
import pyarrow.csv

from foldaway import cli
from measured import measured

_PATIENCE = 120.0


class Commands:
    """The process that commands are forked from."""

    def __init__(self) -> None:
        words = [sys.executable, __file__]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, words: list[str], folder: Path, environment: Mapping[str, str], stdin: bytes) -> tuple[int, str, str]:
        """Run a command to its end: its exit code, and what it wrote."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            streams = [Path(place) / name for name in ("in", "out", "err")]
            streams[0].write_bytes(stdin)
            asked = {"words": words, "folder": str(folder), "environment": dict(environment)}
            print(json.dumps({**asked, "streams": list(map(str, streams))}), file=self._process.stdin, flush=True)
            ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
            assert ready, f"the command has not ended: {words}"
            code = int(self._process.stdout.readline())
            return code, *(stream.read_text("utf-8") for stream in streams[1:])  # type: ignore[return-value]

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


@lru_cache(maxsize=1)
def _commands() -> Commands:
    commands = Commands()
    atexit.register(commands.end)
    return commands


def foldaway(
    *words: object,
    code: int = 0,
    folder: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `foldaway` with these words in a folder; it must end with this code."""
    environment = {**os.environ, "COLUMNS": "80", **measured(), **(env or {})}
    given = [str(word) for word in words]
    found, out, err = _commands().run(given, folder or Path.cwd(), environment, stdin)
    assert found == code, out + err
    return subprocess.CompletedProcess(["foldaway", *given], found, out, err)


def warm_up() -> None:
    """Run a small trial, so that whatever is forked from here on has loaded what commands load on their way."""
    from foldaway.simulation.datasets import checkout
    from foldaway.simulation.demo import PLAN

    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        plan, records = Path(place) / "plan.toml", Path(place) / "records.csv"
        PLAN.save(plan)
        pa.csv.write_csv(pa.Table.from_batches(list(checkout(1000, seed=0))), records)
        cli.app(["run", str(plan), str(records)], standalone_mode=False)
    measuring = coverage.Coverage(data_file=None, config_file=False)
    measuring.start()
    measuring.stop()
    gc.freeze()  # what is shared with those that are forked stays shared


def _fork_commands() -> None:
    """The program: a line in for each command, its exit code out."""
    warm_up()
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become_command(asked)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become_command(asked: dict[str, Any]) -> NoReturn:
    try:
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        for stream, path in enumerate(asked["streams"]):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), stream)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # the one before has read ahead
        sys.argv = ["foldaway", *asked["words"]]
        coverage.process_startup()  # if the environment says so
        cli.main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(1)  # it ends by itself otherwise


if __name__ == "__main__":
    _fork_commands()
