"""Worker processes that fold shares of files side by side: whoever gives the shares out, and the worker itself.

A worker folds the shares it is given and answers with their states, until its input ends. Messages go through its pipes
as a length and MessagePack.

Started as ``python -m foldaway.sources.runs.processes``, it neither forks a process that has threads nor runs the
user's script again, as the ways of `multiprocessing` do. It ends by itself when the process that started it is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, TypeVar, cast

import msgspec

from foldaway import errors
from foldaway.errors import FoldawayError, SourceError, WorkerError, instead_of
from foldaway.numerics.threads import CORES, cores
from foldaway.plan import Plan
from foldaway.records.columns import leave_pandas_out
from foldaway.sources.formats.files import ReadOptions
from foldaway.sources.runs.shares import Count, FilePart, fold_share

T = TypeVar("T")

_LENGTH = 8

# Shares that may be folded or under way beyond the next one to merge, for each worker; each waits as a state.
_AHEAD = 4


class Setup(msgspec.Struct, frozen=True):
    """The first thing that a worker is told. The plan is in canonical form; the key goes through memory only."""

    plan: str
    key: bytes | None
    options: ReadOptions


class BytesFolded(msgspec.Struct, frozen=True, tag=True):
    """So many more bytes of a file, by its name, are folded."""

    name: bytes
    more: int


class Folded(msgspec.Struct, frozen=True, tag=True):
    """The state of the share's records, and what became of the records of each piece."""

    state: bytes
    counts: list[Count]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A share that was refused: the name of the error's type in `foldaway.errors`, and its message."""

    kind: str
    message: str


Answer = BytesFolded | Folded | Failed


def send(pipe: IO[bytes], message: msgspec.Struct | FilePart) -> None:
    """Write a message."""
    data = msgspec.msgpack.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH, "little") + data)
    pipe.flush()


def receive(pipe: IO[bytes], kind: type[T]) -> T | None:
    """Read a message; None where the other side is gone, even in the middle of a message."""
    head = pipe.read(_LENGTH)
    length = int.from_bytes(head, "little")
    data = pipe.read(length) if len(head) == _LENGTH else b""
    return msgspec.msgpack.decode(data, type=kind) if data and len(data) == length else None


class Workers(AbstractContextManager["Workers"]):
    """Processes of this machine that fold shares; they end with the ``with`` block."""

    def __init__(self, plan: Plan, key: bytes | None, options: ReadOptions, processes: int) -> None:
        setup = Setup(plan.canonical().decode(), key, options)
        self._events: SimpleQueue[tuple[int, Answer | None]] = SimpleQueue()
        self._processes = [_started(processes) for _ in range(processes)]
        self._readers = [Thread(target=self._read, args=(number,), daemon=True) for number in range(processes)]
        for number, reader in enumerate(self._readers):
            reader.start()
            self._send(number, setup)

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()  # one at work would only stop when its share is done; one that is idle loses nothing
        for process, reader in zip(self._processes, self._readers, strict=True):
            process.wait()
            reader.join()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()

    def fold(self, shares: Sequence[FilePart], progress: Callable[[Path, int], None]) -> Iterator[Folded]:
        """The state of each share and its counts, in the order of the shares.

        Args:
            shares: What to fold.
            progress: Called with a file and how many more bytes of it are folded.

        Raises:
            FoldawayError: A share was refused, in the words of the worker.
            WorkerError: A worker ended before its work did.
        """
        folded: dict[int, Folded] = {}
        at_work: dict[int, int] = {}
        idle = list(range(len(self._processes)))
        given = merged = 0
        while merged < len(shares):
            while idle and given < min(len(shares), merged + _AHEAD * len(self._processes)):
                at_work[worker := idle.pop()] = given
                self._send(worker, shares[given])
                given += 1
            if merged in folded:
                yield folded.pop(merged)
                merged += 1
                continue
            worker, answer = self._events.get()
            match answer:
                case BytesFolded(name, more):
                    progress(Path(os.fsdecode(name)), more)
                case Folded():
                    folded[at_work.pop(worker)] = answer
                    idle.append(worker)
                case Failed("WorkerError", message):
                    raise WorkerError(f"unexpected error in a worker process: {message}. This is a bug in foldaway.")
                case Failed(kind, message):
                    raise getattr(errors, kind, SourceError)(message)
                case None:
                    raise self._gone(worker)

    def _read(self, number: int) -> None:
        pipe = self._processes[number].stdout
        assert pipe is not None
        while (answer := receive(pipe, cast(type[Answer], Answer))) is not None:
            self._events.put((number, answer))
        self._events.put((number, None))

    def _send(self, number: int, message: Setup | FilePart) -> None:
        pipe = self._processes[number].stdin
        assert pipe is not None
        with instead_of(BrokenPipeError, lambda _: self._gone(number)):
            send(pipe, message)

    def _gone(self, number: int) -> WorkerError:
        code = self._processes[number].wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return WorkerError(
            f"a worker process {how} before its work was done, and nothing that it had begun counts. If the machine "
            "ran out of memory, take fewer processes; then run it again."
        )


def _started(processes: int) -> subprocess.Popen[bytes]:
    """A worker with its share of the cores."""
    share = str(max(1, cores() // processes))
    settings = dict.fromkeys((CORES, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), share)
    settings["PYTHONPATH"] = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    return subprocess.Popen(
        [sys.executable, "-m", "foldaway.sources.runs.processes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **settings},
    )


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it is interrupted too, and decides
    # Answers go to a pipe of their own; whatever a library may print must not get among them.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        leave_pandas_out()
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        os._exit(1)  # nobody is there to answer to; closing the pipe would only fail again


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Fold what comes and answer."""
    setup = receive(questions, Setup)
    if setup is None:
        return
    plan = Plan.loads(setup.plan)

    def tell(path: Path, more: int) -> None:
        send(answers, BytesFolded(os.fsencode(path), more))

    while (share := receive(questions, FilePart)) is not None:
        try:
            trial, counts = fold_share(share, plan, setup.key, setup.options, tell)
            answer: Folded | Failed = Folded(trial.exchanged(newcomers=True), counts)
        except BrokenPipeError:
            raise
        except FoldawayError as error:
            public = next(kind for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
            answer = Failed(public.__name__, str(error))
        except Exception as error:
            # Its words may hold values of records; its kind and place do not.
            where = traceback.extract_tb(error.__traceback__)[-1]
            answer = Failed("WorkerError", f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}")
        send(answers, answer)


if __name__ == "__main__":
    main()
