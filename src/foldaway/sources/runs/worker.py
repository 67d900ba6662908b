"""A worker process: folds the shares it is given and answers with their states, until its input ends.

Messages go through its pipes as a length and MessagePack.

Started as ``python -m foldaway.sources.runs.worker``: it neither forks a process that has threads nor runs the
user's script again, as the ways of `multiprocessing` do. It ends by itself when the process that started it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from foldaway import errors
from foldaway.plan import Plan
from foldaway.records.columns import leave_pandas_out
from foldaway.sources.runs.shares import Count, Piece, ReadOptions, fold_share

T = TypeVar("T")

_LENGTH = 8


class Setup(msgspec.Struct, frozen=True):
    """The first thing that a worker is told. The trial's key goes through memory only.

    Attributes:
        plan: The plan in canonical form.
        key: The trial's key, if the plan needs one.
        options: How the files are read.
    """

    plan: str
    key: bytes | None
    options: ReadOptions


class ShareToFold(msgspec.Struct, frozen=True):
    """A share to fold."""

    share: list[Piece]


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


def send(pipe: IO[bytes], message: msgspec.Struct) -> None:
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

    while (work := receive(questions, ShareToFold)) is not None:
        try:
            trial, counts = fold_share(work.share, plan, setup.key, setup.options, tell)
            answer: Folded | Failed = Folded(trial.exchanged(newcomers=True), counts)
        except BrokenPipeError:
            raise
        except errors.FoldawayError as error:
            answer = Failed(_public(type(error)), str(error))
        except Exception as error:
            # Its words may hold values of records; its kind and place do not.
            where = traceback.extract_tb(error.__traceback__)[-1]
            answer = Failed("WorkerError", f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}")
        send(answers, answer)


def _public(kind: type[BaseException]) -> str:
    """The nearest type that `foldaway.errors` has a name for."""
    return next(base.__name__ for base in kind.__mro__ if hasattr(errors, base.__name__))


if __name__ == "__main__":
    main()
