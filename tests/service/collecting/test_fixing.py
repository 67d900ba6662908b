"""A server keeps moments, encrypted, until there are records enough; then all servers' become sums at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from batches import receive
from foldaway.errors import Conflict, Unavailable
from foldaway.service.collecting.collector import FIXED_AT, Collector, merged
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Decoded, Limits
from foldaway.tallies import Grouped
from stores import Place

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
    servers = [Collector(store, PLAN.name, name) for name in ("one", "two")]
    batches = FIXED_AT // BATCH // 2
    for number in range(batches - 1):
        for place, server in enumerate(servers):
            receive(server, records(2 * number + place), f"p{place}", number + 1)
    assert all(shard.moments is not None for shard in shards(store))
    rich = merged(PLAN, store.shards.all(PLAN.name))
    whole = fa.Trial(PLAN, key=bytes(16))
    for seed in range(2 * (batches - 1)):
        whole.fold(records(seed).records)
    ours, theirs = (trial.effects().filter(se_kind="jackknife")[1] for trial in (rich, whole))
    assert ours.estimate == pytest.approx(theirs.estimate, rel=1e-12)

    receive(servers[0], records(1000), "p0", batches)
    receive(servers[1], records(1001), "p1", batches)  # the commit that reaches the number
    predictors = [shard.predictor for shard in shards(store)]
    assert all(shard.moments is None for shard in shards(store))
    assert predictors[0] is not None
    assert predictors[1] is not None
    assert np.array_equal(predictors[0].slopes, predictors[1].slopes)

    with pytest.raises(Conflict):  # built upon moments that are gone
        receive(servers[0], records(1002), "p0", batches + 1)
    receipt = receive(servers[0], records(1002), "p0", batches + 1)  # as the producer sends it again
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


def test_a_database_that_fails_while_it_fixes_loses_nothing_acknowledged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Collector(store, PLAN.name, "one")
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
    assert all(shard.moments is None for shard in shards(store))


def test_a_server_that_joins_later_takes_the_coefficients_that_there_are(store: Store) -> None:
    first = Collector(store, PLAN.name, "one")
    for number in range(FIXED_AT // BATCH):
        receive(first, records(number), "p", number + 1)
    versions = {row.shard: row.version for row in store.shards.all(PLAN.name)}
    second = Collector(store, PLAN.name, "two")
    receive(second, records(900), "q", 1)
    predictors = [shard.predictor for shard in shards(store)]
    assert predictors[0] is not None
    assert predictors[1] is not None
    assert np.array_equal(predictors[0].slopes, predictors[1].slopes)
    assert all(row.reliable for row in merged(PLAN, store.shards.all(PLAN.name)).effects())
    assert versions["one"] == {row.shard: row.version for row in store.shards.all(PLAN.name)}["one"]


def test_a_trial_that_closes_early_keeps_nothing(folder: Place) -> None:
    store = folder.open()
    service = Service(store, "one", Limits())
    made = service.create(PLAN.to_json())
    assert made.name == PLAN.name
    for number in range(5):
        receive(service.records.collector(PLAN.name), records(number), "p", number + 1)
    assert all(shard.moments is not None for shard in shards(store))
    service.close(PLAN.name)
    assert [row.state for row in store.shards.all(PLAN.name)] == [None]
