"""The laws of the pace: no write below a cohort, off a tick or at a record that can be foreseen."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import foldaway as fa
from batches import receive
from foldaway.keeping.cohort import Newcomers
from foldaway.service.collecting.collector import Collector
from foldaway.service.collecting.pace import Pace, Waiting, beyond
from foldaway.sources.formats.body import Decoded
from plans import SMALL
from stores import Place

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


@pytest.mark.parametrize("seed", [1, 2])
def test_what_comes_in_small_batches_is_stored_on_a_tick_alone(folder: Place, seed: int) -> None:
    store, rng = folder.open(), random.Random(seed)
    store.create_trial(PLAN, None)
    collector = Collector(store, PLAN.name, "main", Pace(60))
    pending = 0
    for number in range(1, 60):
        size = rng.randrange(1, COHORT)
        said = receive(collector, records(size), "p", number)
        pending += size
        assert (said.pending, collector.shard.live.pending) == (True, pending)
        if number % 10 == 0:
            collector.shard.commit_if_due()
            durable = store.shards.sequences(PLAN.name).get("p", 0)
            assert durable in (0, number) or collector.shard.live.pending
            pending = collector.shard.live.pending
    assert store.shards.sequences(PLAN.name)["p"] > 0


def test_a_batch_that_holds_a_cohort_is_stored_at_once_and_several_together_are_not(folder: Place) -> None:
    store = folder.open()
    store.create_trial(PLAN, None)
    collector = Collector(store, PLAN.name, "main", Pace(60))
    assert receive(collector, records(COHORT - 1), "p", 1).pending
    assert receive(collector, records(COHORT - 1), "q", 1).pending
    assert receive(collector, records(COHORT), "r", 1).durable == 1
    assert store.shards.sequences(PLAN.name) == {"p": 1, "q": 1, "r": 1}


def records(n: int) -> Decoded:
    return Decoded(pa.table({"group": ["ab"[i % 2] for i in range(n)], "y": [float(i) for i in range(n)]}))
