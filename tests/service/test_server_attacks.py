"""The study of attacks on a server, small: without ticks, whoever watches is right; with them, it is guessing."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from served import Served
from servers import Nursery
from sizes import mostly_slow

sys.path.insert(0, str(Path(__file__).parents[2]))  # studies/ lies beside tests/ and is no part of the package

from studies import server_attacks as a

ROUNDS = 12


@pytest.fixture(scope="module")
def open_to_all(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("off"), served_from) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("on"), served_from, tick=a.TICK) as server:
        yield server


@pytest.mark.parametrize("attack", mostly_slow([a.own_receipts, a.this_person, a.own_reports], a.this_person))
def test_whoever_fills_a_cohort_but_for_one_guesses(attack: a.Attack, open_to_all: Served, guarded: Served) -> None:
    assert attack(open_to_all, ROUNDS, 0.2, random.Random(1)) == (ROUNDS, ROUNDS)
    assert attack(guarded, ROUNDS, a.LOOKS * a.TICK, random.Random(1)).right < ROUNDS - 1


@pytest.mark.parametrize("attack", mostly_slow([a.status_of_readers, a.metrics], a.status_of_readers))
def test_nothing_that_is_read_changes_with_a_record(attack: a.Attack, guarded: Served) -> None:
    """So whoever says that it came when something changed is right as often as it did not come."""
    assert attack(guarded, ROUNDS // 2, a.LOOKS * a.TICK, random.Random(2)).right < ROUNDS // 2


@pytest.mark.slow
def test_answers_carry_the_time_of_a_tick(open_to_all: Served, guarded: Served) -> None:
    assert a.finest_time(open_to_all, 3, 0.1, random.Random(1)).right > 0
    right, of = a.finest_time(guarded, 3, a.LOOKS * a.TICK, random.Random(1))
    assert (right, of > 0) == (0, True)


def test_bodies_that_take_long_to_read_hold_up_nobody_else(open_to_all: Served) -> None:
    for body in (a.blank(), a.texts()):
        assert a.longest_wait(open_to_all, body, 4, random.Random(1)) < 2


@pytest.mark.parametrize(
    ("scope", "units", "records", "taken"),
    [("ingest", 480, 1, False), ("site", 480, 1, True), ("site", 10**6, 1, False), ("site", 480, 10**7, False)],
)
def test_a_site_brings_as_many_units_as_its_token_says(
    open_to_all: Served, scope: str, units: int, records: int, taken: bool
) -> None:
    assert a.sites_taken(open_to_all, scope, units, random.Random(), records) is taken


def test_refused_requests_leave_no_producer(open_to_all: Served) -> None:
    assert a.rows_left(open_to_all, 20, random.Random(1)) == 0


def test_no_report_is_taken_in_another_arm(open_to_all: Served) -> None:
    assert a.other_arms(open_to_all, 10, random.Random(1)) == (0, 10)


def test_no_head_is_taken_that_can_be_read_in_two_ways(open_to_all: Served) -> None:
    assert set(a.heads_taken(open_to_all, random.Random(1)).values()) == {400}
