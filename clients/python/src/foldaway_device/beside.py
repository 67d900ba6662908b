"""What a device does beside its program: one thing after the other, in threads that hold nothing up."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import TypeVar

Done = TypeVar("Done")


class Beside:
    """One line of tasks."""

    def __init__(self) -> None:
        self._last: Thread | None = None
        self._one = Lock()

    def start(self, task: Callable[[], object]) -> Thread:
        """Do it when what was begun before is done; its errors are its own."""
        with self._one:
            before = self._last

            def run() -> None:
                if before is not None:
                    before.join()
                task()

            self._last = thread = Thread(target=run, daemon=True)
            thread.start()
        return thread

    def within(self, seconds: float, task: Callable[[], Done]) -> Done:
        """Do it, and wait for so long.

        Raises:
            TimeoutError: It is not done by then. It goes on if it was begun.
        """
        done: list[Done] = []
        failed: list[BaseException] = []
        until = time.monotonic() + seconds

        def run() -> None:
            if time.monotonic() > until:
                return  # nobody waits for it
            try:
                done.append(task())
            except BaseException as error:
                failed.append(error)

        self.start(run).join(seconds)
        if failed:
            raise failed[0]
        if not done:
            raise TimeoutError
        return done[0]
