from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldaway.simulation.datasets import checkout, clinic, visits
from sizes import mostly_slow


def whole(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches)).combine_chunks()


@settings(max_examples=15, deadline=None)
@given(chunk=st.integers(500, 30_000), n=st.integers(1, 25_000), seed=st.integers(0, 5))
def test_checkout_depends_on_the_seed_and_not_on_the_chunk(chunk: int, n: int, seed: int) -> None:
    batches = list(checkout(n, seed=seed, chunk=chunk))
    assert [batch.num_rows for batch in batches] == [chunk] * (n // chunk) + [n % chunk] * (n % chunk > 0)
    assert whole(iter(batches)).equals(whole(checkout(25_000, seed=seed)).slice(0, n))


def test_seeds_differ() -> None:
    assert not whole(checkout(100, seed=1)).equals(whole(checkout(100, seed=2)))


def test_no_records() -> None:
    assert list(checkout(0)) == []


@pytest.mark.parametrize("effect", mostly_slow([1.0, -2.0], -2.0))
def test_checkout_has_the_effects_it_claims(effect: float) -> None:
    data = whole(checkout(400_000, seed=3, effect=effect))
    treated = data["variant"].to_numpy() == "treatment"
    for outcome, true in (("revenue", effect), ("converted", 0.03)):
        values = data[outcome].to_numpy().astype(float)
        one, zero = values[treated], values[~treated]
        error = np.sqrt(one.var() / one.size + zero.var() / zero.size)
        assert abs(one.mean() - zero.mean() - true) < 4 * error
    revenue = data["revenue"].to_numpy()
    one, zero = revenue[treated], revenue[~treated]
    assert zero.mean() == pytest.approx(17.57, abs=0.25)
    assert one.std() / one.mean() > 1.1 * zero.std() / zero.mean()
    assert np.corrcoef(revenue, data["revenue_before"].to_numpy())[0, 1] > 0.4
    assert abs(treated.mean() - 0.5) < 0.004
    assert set(data["country"].unique().to_pylist()) == {"de", "fr", "us"}
    assert len(data["user_id"].unique()) == data.num_rows


def test_visits_spread_users_over_batches_and_lose_no_record() -> None:
    batches = list(visits(300, days=10, seed=4))
    assert len(batches) == 10 + 3
    order = [("day", "ascending"), ("user_id", "ascending")]
    prompt = whole(visits(300, days=10, seed=4, longest_delay=0)).sort_by(order)
    everything = whole(iter(batches)).sort_by(order)
    assert everything["user_id"].to_pylist() == prompt["user_id"].to_pylist()
    assert everything["minutes"].to_pylist() == prompt["minutes"].to_pylist()
    delays = [day - made for day, batch in enumerate(batches, 1) for made in batch["day"].to_pylist()]
    assert set(delays) == {0, 1, 2, 3}
    user = everything["user_id"][0].as_py()
    assert sum(user in batch["user_id"].to_pylist() for batch in batches) > 1
    arms = everything.group_by("user_id").aggregate([("variant", "count_distinct")])
    assert arms["variant_count_distinct"].unique().to_pylist() == [1]


def test_visits_have_the_effect_and_the_correlation_they_claim() -> None:
    data = whole(visits(20_000, seed=1, effect=2.0)).to_pandas()
    users = data.groupby("user_id").agg(variant=("variant", "first"), minutes=("minutes", "mean"))
    one, zero = (users.minutes[users.variant == arm] for arm in ("treatment", "control"))
    error = np.sqrt(one.var() / len(one) + zero.var() / len(zero))
    assert abs(one.mean() - zero.mean() - 2.0) < 4 * error
    level = data.minutes - 2.0 * (data.variant == "treatment")
    within = level - level.groupby(data.user_id).transform("mean")
    count = data.groupby("user_id").size()
    noise = (within**2).sum() / (count - 1).sum()
    assert 1 - noise / level.var() == pytest.approx(0.64, abs=0.02)


@settings(max_examples=10, deadline=None)
@given(chunk=st.integers(100, 9_000), n=st.integers(1, 10_000), seed=st.integers(0, 3))
def test_a_clinic_depends_on_the_seed_and_not_on_the_chunk(chunk: int, n: int, seed: int) -> None:
    assert whole(clinic(2, n, seed=seed, chunk=chunk)).equals(whole(clinic(2, 10_000, seed=seed)).slice(0, n))


def test_clinics_differ_but_for_the_effect() -> None:
    clinics = [whole(clinic(number, 40_000, effect=3.0)).to_pandas() for number in range(4)]
    assert len({name for data in clinics for name in data.patient}) == 160_000
    for data in clinics:
        one, zero = (data.score[data.arm == arm] for arm in ("treatment", "control"))
        assert abs(one.mean() - zero.mean() - 3.0) < 4 * np.sqrt(one.var() / len(one) + zero.var() / len(zero))
    levels = [data.baseline.mean() for data in clinics]
    assert max(levels) - min(levels) > 1
