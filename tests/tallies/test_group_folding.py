"""However many workers fold a batch, compiled or not, sums and moments by group are those of NumPy's fold in one go."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import foldaway.records.batch
from foldaway.numerics.block import Floats, Shape
from foldaway.numerics.threads import CORES
from foldaway.records.batch import Batch, Index
from foldaway.tallies import group_folding
from foldaway.tallies.group_folding import fold_group_moments, fold_sums
from foldaway.tallies.group_moments import GroupMoments, MomentsShape
from foldaway.tallies.predictor import Predictor
from foldaway.tallies.sums import Sums, SumsShape, group_of

ROW = Shape(4, 2)
ARMS, GROUPS = 3, 8
PREDICTOR = Predictor(np.array([5.0, -2.0, 100.0]), np.array([[1.0, 0.5, -0.1], [0.0, 2.0, 1.0]]))


def make_batch(n: int, *, weighted: bool = False, keyed: bool = True, seed: int = 1) -> tuple[Batch, Floats]:
    """A batch, and its rows."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(ROW.columns, n)) * [[1], [3], [0.1], [10], [1], [4]] + [[0], [5], [-2], [100], [1e7], [0]]
    rows[0] = 1

    def assemble(index: Index) -> Floats:
        return np.ascontiguousarray(rows[:, index])

    arm = rng.integers(0, ARMS, n).astype(np.int8)
    weight = rng.uniform(0.5, 2, n) if weighted else None
    key = rng.integers(0, 2**64, n, dtype=np.uint64) if keyed else None
    return Batch(n, assemble, ARMS, arm, weight, key=key), rows


def groups_in(batch: Batch) -> np.ndarray | None:
    return None if batch.key is None else group_of(batch.key, GROUPS)


def assert_same_sums(one: Sums, other: Sums) -> None:
    np.testing.assert_array_equal(one.records, other.records)
    one = one._about(other.level)  # which depends on the records that came first
    for name in ("weight", "total", "mass", "first", "square", "cross", "absolute"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())


def assert_same_moments(one: GroupMoments, other: GroupMoments) -> None:
    np.testing.assert_array_equal(one.records, other.records)
    moved = one.rebase(other.frame)
    np.testing.assert_allclose(moved.moments, other.moments, rtol=0, atol=1e-10 * np.abs(other.moments).max())
    np.testing.assert_allclose(moved.absolute, other.absolute, rtol=1e-12)
    if other.squared is not None and moved.squared is not None:
        np.testing.assert_allclose(moved.squared, other.squared, rtol=0, atol=1e-10 * np.abs(other.squared).max())


@pytest.fixture
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES, str(request.param))


@pytest.fixture(params=[1, 10**9], ids=["compiled", "plain"])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers start for a few records already, and stretches and pieces end after a few."""
    for name, records in {"_STRETCH": 300, "_PIECE": 70, "STEP": 90}.items():
        monkeypatch.setattr(group_folding, name, records)
    monkeypatch.setattr(foldaway.records.batch, "WORTH_A_WORKER", 50)
    monkeypatch.setattr(foldaway.records.batch, "WORTH_COMPILING", request.param)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("workers", [1, 2, 3], indirect=True)
@pytest.mark.parametrize(("weighted", "keyed", "adjusted"), [*product([False, True], repeat=3)])
def test_sums_are_those_of_numpy_in_one_go(workers: None, weighted: bool, keyed: bool, adjusted: bool) -> None:
    ours = theirs = Sums.empty(SumsShape(ARMS, ROW.outcomes, GROUPS, adjusted=adjusted, weighted=weighted))
    center, slopes, _ = PREDICTOR
    for seed, n in ((1, 1000), (2, 1), (3, 400)):
        batch, rows = make_batch(n, weighted=weighted, keyed=keyed, seed=seed)
        assert batch.arm is not None
        ours = fold_sums(ours, batch, PREDICTOR if adjusted else None)
        x, y = rows[1 : ROW.regressors], rows[ROW.regressors :]
        values = np.vstack([y, y - slopes @ (x - center[:, None])]) if adjusted else y
        theirs = theirs.fold(batch.arm, values, groups_in(batch), batch.weight)
    assert_same_sums(ours, theirs)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("workers", [1, 2, 3], indirect=True)
@pytest.mark.parametrize(("weighted", "keyed"), [*product([False, True], repeat=2)])
def test_moments_are_those_of_numpy_in_one_go(workers: None, weighted: bool, keyed: bool) -> None:
    ours = theirs = GroupMoments.empty(MomentsShape(ARMS, GROUPS, ROW, weighted=weighted))
    for seed, n in ((1, 1000), (2, 1), (3, 400)):
        batch, rows = make_batch(n, weighted=weighted, keyed=keyed, seed=seed)
        assert batch.arm is not None
        ours = fold_group_moments(ours, batch)
        theirs = theirs.fold(batch.arm, rows, groups_in(batch), batch.weight)
    assert_same_moments(ours, theirs)


@pytest.mark.parametrize("workers", [3], indirect=True)
def test_a_batch_that_is_worth_its_workers_and_compiling(workers: None) -> None:
    batch, rows = make_batch(130_000)
    assert batch.arm is not None
    sums = Sums.empty(SumsShape(ARMS, ROW.outcomes, GROUPS))
    moments = GroupMoments.empty(MomentsShape(ARMS, GROUPS, ROW))
    assert_same_sums(fold_sums(sums, batch), sums.fold(batch.arm, rows[ROW.regressors :], groups_in(batch)))
    folded = moments.fold(batch.arm, rows, groups_in(batch))
    assert_same_moments(fold_group_moments(moments, batch), folded)


def test_one_arm_and_no_records() -> None:
    batch, rows = make_batch(20)
    batch.arm = np.zeros(20, dtype=np.int8)
    empty = Sums.empty(SumsShape(1, ROW.outcomes, GROUPS))
    plain = empty.fold(np.zeros(20, dtype=int), rows[ROW.regressors :], groups_in(batch))
    assert_same_sums(fold_sums(empty, batch), plain)
    assert fold_sums(plain, make_batch(0)[0]) is plain


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("workers", [1, 3], indirect=True)
def test_a_fold_that_fails_halfway_leaves_the_tally_as_it_was(workers: None) -> None:
    batch, _ = make_batch(700)
    good = batch.assemble

    def fails_late(index: Index) -> Floats:
        assert isinstance(index, slice)
        if index.stop > 600:
            raise ArithmeticError
        return good(index)

    batch.assemble = fails_late
    sums = fold_sums(Sums.empty(SumsShape(ARMS, ROW.outcomes, GROUPS)), make_batch(100, seed=4)[0])
    before = sums.state()
    with pytest.raises(ArithmeticError):
        fold_sums(sums, batch)
    assert sums.state() == before


@pytest.mark.parametrize("adjusted", [False, True])
def test_a_predictor_belongs_to_adjusted_sums_only(adjusted: bool) -> None:
    sums = Sums.empty(SumsShape(ARMS, ROW.outcomes, GROUPS, adjusted=adjusted))
    with pytest.raises(ValueError, match="predictor"):
        fold_sums(sums, make_batch(5)[0], None if adjusted else PREDICTOR)
