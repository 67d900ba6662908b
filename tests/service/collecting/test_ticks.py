"""What a server stores when: batches of less than a cohort on a tick, others at once."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import foldaway as fa
from batches import receive
from foldaway.account.pace import Pace
from foldaway.service.collecting.record_inbox import RecordInbox
from foldaway.sources.formats.body import Decoded
from plans import SMALL
from stores import Place

COHORT = 20
PLAN = fa.Plan(**SMALL, privacy=fa.Privacy(cohort=COHORT))


@pytest.mark.parametrize("seed", [1, 2])
def test_what_comes_in_small_batches_is_stored_on_a_tick_alone(folder: Place, seed: int) -> None:
    store, rng = folder.open(), random.Random(seed)
    store.create_trial(PLAN, None)
    collector = RecordInbox(store, PLAN.name, "main", Pace(60))
    pending = 0
    for number in range(1, 60):
        size = rng.randrange(1, COHORT)
        said = receive(collector, records(size), "p", number)
        pending += size
        assert (said.pending, collector.pending) == (True, pending)
        if number % 10 == 0:
            collector.commit_if_due()
            durable = store.shards.sequences(PLAN.name).get("p", 0)
            assert durable in (0, number) or collector.pending
            pending = collector.pending
    assert store.shards.sequences(PLAN.name)["p"] > 0


def test_a_batch_that_holds_a_cohort_is_stored_at_once_and_several_together_are_not(folder: Place) -> None:
    store = folder.open()
    store.create_trial(PLAN, None)
    collector = RecordInbox(store, PLAN.name, "main", Pace(60))
    assert receive(collector, records(COHORT - 1), "p", 1).pending
    assert receive(collector, records(COHORT - 1), "q", 1).pending
    assert receive(collector, records(COHORT), "r", 1).durable == 1
    assert store.shards.sequences(PLAN.name) == {"p": 1, "q": 1, "r": 1}


def records(n: int) -> Decoded:
    return Decoded(pa.table({"group": ["ab"[i % 2] for i in range(n)], "y": [float(i) for i in range(n)]}))
