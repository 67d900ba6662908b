"""A worker process: folds the shares it is given and answers with their states, until its input ends.

Started as ``python -m foldaway.sources.runs.worker``: it neither forks a process that has threads nor runs the
user's script again, as the ways of `multiprocessing` do. It ends by itself when the process that started it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import IO

from foldaway import errors
from foldaway.plan import Plan
from foldaway.sources.runs.pipe import BytesFolded, Failed, Folded, Setup, ShareToFold, receive, send
from foldaway.sources.runs.share_folding import fold_share


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it is interrupted too, and decides
    # Answers go to a pipe of their own; whatever a library may print must not get among them.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        os._exit(1)  # nobody is there to answer to; closing the pipe would only fail again


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Fold what comes and answer."""
    setup = receive(questions, Setup)
    if setup is None:
        return
    plan = Plan.loads(setup.plan)

    def told(path: Path, more: int) -> None:
        send(answers, BytesFolded(os.fsencode(path), more))

    while (work := receive(questions, ShareToFold)) is not None:
        try:
            trial, counts = fold_share(work.share, plan, setup.key, setup.options, told)
            answer: Folded | Failed = Folded(trial.dumps(), counts)
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
