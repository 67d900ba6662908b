"""A trial with a bootstrap: given the key, its results depend on the records and on nothing else."""

from __future__ import annotations

import secrets
from functools import reduce

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.numerics.kernels.weights import Kind
from foldaway.numerics.threads import CORES
from resampling import (
    KEY,
    OTHER_KEY,
    B,
    assert_same_replicates,
    folded,
    of_records,
    of_units,
    replicates_of,
    total_weights,
    with_bootstrap,
)
from trials import make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")


# Given the key, nothing but the records matters.


def test_no_batching_order_or_sharding_changes_a_clustered_bootstrap() -> None:
    plan, rows = of_units(shift=50)
    whole = folded(plan, rows)
    shuffled = rows.sample(frac=1, random_state=1)
    assert_same_replicates(folded(plan, *(shuffled[i : i + 70] for i in range(0, len(rows), 70))), whole)
    assert_same_replicates(folded(plan, rows[::-1]), whole)
    singles = folded(plan, shuffled[:40], *(shuffled[i : i + 1] for i in range(40, 100)), shuffled[100:])
    assert_same_replicates(singles, whole)
    shards = [folded(plan, shuffled[i::3]) for i in range(3)]  # a unit's records are in several of them
    assert_same_replicates(reduce(lambda a, b: a + b, shards), whole)
    assert_same_replicates(reduce(lambda a, b: b.merge(a), shards), whole)
    saved = [fa.Trial.loads(shard.dumps()) for shard in shards]
    assert_same_replicates(saved[2] + (saved[0] + saved[1]), whole)


def test_the_key_decides_the_replicates_and_nothing_else() -> None:
    plan, rows = of_units()
    one, other = folded(plan, rows), folded(plan, rows, key=OTHER_KEY)
    ours, theirs = (replicates_of(trial, "difference", "arm1", "y0").effects for trial in (one, other))
    assert not np.any(np.abs(ours - theirs) < 1e-12 * np.abs(theirs))
    plain = [trial.effects().filter(se_kind="HC1").to_dicts() for trial in (one, other)]
    assert plain[0] == plain[1]


@pytest.mark.parametrize("kind", ["poisson", "double-or-nothing"])
@pytest.mark.parametrize("units", [True, False], ids=["complete units", "units in pieces"])
def test_one_thread_and_two_give_the_same_state(kind: Kind, units: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, rows = make_trial(13, n=3_000, units=True)
    plan = with_bootstrap(plan, 500, kind, records_per_unit="together" if units else "many")
    states = []
    for threads in (1, 2):
        monkeypatch.setenv(CORES, str(threads))
        states.append(folded(plan, rows).dumps())
    assert states[0] == states[1]


def test_17_and_its_text_are_the_same_unit() -> None:
    plan, rows = of_units()
    number = pd.factorize(rows["unit"])[0]
    texts = [str(n) for n in number]
    same = [
        pa.table({**rows.drop(columns="unit").to_dict("series"), "unit": units})
        for units in (
            pa.array(number),
            pa.array(number).cast(pa.uint16()),
            pa.array(texts),
            pa.array(texts).cast(pa.large_string()),
            pa.array(texts).cast(pa.binary()),
            pa.array(texts).dictionary_encode(),
        )
    ]
    states = {folded(plan, batch).dumps() for batch in same}
    assert len(states) == 1
    other = pa.table({**rows.drop(columns="unit").to_dict("series"), "unit": pa.array([f"{t} " for t in texts])})
    assert folded(plan, other).dumps() not in states


def test_faulty_records_take_no_weight_from_the_good() -> None:
    plan, rows = of_units()
    drop = with_bootstrap(plan, B, drop_limit=0.05, records_per_unit="many")
    faulty = rows[:30].assign(y0=np.nan)
    mixed = pd.concat([rows, faulty]).sample(frac=1, random_state=2)
    assert_same_replicates(folded(drop, mixed), folded(drop, rows))


# Without a unit, every record is one.


@pytest.fixture
def same_nonces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system draws to keep shards apart, but the same in every run of the tests."""
    monkeypatch.setattr(secrets, "token_bytes", np.random.default_rng(1).bytes)


@pytest.mark.usefixtures("same_nonces")
def test_shards_under_one_key_never_share_weights() -> None:
    plan, rows = of_records(n=2_000)
    one, two = folded(plan, rows), folded(plan, rows)
    correlation = np.corrcoef(total_weights(one), total_weights(two))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(B)
    # Twice the records have half the variance; with shared weights they would have all of it.
    alone, both = (np.var(replicates_of(t, "difference", "arm1", "y0").effects) for t in (one, one + two))
    assert both / alone == pytest.approx(0.5, rel=5 * np.sqrt(4 / B))
    assert both / alone < 0.8


@pytest.mark.usefixtures("same_nonces")
def test_no_record_of_a_trial_shares_weights_with_another() -> None:
    plan, rows = of_records(n=2_000)
    trial = folded(plan, rows)
    alone = np.var(total_weights(trial))
    trial.fold(rows)
    assert np.var(total_weights(trial)) / alone == pytest.approx(2, rel=5 * np.sqrt(4 / B))
    assert alone == pytest.approx(2_000, rel=5 * np.sqrt(2 / B))  # Poisson(1) weights


@pytest.mark.usefixtures("same_nonces")
@pytest.mark.parametrize("way", ["loaded", "copied", "merged"])
def test_a_trial_from_another_goes_on_with_numbers_of_its_own(way: str) -> None:
    plan, rows = of_records()
    first, batch = rows[:500], rows[500:]
    trial = folded(plan, first)
    before = total_weights(trial)
    twins = {
        "loaded": fa.Trial.loads(trial.dumps(), key=KEY),
        "copied": trial.copy(),
        "merged": trial + fa.Trial(plan, key=KEY),
    }
    twin = twins[way]
    assert np.array_equal(total_weights(twin), before)
    trial.fold(batch)
    twin.fold(batch)
    added, also = total_weights(trial) - before, total_weights(twin) - before
    assert abs(np.corrcoef(added, also)[0, 1]) < 5 / np.sqrt(B)
