"""Worker processes that fold shares of files side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Self, cast

from foldaway import errors
from foldaway.errors import FoldawayError, SourceError, WorkerError, instead_of
from foldaway.numerics.threads import CORES, cores
from foldaway.plan import Plan
from foldaway.sources.runs.shares import ReadOptions, Share
from foldaway.sources.runs.worker import Answer, BytesFolded, Failed, Folded, Setup, ShareToFold, receive, send

# Shares that may be folded or under way beyond the next one to merge, for each worker; each waits as a state.
_AHEAD = 4


class Workers:
    """Processes of this machine that fold shares; they end with the ``with`` block.

    Args:
        plan: The plan.
        key: The trial's key, if the plan needs one.
        options: How the files are read.
        processes: How many workers there are.
    """

    def __init__(self, plan: Plan, key: bytes | None, options: ReadOptions, processes: int) -> None:
        setup = Setup(plan.canonical().decode(), key, options)
        self._events: SimpleQueue[tuple[int, Answer | None]] = SimpleQueue()
        self._processes = [_started(processes) for _ in range(processes)]
        self._readers = [Thread(target=self._read, args=(number,), daemon=True) for number in range(processes)]
        for number, reader in enumerate(self._readers):
            reader.start()
            self._send(number, setup)

    def __enter__(self) -> Self:
        return self

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

    def fold(self, shares: Sequence[Share], progress: Callable[[Path, int], None]) -> Iterator[Folded]:
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
                self._send(worker, ShareToFold(shares[given]))
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
                case Failed(kind, message):
                    raise _error(kind, message)
                case None:
                    raise self._gone(worker)

    def _read(self, number: int) -> None:
        pipe = self._processes[number].stdout
        assert pipe is not None
        while (answer := receive(pipe, cast(type[Answer], Answer))) is not None:
            self._events.put((number, answer))
        self._events.put((number, None))

    def _send(self, number: int, message: Setup | ShareToFold) -> None:
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
        [sys.executable, "-m", "foldaway.sources.runs.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **settings},
    )


def _error(kind: str, message: str) -> FoldawayError:
    """The error that a worker told of."""
    if kind == "WorkerError":
        return WorkerError(f"unexpected error in a worker process: {message}. This is a bug in foldaway.")
    known = getattr(errors, kind, SourceError)
    return cast(FoldawayError, known(message))
