"""How often senders may come: the law of the rate, and what is kept for it."""

from __future__ import annotations

import random

import pytest

from foldaway.service.http import rates
from foldaway.service.http.rates import AHEAD, Rate


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("rate", [0.05, 1.0, 7.5])
def test_no_more_than_the_rate_comes_through_and_whoever_waits_as_told_does(rate: float) -> None:
    clock, rng = Clock(), random.Random(1)
    limit, came, seconds = Rate(rate, clock), 0, 400 / rate
    start = clock.now
    while clock.now < start + seconds:
        waiting = limit.wait("eager")
        came += waiting == 0
        clock.now += waiting if waiting and rng.random() < 0.5 else rng.expovariate(2 * rate)
        if waiting:
            assert waiting <= max(AHEAD, 1 / rate)
    at_once = max(1.0, AHEAD * rate)
    assert came <= rate * (clock.now - start) + at_once + 1
    assert came > 0.8 * rate * seconds
    assert limit.wait("another") == 0


def test_who_waits_as_long_as_it_was_told_comes_through() -> None:
    clock = Clock()
    limit = Rate(2.0, clock)
    while not (seconds := limit.wait("one")):
        pass
    clock.now += seconds * (1 - 1e-6)
    assert limit.wait("one") > 0
    clock.now += seconds * 2e-6
    assert limit.wait("one") == 0


def test_those_who_have_not_come_for_a_while_are_forgotten_and_the_rest_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rates, "_MOST", 50)
    clock = Clock()
    limit = Rate(1.0, clock)
    for i in range(200):
        limit.wait(f"sender {i}")
    assert len(limit._due) == 50
    assert not any(isinstance(key, str) for key in limit._due)
    clock.now += AHEAD
    limit.wait("one")
    assert len(limit._due) == 1
