"""`foldaway` on the command line: real processes, forked from one that has it loaded.

A start takes a tenth of a second that way, not one. What is forked is the same program; that it also starts by itself
is seen wherever tests kill it, watch it on a terminal, or run its demo.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import pty
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import coverage
import pyarrow as pa
import pyarrow.csv
import typer.main

from foldaway import cli
from forked import ask
from measured import measured
from traced import WRITTEN_TO, Tracer


class Commands:
    """The process that commands are forked from."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory()
        self.address = f"{self._place.name}/line"
        words = [sys.executable, __file__, self.address]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "it has not started"

    def run(self, words: list[str], folder: Path, environment: Mapping[str, str], stdin: bytes) -> tuple[int, str, str]:
        """Run a command to its end: its exit code, and what it wrote."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            streams = [stream.fileno() for stream in (given, out, err)]
            code = ask(self.address, words, str(folder), environment, streams)
            for stream in (out, err):
                stream.seek(0)
            return code, out.read().decode(), err.read().decode()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._place.cleanup()


@lru_cache(maxsize=1)
def _commands() -> Commands:
    commands = Commands()
    atexit.register(commands.end)
    return commands


def program_in(folder: Path) -> None:
    """Write a program `foldaway` to a folder, for a shell to find; it is forked as well."""
    program = folder / "foldaway"
    words = [sys.executable, "-IS", str(Path(__file__).with_name("forked.py")), _commands().address]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)


def foldaway(
    *words: object,
    code: int = 0,
    folder: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `foldaway` with these words in a folder; it must end with this code."""
    given = [str(word) for word in words]
    environment = {**os.environ, "COLUMNS": "80", **_measured_once(given, code), **(env or {})}
    found, out, err = _commands().run(given, folder or Path.cwd(), environment, stdin)
    assert found == code, out + err
    return subprocess.CompletedProcess(["foldaway", *given], found, out, err)


# Commands that went well, without the names of files.
_KNOWN: set[tuple[str, ...]] = set()


def _measured_once(words: list[str], code: int) -> dict[str, str]:
    """What measures a command, unless one with the same settings went well before: that has the same lines.

    What is said of a plan depends on the plan alone.
    """
    settings = tuple("://" if "://" in word else Path(word).suffix if "/" in word else word for word in words)
    if code != 0 or words[:1] == ["plan"]:
        return measured()
    if settings in _KNOWN:
        return {}
    _KNOWN.add(settings)
    return measured()


def at_terminal(
    *words: object, typed: bytes | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `foldaway` by itself, with a terminal for its standard error, which somebody looks at all the time.

    If they type something, it is also a terminal for its standard input.
    """
    control, terminal = pty.openpty()
    command = [sys.executable, "-m", "foldaway", *map(str, words)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **measured(), **(env or {})}
    stdin = None if typed is None else terminal
    os.write(control, typed or b"")
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=terminal, env=environment) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while True:
                shown += os.read(control, 4096)
        os.close(control)
        out, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out.decode(), shown.decode())


def warm_up() -> None:
    """Run a small trial, so that whatever is forked from here on has loaded what commands load on their way."""
    typer.main.get_command = lru_cache(typer.main.get_command)  # a third of a small command's time
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


def _fork_commands(address: str) -> None:
    """The program: it answers every caller with the exit code of the command it asked for, until its input ends."""
    warm_up()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([sys.stdin, door], [], [])
            if sys.stdin in ready:
                return
            line, _ = door.accept()
            with line:
                if os.fork() == 0:
                    _answer(line)


def _answer(line: socket.socket) -> NoReturn:
    """Fork the command and wait for its end: others may run meanwhile."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, streams, _, _ = socket.recv_fds(line, 2**16, 3)
    while not asked.endswith(b"\n"):
        asked += line.recv(2**16)
    pid = os.fork()
    if pid == 0:
        line.close()
        words, environment, folder = json.loads(asked)
        _become_command(words, environment, folder, streams)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    line.sendall(b"%d\n" % code)
    os._exit(0)


def _become_command(words: list[str], environment: dict[str, str], folder: str, streams: list[int]) -> NoReturn:
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        for stream, given in enumerate(streams):
            os.dup2(given, stream)
            os.close(given)
        # Python remembers of a stream whether it can be rewound, and these may be pipes where the old ones were files.
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        sys.argv = ["foldaway", *words]
        coverage.process_startup()  # if the environment says so
        if WRITTEN_TO in environment:
            with Tracer() as tracer:
                code = cli.exit_code()
            tracer.write(Path(environment[WRITTEN_TO]))
            os._exit(code)
        cli.main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(1)  # it ends by itself otherwise


if __name__ == "__main__":
    _fork_commands(sys.argv[1])
