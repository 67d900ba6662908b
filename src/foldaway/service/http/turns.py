"""Turns of the one thread that folds: fair between trials, and between the tokens of a trial."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import ContextVar
from threading import Condition, Thread
from typing import Any, NamedTuple

Whose = tuple[str, str]
"""A trial and a token; empty where a task is for none in particular."""

WHOSE: ContextVar[Whose] = ContextVar("whose", default=("", ""))
"""For whom tasks of this request are run."""


class _Task(NamedTuple):
    run: Callable[[], Any]
    outcome: Future[Any]


class _Line:
    """Those who wait, and how much of the thread's time each has had: by trial, and within it by token."""

    def __init__(self) -> None:
        self.waiting: dict[Hashable, Any] = {}
        self._had: dict[Hashable, float] = {}
        self._now = 0.0

    def next(self) -> Any:
        """Who of those that wait has had the least; the first to come of several."""
        whose = min(self.waiting, key=lambda one: self._had.setdefault(one, self._now))
        self._now = max(self._now, self._had[whose])
        return whose

    def came(self, whose: Hashable) -> None:
        """Somebody waits who did not: what they have not used by now is lost, so that nobody saves time up."""
        self._had[whose] = max(self._had.get(whose, 0.0), self._now)

    def had(self, whose: Hashable, seconds: float) -> None:
        """Somebody has had so much; those that others have caught up with are forgotten."""
        self._had[whose] = self._had.get(whose, self._now) + seconds
        if whose not in self.waiting:
            self._had = {one: had for one, had in self._had.items() if one in self.waiting or had > self._now}


class Turns:
    """One thread and the tasks that wait for it.

    The trial that has had the least of its time comes next, and in it the token. So whoever has tasks that take long
    waits for others after each of them, and others wait for one of them at most.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._trials = _Line()
        self._tokens: dict[str, _Line] = {}
        self._changed = Condition()
        self._ended = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Callable[[], Any], whose: Whose = ("", "")) -> Future[Any]:
        """Have a task run when it is its turn."""
        trial, token = whose
        outcome: Future[Any] = Future()
        with self._changed:
            if self._ended:
                raise RuntimeError("the thread has ended")
            tokens = self._tokens.setdefault(trial, _Line())
            if trial not in self._trials.waiting:
                self._trials.came(trial)
                self._trials.waiting[trial] = tokens
            if token not in tokens.waiting:
                tokens.came(token)
                tokens.waiting[token] = deque()
            tokens.waiting[token].append(_Task(task, outcome))
            self._changed.notify()
        return outcome

    def end(self) -> None:
        """Run what waits, and end."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (found := self._next()) is not None:
            (trial, token), task = found
            begun = time.monotonic()
            if task.outcome.set_running_or_notify_cancel():
                try:
                    task.outcome.set_result(task.run())
                except BaseException as error:
                    task.outcome.set_exception(error)
            del found, task  # and with them what they hold
            with self._changed:
                seconds = time.monotonic() - begun
                self._tokens[trial].had(token, seconds)
                self._trials.had(trial, seconds)
                if trial not in self._trials.waiting:
                    del self._tokens[trial]

    def _next(self) -> tuple[Whose, _Task] | None:
        with self._changed:
            while not self._trials.waiting:
                if self._ended:
                    return None
                self._changed.wait()
            trial = self._trials.next()
            tokens: _Line = self._trials.waiting[trial]
            token = tokens.next()
            task = tokens.waiting[token].popleft()
            if not tokens.waiting[token]:
                del tokens.waiting[token]
            if not tokens.waiting:
                del self._trials.waiting[trial]
            return (trial, token), task
