"""A server keeps moments, encrypted, until there are records enough; then all servers' become sums at once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from batches import receive
from foldaway.errors import Conflict, SequenceGap, Unavailable
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.service.collecting import record_store
from foldaway.service.collecting.record_inbox import RecordInbox
from foldaway.service.collecting.record_store import FIXED_AT, merged
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Decoded, Limits
from foldaway.tallies import Grouped
from stores import Place

pytestmark = pytest.mark.once

PLAN = fa.Plan(
    name="fixing",
    arm="arm",
    arms={"a": 0.5, "b": 0.5},
    outcomes=["y"],
    covariates=["x"],
    unit="id",
    privacy=fa.Privacy(cohort=50),
)
BATCH = 100


def records(seed: int) -> Decoded:
    rng = np.random.default_rng(seed)
    unit = rng.integers(0, 5000, BATCH)
    x = rng.normal(size=BATCH)
    y = 3 * x + rng.normal(size=BATCH) + unit % 2
    return Decoded(pa.table({"arm": np.array(["a", "b"])[unit % 2], "id": unit, "x": x, "y": y}))


@pytest.fixture
def store(folder: Place) -> Store:
    store = folder.open()
    store.create_trial(PLAN, bytes(16))
    return store


def shards(store: Store) -> list[Grouped]:
    found = []
    for row in store.shards.all(PLAN.name):
        assert row.state is not None
        tallies = fa.Trial.loads(row.state, PLAN).tallies
        assert isinstance(tallies, Grouped)
        found.append(tallies)
    return found


def test_all_shards_get_the_same_coefficients_at_once_and_nothing_is_lost(store: Store) -> None:
    servers = [RecordInbox(store, PLAN.name, name) for name in ("one", "two")]
    batches = FIXED_AT // BATCH // 2
    for number in range(batches - 1):
        for place, server in enumerate(servers):
            receive(server, records(2 * number + place), f"p{place}", number + 1)
    assert all(shard.unfixed for shard in shards(store))
    rich = merged(PLAN, store.shards.all(PLAN.name))
    whole = fa.Trial(PLAN, key=bytes(16))
    for seed in range(2 * (batches - 1)):
        whole.fold(records(seed).records)
    ours, theirs = (trial.effects().filter(se_kind="jackknife")[1] for trial in (rich, whole))
    assert ours.estimate == pytest.approx(theirs.estimate, rel=1e-12)

    receive(servers[0], records(1000), "p0", batches)
    receive(servers[1], records(1001), "p1", batches)  # the commit that reaches the number
    predictors = [shard.predictor for shard in shards(store)]
    assert all(not shard.unfixed for shard in shards(store))
    assert predictors[0] is not None
    assert predictors[1] is not None
    assert np.array_equal(predictors[0].slopes, predictors[1].slopes)

    receipt = receive(servers[0], records(1002), "p0", batches + 1)  # built upon moments that are gone
    assert (receipt.folded, receipt.durable) == (BATCH, batches + 1)
    for seed in (1000, 1001, 1002):
        whole.fold(records(seed).records)
    lean = merged(PLAN, store.shards.all(PLAN.name))
    assert lean.n == whole.n
    ours, theirs = (trial.effects().filter(se_kind="jackknife")[1] for trial in (lean, whole))
    assert ours.reliable
    assert abs(ours.estimate - theirs.estimate) < 0.1 * theirs.std_error
    plain, expected = (trial.effects().filter(se_kind="jackknife")[0] for trial in (lean, whole))
    assert plain.std_error == pytest.approx(expected.std_error, rel=1e-9)


@pytest.fixture
def either(place: Place) -> Store:
    store = place.open()
    store.create_trial(PLAN, bytes(16))
    return store


def few(seed: int, n: int) -> Decoded:
    return Decoded(records(seed).records.slice(0, n))


def test_what_waits_on_another_server_is_mapped_as_one_server_would_have_folded_it(
    either: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also records without a number, which nobody would send again; even if the database fails in the midst of it."""
    one, two = (RecordInbox(either, PLAN.name, name) for name in ("one", "two"))
    receive(two, records(100), "q", 1)
    pending = [few(101, 20), few(102, 15)]
    assert not receive(two, pending[0], None, None).repeated
    assert receive(two, pending[1], "q", 2).durable == 1
    for number in range(FIXED_AT // BATCH - 1):
        receive(one, records(number), "p", number + 1)
    fixed = merged(PLAN, either.shards.all(PLAN.name))
    assert all(not shard.unfixed for shard in shards(either))
    whole = fa.Trial.loads(fixed.exchanged(), PLAN, key=bytes(16))  # one server, from the same coefficients on
    assert whole.n == FIXED_AT
    last = records(103)
    for batch in (*pending, last):
        whole.fold(batch.records)
    commit = type(either.shards).commit

    def failing_once_mapped(*given: Any, **others: Any) -> int:
        version = commit(*given, **others) if others["version"] == 1 else 0  # a Conflict
        raise Unavailable(f"the database does not answer: {version}.")

    with monkeypatch.context() as patch:
        patch.setattr(type(either.shards), "commit", failing_once_mapped)
        with pytest.raises(Unavailable):
            receive(two, last, "q", 3)
    assert two.pending == 35
    assert receive(two, last, "q", 3).durable == 3
    assert (two.pending, two.given_up()) == (0, [])
    assert either.shards.sequences(PLAN.name, ["q"]) == {"q": 3}
    ours, theirs = merged(PLAN, either.shards.all(PLAN.name)).tallies, whole.tallies
    assert isinstance(ours, Grouped)
    assert isinstance(theirs, Grouped)
    for name, array in theirs.plain().arrays().items():
        np.testing.assert_allclose(ours.plain().arrays()[name], array, rtol=1e-12, atol=1e-12 * np.abs(array).max())
    assert ours.predictor is not None
    assert receive(two, records(104), None, None).folded == BATCH  # and on it goes


def test_an_end_maps_what_waits_on_its_server(folder: Place) -> None:
    store = folder.open()
    service = Service(store, "two", Limits())
    service.create(PLAN.to_json())
    two = service.records.collector(PLAN.name)
    receive(two, records(100), "q", 1)
    receive(two, few(101, 20), None, None)
    one = RecordInbox(store, PLAN.name, "one")
    for number in range(FIXED_AT // BATCH - 1):
        receive(one, records(number), "p", number + 1)
    ended = service.end(PLAN.name, EndRequest(exact=True))
    assert ended.records == FIXED_AT + 20


def test_a_commit_that_was_taken_unnoticed_is_not_mapped_once_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (RecordInbox(store, PLAN.name, name) for name in ("one", "two"))
    receive(two, few(100, 30), None, None)
    commit = type(store.shards).commit

    def broken(*given: Any, **others: Any) -> int:
        commit(*given, **others)
        raise Unavailable("the connection broke.")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.shards), "commit", broken)
        with pytest.raises(Unavailable):
            receive(two, few(101, 40), None, None)
    for number in range(FIXED_AT // BATCH):
        receive(one, records(number), "p", number + 1)
    assert all(not shard.unfixed for shard in shards(store))
    with pytest.raises(Conflict):  # with 30 records that are durable, and were answered as pending
        receive(two, few(102, 40), None, None)
    assert merged(PLAN, store.shards.all(PLAN.name)).n == FIXED_AT + 70


@pytest.mark.parametrize("seed", range(6))
def test_whatever_fails_around_a_fixing_each_batch_counts_once(
    seed: int, folder: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits fail before or after the database has taken them; producers send what was not durable again."""
    monkeypatch.setattr(record_store, "FIXED_AT", 300)
    store, rng = folder.open(), np.random.default_rng(seed)
    store.create_trial(PLAN, bytes(16))
    servers = [RecordInbox(store, PLAN.name, name) for name in ("one", "two", "three")]
    batches: dict[str, list[Decoded]] = {name: [few(10 * p + i, 30) for i in range(9)] for p, name in enumerate("pqr")}
    commit = type(store.shards).commit

    def failing(*given: Any, **others: Any) -> int:
        how = rng.choice(["well", "before", "after"], p=[0.6, 0.2, 0.2])
        if how == "before":
            raise Unavailable("the database does not answer.")
        version = commit(*given, **others)
        if how == "after":
            raise Unavailable("the connection broke.")
        return version

    monkeypatch.setattr(type(store.shards), "commit", failing)
    sent, lean = dict.fromkeys(batches, 0), set[str]()
    while min(sent.values()) < 9:
        name = rng.choice([name for name in sent if sent[name] < 9])
        server = servers["pqr".index(name)]
        try:
            receive(server, batches[name][sent[name]], name, sent[name] + 1)
            sent[name] += 1
        except SequenceGap as gap:
            sent[name] = gap.expected - 1  # what was pending is gone, and comes again
        except (Conflict, Unavailable):
            pass
        for row in store.shards.all(PLAN.name):  # moments that were destroyed never come back
            rich = row.state is not None and fa.Trial.loads(row.state, PLAN).unfixed
            assert not (rich and row.shard in lean)
            lean |= {row.shard} if row.state is not None and not rich else set()
    monkeypatch.setattr(type(store.shards), "commit", commit)
    for name, server in zip(batches, servers, strict=True):
        for number in range(1 + store.shards.sequences(PLAN.name, [name]).get(name, 0), 10):
            with suppress(Conflict):
                receive(server, batches[name][number - 1], name, number)
        for number in range(1 + store.shards.sequences(PLAN.name, [name]).get(name, 0), 10):
            receive(server, batches[name][number - 1], name, number)
        if server.pending:
            server.account.commit()
    whole = fa.Trial(PLAN, key=bytes(16))
    for batch in (each for several in batches.values() for each in several):
        whole.fold(batch.records)
    everything = merged(PLAN, store.shards.all(PLAN.name))
    assert everything.counts == whole.counts
    assert all(not shard.unfixed for shard in shards(store))
    ours, theirs = (
        trial.effects().filter(estimator="difference", se_kind="jackknife")[0] for trial in (everything, whole)
    )
    assert ours.std_error == pytest.approx(theirs.std_error, rel=1e-9)


def test_a_database_that_fails_while_it_fixes_loses_nothing_acknowledged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RecordInbox(store, PLAN.name, "one")
    for number in range(FIXED_AT // BATCH - 1):
        receive(server, records(number), "p", number + 1)

    def fail(*_: object) -> None:
        raise Unavailable("the database does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.shards), "rewrite", fail)
        receipt = receive(server, records(500), "p", FIXED_AT // BATCH)
    assert receipt.durable == FIXED_AT // BATCH
    assert merged(PLAN, store.shards.all(PLAN.name)).n == FIXED_AT
    receive(server, records(501), "p", FIXED_AT // BATCH + 1)
    assert merged(PLAN, store.shards.all(PLAN.name)).n == FIXED_AT + BATCH
    assert all(not shard.unfixed for shard in shards(store))


def test_a_server_that_joins_later_takes_the_coefficients_that_there_are(store: Store) -> None:
    first = RecordInbox(store, PLAN.name, "one")
    for number in range(FIXED_AT // BATCH):
        receive(first, records(number), "p", number + 1)
    versions = {row.shard: row.version for row in store.shards.all(PLAN.name)}
    second = RecordInbox(store, PLAN.name, "two")
    receive(second, records(900), "q", 1)
    predictors = [shard.predictor for shard in shards(store)]
    assert predictors[0] is not None
    assert predictors[1] is not None
    assert np.array_equal(predictors[0].slopes, predictors[1].slopes)
    assert all(row.reliable for row in merged(PLAN, store.shards.all(PLAN.name)).effects())
    assert versions["one"] == {row.shard: row.version for row in store.shards.all(PLAN.name)}["one"]


def test_a_trial_that_ends_early_keeps_nothing(folder: Place) -> None:
    store = folder.open()
    service = Service(store, "one", Limits())
    made = service.create(PLAN.to_json())
    assert made.name == PLAN.name
    for number in range(5):
        receive(service.records.collector(PLAN.name), records(number), "p", number + 1)
    assert all(shard.unfixed for shard in shards(store))
    service.end(PLAN.name)
    assert [row.state for row in store.shards.all(PLAN.name)] == [None]
