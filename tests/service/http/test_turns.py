"""The laws of turns: every task runs once, and nobody waits for more than one task of another."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from foldaway.service.http.turns import Turns, Whose


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("foldaway.service.http.turns.time.monotonic", lambda: now[0])
    return now


def order(clock: list[float], tasks: list[tuple[Whose, float]]) -> list[int]:
    """In which order tasks that wait together are run, each of which takes so many seconds."""
    turns, let, done = Turns("test"), threading.Event(), list[int]()

    def task(number: int, seconds: float) -> None:
        clock[0] += seconds
        done.append(number)

    turns.submit(let.wait)
    for number, (whose, seconds) in enumerate(tasks):
        turns.submit(partial(task, number, seconds), whose)
    let.set()
    turns.end()
    return done


def test_tasks_of_one_are_run_in_order(clock: list[float]) -> None:
    assert order(clock, [(("a", "t"), 0.0)] * 5) == [0, 1, 2, 3, 4]


def test_a_trial_waits_for_one_task_of_another_at_most(clock: list[float]) -> None:
    tasks = [(("attacked", "t"), 2.0)] * 6 + [(("other", "t"), 0.1)] * 3
    done = order(clock, tasks)
    assert sorted(done) == list(range(9))
    assert [done.index(i) for i in (6, 7, 8)] == [1, 2, 3]


def test_many_tokens_get_no_more_for_their_trial(clock: list[float]) -> None:
    tasks = [(("attacked", f"t{i}"), 2.0) for i in range(6)] + [(("other", "t"), 0.1)] * 2
    assert [order(clock, tasks).index(i) for i in (6, 7)] == [1, 2]


def test_a_token_waits_for_one_task_of_another_in_its_trial(clock: list[float]) -> None:
    assert order(clock, [(("a", "slow"), 2.0)] * 4 + [(("a", "quick"), 0.1)]).index(4) == 1


def test_time_that_was_not_used_is_not_saved_up(clock: list[float]) -> None:
    """Who comes late has no claim to what the others have had before."""
    turns, let, done = Turns("test"), threading.Event(), list[str]()

    def task(whose: str) -> None:
        clock[0] += 1.0
        done.append(whose)

    for _ in range(5):
        turns.submit(partial(task, "early"), ("early", "t")).result(5)
    turns.submit(let.wait, ("early", "t"))
    for whose in ("late", "late", "late", "early", "early", "early"):
        turns.submit(partial(task, whose), (whose, "t"))
    let.set()
    turns.end()
    assert sorted(done[5:9]) == ["early", "early", "late", "late"]


def test_what_fails_says_so_and_the_next_is_run() -> None:
    turns = Turns("test")
    assert isinstance(turns.submit(lambda: 1 / 0).exception(5), ZeroDivisionError)
    assert turns.submit(lambda: 7).result(5) == 7
    turns.end()
