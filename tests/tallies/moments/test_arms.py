"""However many workers fold a batch, the tallies are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldaway.records.batch
from foldaway.numerics.block import Floats, Shape
from foldaway.records.batch import Batch, Index
from foldaway.tallies.moments.arm import ArmTally, Kinds
from foldaway.tallies.moments.arms import fold_batch
from foldaway.tallies.moments.kinds import RECORDS, UNITS
from foldaway.tallies.moments.scores import Scores, UnitScores

SHAPE = Shape(3, 2)
KINDS: Kinds = {RECORDS: Scores.empty, UNITS: UnitScores.empty}


def make_batch(n: int, arms: int = 3, *, units: bool = False, weighted: bool = False, seed: int = 1) -> Batch:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(SHAPE.columns, n)) * [[1], [3], [0.1], [10], [1]] + [[0], [5], [-2], [100], [0]]
    rows[0] = 1
    unit = np.sort(rng.integers(0, max(1, n // 4), n)) if units else None
    arm = rng.integers(0, arms, max(1, n))[unit if unit is not None else slice(0, n)].astype(np.int8)

    def assemble(index: Index) -> Floats:
        picked: Floats = rows[:, index]
        return picked.copy()

    return Batch(n, assemble, arms, arm, rng.uniform(0.5, 2, n) if weighted else None, unit)


def empty(arms: int = 3) -> list[ArmTally]:
    return [ArmTally.empty(SHAPE, KINDS) for _ in range(arms)]


def assert_same(ours: list[ArmTally], theirs: list[ArmTally]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.n == other.n
        moved = one.rebase(other.frame)
        np.testing.assert_allclose(
            moved.factor.R.T @ moved.factor.R, other.factor.R.T @ other.factor.R, rtol=0, atol=1e-10 * max(1, one.n)
        )
        for name, tally in other.tallies.items():
            again: Any = moved.tallies[name]
            assert isinstance(tally, Scores)
            assert (again.n, again.clusters) == (tally.n, tally.clusters)
            scale = np.abs(tally.sums).max(initial=0)
            np.testing.assert_allclose(again.sums, tally.sums, rtol=0, atol=1e-10 * scale)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers start for a few records already."""
    monkeypatch.setattr(foldaway.records.batch, "WORTH_A_WORKER", 50)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_gives_the_same(workers: int, units: bool, weighted: bool) -> None:
    batch = make_batch(700, units=units, weighted=weighted)
    one = fold_batch(empty(), batch, workers=1)
    many = fold_batch(empty(), batch, workers=workers)
    assert sum(arm.n for arm in many) == 700
    assert_same(many, one)
    # On top of what is there already, with a frame of other records.
    more = make_batch(300, units=units, weighted=weighted, seed=2)
    assert_same(fold_batch(many, more, workers=workers), fold_batch(one, more, workers=1))


def test_a_batch_that_is_worth_its_workers() -> None:
    batch = make_batch(130_000)
    assert_same(fold_batch(empty(), batch, workers=3), fold_batch(empty(), batch, workers=1))


@pytest.mark.usefixtures("small_parts")
def test_arms_that_only_some_workers_see() -> None:
    batch = make_batch(600)
    assert batch.arm is not None
    batch.arm[:] = 0
    batch.arm[590:] = 2  # after every record that a common frame could be made of
    many = fold_batch(empty(), batch, workers=3)
    assert [arm.n for arm in many] == [590, 0, 10]
    assert_same(many, fold_batch(empty(), batch, workers=1))


@pytest.mark.usefixtures("small_parts")
def test_a_unit_is_never_cut_in_two() -> None:
    batch = make_batch(600, units=True)
    assert batch.unit is not None
    batch.unit[:] = 0
    assert batch.arm is not None
    batch.arm[:] = 1
    many = fold_batch(empty(), batch, workers=3)
    units = many[1].tallies[UNITS]
    assert isinstance(units, Scores)
    assert (units.n, units.clusters) == (600, 1)
    assert_same(many, fold_batch(empty(), batch, workers=1))


def test_a_unit_across_the_edge_of_a_block_is_one_cluster() -> None:
    batch = make_batch(60_000, units=True)
    assert batch.unit is not None
    batch.unit[:] = np.arange(60_000) // 7
    assert batch.arm is not None
    batch.arm[:] = batch.unit % 3
    for arm, tally in enumerate(fold_batch(empty(), batch, workers=1)):
        units = tally.tallies[UNITS]
        assert isinstance(units, Scores)
        assert units.clusters == len(np.unique(batch.unit[batch.arm == arm]))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("workers", [1, 2])
def test_the_arms_given_are_left_as_they_were(workers: int) -> None:
    given = fold_batch(empty(), make_batch(400), workers=1)
    before = [arm.state() for arm in given]
    fold_batch(given, make_batch(700, seed=3), workers=workers)
    assert [arm.state() for arm in given] == before


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("workers", [1, 3])
def test_a_fold_that_fails_halfway_fails_whole(workers: int) -> None:
    batch = make_batch(700)
    good = batch.assemble

    def fails_late(index: Index) -> Floats:
        last = index.stop if isinstance(index, slice) else index.max()
        if last > 600:
            raise ArithmeticError
        return good(index)

    batch.assemble = fails_late
    given = fold_batch(empty(), make_batch(100, seed=4), workers=1)
    before = [arm.state() for arm in given]
    with pytest.raises(ArithmeticError):
        fold_batch(given, batch, workers=workers)
    assert [arm.state() for arm in given] == before
