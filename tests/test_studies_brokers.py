"""The studies' way through a broker gives the trial of one pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import foldaway as fa
from brokers import require
from consuming import KEY, assert_same, fresh_name, people, plan_of

sys.path.insert(0, str(Path(__file__).parents[1]))  # studies/ lies beside tests/ and is no part of the package

from studies import brokers as through


@pytest.mark.parametrize("kind", ["nats", "redis"])
def test_a_trial_through_a_broker_is_that_of_one_pass(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(kind)
    monkeypatch.setattr(through, "RECORDS", 300)
    plan = plan_of(fresh_name(), moments={"bootstrap": 20})
    records = people(4_321)
    ways = {"nats": through.through_nats, "redis": through.through_redis}
    found = ways[kind](records.to_batches(max_chunksize=177), plan, KEY)
    expected = fa.Trial(plan, key=KEY)
    expected.fold(records)
    assert_same(found, expected)


def test_every_message_holds_a_cohort() -> None:
    tables = list(through._tables(people(1_050).to_batches(max_chunksize=13), 100))
    assert [table.num_rows for table in tables] == [100] * 9 + [150]
    assert pa.concat_tables(tables).equals(people(1_050))
