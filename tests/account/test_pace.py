"""The laws of the pace: no write below a cohort, off a tick or at a record that can be foreseen."""

from __future__ import annotations

from collections import Counter

import pytest

import foldaway as fa
from foldaway.account.pace import Pace, Waiting, beyond
from foldaway.keeping.cohort import Newcomers
from plans import SMALL

COHORT = 20
PLAN = fa.Plan(**SMALL, privacy=fa.Privacy(cohort=COHORT))


def written_at(pace: Pace, *, planted: int) -> int:
    """How many units have come when the first write comes, looked for after each."""
    waiting, new = Waiting(PLAN.privacy, pace), Newcomers(planted, planted)
    waiting.came(Newcomers(), new)
    while not waiting.is_over(new, on_tick=True):
        new += Newcomers(1, 1)
        waiting.came(Newcomers(1, 1), new)
    return new.units


@pytest.mark.parametrize("planted", [0, COHORT - 1])
def test_no_number_of_units_makes_the_next_one_likely_to_be_seen(planted: int) -> None:
    """Of those who are there when a unit comes, it causes a write in about one of a cohort, however many there are."""
    found = Counter(written_at(Pace(60), planted=planted) for _ in range(4_000))
    assert min(found) >= COHORT
    for units in range(COHORT, 2 * COHORT):
        there = sum(count for at, count in found.items() if at >= units)
        assert found[units] / there < 2.2 / COHORT


def test_the_number_beyond_is_about_a_cohort_on_average() -> None:
    assert 90 < sum(beyond(100) for _ in range(20_000)) / 20_000 < 108
    assert beyond(1) == 0


def test_without_ticks_a_write_comes_with_the_cohort() -> None:
    assert written_at(Pace(), planted=0) == COHORT
