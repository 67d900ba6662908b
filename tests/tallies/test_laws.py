"""Every tally obeys the laws of a tally; so do the trial and the regression made of them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Self, get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldaway as fa
from foldaway.federated.messages import Model
from foldaway.federated.replies.models import ReplySegment, segments
from foldaway.federated.replies.tally import Replies
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.plan import Bootstrap
from foldaway.plan.parts import Weights
from foldaway.records.faults import Fault, Faults
from foldaway.tallies.histogram import Histogram, HistogramShape
from foldaway.tallies.moments.arm import ArmTally, Kinds
from foldaway.tallies.moments.factor import Factor
from foldaway.tallies.moments.frame import Frame
from foldaway.tallies.moments.kinds import KINDS as TALLIES
from foldaway.tallies.moments.kinds import RECORDS, REPLICATES, UNITS, kinds_of
from foldaway.tallies.moments.replicates import Replicates
from foldaway.tallies.moments.scores import Scores, UnitScores
from foldaway.tallies.moments.tally import Kind
from laws import Grams, Rows, Subject, check_addition, check_identity, check_laws, rows
from plans import replaced
from trials import folded, make_trial, trials

KINDS: Kinds = {RECORDS: Scores.empty, UNITS: UnitScores.empty}


def factor_grams(factor: Factor, _: Any) -> Grams:
    return [factor.R.T @ factor.R]  # R itself is unique only up to the signs of its rows


def score_grams(scores: Scores, _: Any) -> Grams:
    """Σ g g' for g = (v, s), outcome by outcome."""
    k, outcomes = scores.shape
    m = k * (k + 1) // 2
    vv, rest = scores.sums[: m * m].reshape(m, m), scores.sums[m * m :]
    vs = rest[: outcomes * m * k].reshape(outcomes, m, k)
    ss = rest[outcomes * m * k :].reshape(outcomes, k, k)
    return [np.block([[vv, vs[o]], [vs[o].T, ss[o]]]) for o in range(outcomes)]


def arm_grams(arm: ArmTally, other: ArmTally) -> Grams:
    """All tallies of the arm, in the frame that the other's records make."""
    frame = Frame.of(other.raw_factor(), other.shape, max(other.n, 1))
    arm = arm.rebase(frame)
    grams = factor_grams(arm.factor, None)
    for tally in arm.tallies.values():
        grams += score_grams(tally, None) if isinstance(tally, Scores) else replicate_sums(tally, None)
    return grams


def replicate_sums(replicates: Any, _: Any) -> Grams:
    return [replicates.totals]


def arm_counts(arm: ArmTally) -> tuple[int, ...]:
    return (arm.n, *(n for tally in arm.tallies.values() for n in (tally.n, getattr(tally, "clusters", 0))))


def score_counts(scores: Scores) -> tuple[int, ...]:
    return scores.n, scores.clusters


def reply_parts(shape: Shape) -> list[ReplySegment]:
    """As many numbers in a reply as a row of this shape has columns: a regression, and a mean for each outcome."""
    means = [Model("difference", outcome, 1, False, []) for outcome in range(shape.outcomes)]
    return segments([Model("regression", 0, shape.regressors, False, []), *means])


def reply_grams(replies: Replies, _: Any) -> Grams:
    """Σ u u' of every part, bordered by Σ u."""
    grams = []
    for part in replies.segments:
        sums = replies.sums[part.place]
        grams.append(np.block([[np.array([[replies.n]]), sums[None, :]], [sums[:, None], replies.product(part)]]))
    return grams


def restoring(kind: Kind) -> Callable[[Any, Shape], Any]:
    return lambda state, shape: kind(shape).restored(state)


FACTOR = Subject("factor", Factor.empty, restoring(Factor.empty), lambda factor: (factor.n,), factor_grams)
SCORES = Subject("scores", Scores.empty, restoring(Scores.empty), score_counts, score_grams)
UNIT_SCORES = Subject(
    "unit scores", UnitScores.empty, restoring(UnitScores.empty), score_counts, score_grams, units=True
)
ARM = Subject(
    "arm",
    functools.partial(ArmTally.empty, kinds=KINDS),
    functools.partial(ArmTally.restore, kinds=KINDS),
    arm_counts,
    arm_grams,
    rounding=1e-10,
    framed=True,
    units=True,
)
REPLIES = Subject(
    "replies",
    lambda shape: Replies.empty(reply_parts(shape)),
    lambda state, shape: Replies.restore(state, reply_parts(shape)),
    lambda replies: (replies.n,),
    reply_grams,
    rebased=False,
)


@dataclass(frozen=True)
class Counted:
    """Blocks of the laws' rows in a histogram, dealt to arms and bins by what is in them, to groups by their keys."""

    histogram: Histogram
    compiled: bool

    def fold(self, block: Block) -> Self:
        dealt = np.abs(block.rows.astype(np.float32).view(np.int32).astype(np.int64)).sum(axis=0)
        weight = block.weight if self.histogram.shape.weighted else None
        bins = (dealt // 2 % 6 - 1).astype(np.int16)
        folded = self.histogram.fold(dealt % 2, bins, block.key, weight, compiled=self.compiled)
        return type(self)(folded, self.compiled)

    def __add__(self, other: Self) -> Self:
        return type(self)(self.histogram + other.histogram, self.compiled)

    def state(self) -> Any:
        return self.histogram.state()


def histograms(groups: int, weighted: bool, compiled: bool) -> Subject:
    shape = HistogramShape(2, groups, 5, weighted)

    def counts(counted: Counted) -> tuple[int, ...]:
        return () if weighted else tuple(counted.histogram.counts.astype(int).ravel().tolist())

    def sums(counted: Counted, _: Any) -> Grams:
        squares = counted.histogram.squares
        return [counted.histogram.counts, *([] if squares is None else [squares])]

    return Subject(
        f"{'weighted ' * weighted}histogram of {groups} groups{' in compiled loops' * compiled}",
        lambda _: Counted(Histogram.empty(shape), compiled),
        lambda state, _: Counted(Histogram.restore(state, shape), compiled),
        counts,
        sums,
        framed=True,  # only its scale is one: there is no frame to change
    )


HISTOGRAMS = [histograms(*kind) for kind in product((1, 4), (False, True), (False, True))]

RESAMPLED: Kinds = {**KINDS, REPLICATES: functools.partial(Replicates.empty, Bootstrap(9))}
RESAMPLED_ARM = replace(
    ARM,
    name="arm with replicates",
    empty=functools.partial(ArmTally.empty, kinds=RESAMPLED),
    restore=functools.partial(ArmTally.restore, kinds=RESAMPLED),
)


def replicates(bootstrap: Bootstrap) -> Subject:
    kind = functools.partial(Replicates.empty, bootstrap)
    name = f"{bootstrap.replicates} {bootstrap.weights} replicates"
    counts = operator.attrgetter("n")
    return Subject(name, kind, restoring(kind), counts, replicate_sums, scale=np.abs)


BOOTSTRAPS = [Bootstrap(count, kind) for kind in get_args(Weights) for count in (2, 5, 70)]

# The list to add a new tally to.
SUBJECTS = [FACTOR, SCORES, UNIT_SCORES, *map(replicates, BOOTSTRAPS), ARM, RESAMPLED_ARM, REPLIES, *HISTOGRAMS]


def test_every_tally_that_a_plan_may_keep_is_in_the_list() -> None:
    plan, _ = make_trial(0, units=True)
    kinds = kinds_of(replaced(plan, bootstrap=5))
    assert kinds.keys() == TALLIES.keys() == RESAMPLED.keys()
    listed = {type(subject.empty(Shape(1, 1))) for subject in SUBJECTS}
    assert {type(kind(Shape(1, 1))) for kind in kinds.values()} <= listed


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_laws_hold(subject: Subject) -> None:
    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(rows(units=subject.units, framed=subject.framed))
    def laws(drawn: Rows) -> None:
        check_laws(subject, drawn)

    laws()


@pytest.mark.parametrize("subject", [FACTOR, SCORES, ARM], ids=lambda subject: subject.name)
def test_a_stream_of_single_records_is_one_block(subject: Subject) -> None:
    rng = np.random.default_rng(11)
    shape = Shape(3, 2)
    values = rng.normal(np.array([[0.0], [3.0], [-2.0], [100.0], [0.0]]), 1, (5, 700))
    values[0] = 1
    stream = subject.empty(shape)
    for i in range(700):
        stream = stream.fold(Block(values[:, i : i + 1].copy()))
    whole = subject.empty(shape).fold(Block(values))
    assert subject.counts(stream)[0] == subject.counts(whole)[0] == 700
    for a, b in zip(subject.grams(stream, whole), subject.grams(whole, whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * np.abs(b).max())


def test_a_block_without_units_is_passed_over_by_the_tally_of_units() -> None:
    tally = UnitScores.empty(Shape(1, 1)).fold(Block(np.ones((2, 4))))
    assert score_counts(tally) == (0, 0)
    assert not tally.sums.any()


# Counts of faults: no rows and no frame, but the same algebra, and exactly.

names = st.sampled_from(["", "a", "b"])
fault = st.builds(Fault, names, st.sampled_from(["x", "y"]), st.sampled_from(["null", "NaN"]), st.integers(1, 9))
faults = st.builds(Faults, st.dictionaries(names, st.integers(1, 9)).map(dict.items), st.lists(fault, max_size=6))


def exactly(one: Any, other: Any) -> None:
    assert one == other


@settings(deadline=None, derandomize=True)
@given(st.lists(faults, min_size=3, max_size=4))
def test_faults_add_up(drawn: list[Faults]) -> None:
    check_identity(Faults(), drawn[0], exactly)
    check_addition(drawn, exactly)
    total = functools.reduce(lambda a, b: a + b, drawn)
    assert total.total == sum(one.total for one in drawn)
    assert sum(f.records for f in total) == sum(f.records for one in drawn for f in one)
    assert Faults(total.records.items(), list(total)) == total


# The trial.


def near(ours: float | None, theirs: float | None, scale: float | None = None) -> bool:
    """To 1e-9 of themselves or of a scale; a number that cannot be told is told by neither."""
    if ours is None or theirs is None:
        return ours is theirs
    return ours == pytest.approx(theirs, rel=1e-9, abs=1e-9 * (scale or 0.0))


def same_effects(one: fa.Trial, other: fa.Trial) -> None:
    """The same rows, notes and counts; numbers to 1e-9 of themselves or of their error."""
    assert one.counts == other.counts
    assert one.dropped == other.dropped
    first, second = one.effects(), other.effects()
    assert first.notes == second.notes
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert (a.outcome, a.arm, a.estimator, a.se_kind, a.n_arm) == (
            b.outcome,
            b.arm,
            b.estimator,
            b.se_kind,
            b.n_arm,
        )
        assert a.why == b.why
        assert near(a.std_error, b.std_error)
        assert near(a.estimate, b.estimate, b.std_error)
        assert near(a.df, b.df)
        assert near(a.relative, b.relative, b.relative_std_error)
        assert near(a.relative_std_error, b.relative_std_error)
        assert near(a.anytime_ci_upper, b.anytime_ci_upper, b.std_error)


def shards_of(plan: fa.Plan, table: pd.DataFrame, count: int, seed: int) -> list[pd.DataFrame]:
    """The records dealt out at random, units whole."""
    key = pd.factorize(table[plan.unit])[0] if plan.whole_units else np.arange(len(table))
    dealt = np.random.default_rng(seed).integers(0, count, key.max() + 1)[key]
    return [table[dealt == shard] for shard in range(count)]


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@settings(max_examples=8, deadline=None, derandomize=True)
@given(trials(), st.integers(1, 6), st.integers(0, 2**16))
def test_no_batching_or_sharding_changes_a_trial(drawn: tuple[fa.Plan, pd.DataFrame], count: int, seed: int) -> None:
    plan, table = drawn
    whole = folded(plan, table)
    parts = shards_of(plan, table, count, seed)
    batches = fa.Trial(plan)
    for part in parts:
        batches.fold(part)
    same_effects(batches, whole)
    shards = [folded(plan, part) for part in parts]
    same_effects(functools.reduce(lambda a, b: a + b, shards), whole)
    same_effects(functools.reduce(lambda a, b: b.merge(a), shards), whole)


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@settings(max_examples=5, deadline=None, derandomize=True)
@given(trials(), st.integers(0, 2**16))
def test_trials_add_up(drawn: tuple[fa.Plan, pd.DataFrame], seed: int) -> None:
    plan, table = drawn
    shards = [folded(plan, part) for part in shards_of(plan, table, 3, seed)]
    check_identity(fa.Trial(plan), shards[0], same_effects)
    check_addition(shards, same_effects)


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@settings(max_examples=3, deadline=None, derandomize=True)
@given(trials(units=False, n=350))
def test_one_record_at_a_time_is_the_same_trial(drawn: tuple[fa.Plan, pd.DataFrame]) -> None:
    plan, table = drawn
    single = fa.Trial(plan)
    for record in table.to_dict("records"):
        single.fold([record])
    same_effects(single, folded(plan, table))


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_single_records_of_a_long_stream_are_the_same_trial() -> None:
    plan, table = make_trial(21, n=800, covariates=2, outcomes=2)
    single = fa.Trial(plan)
    for record in table.to_dict("records"):
        single.fold([record])
    assert min(single.counts.values()) > 200
    same_effects(single, folded(plan, table))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(trials(), st.integers(0, 2**16))
def test_a_trial_comes_back_bit_for_bit_and_goes_on_so(drawn: tuple[fa.Plan, pd.DataFrame], seed: int) -> None:
    plan, table = drawn
    first, second = shards_of(plan, table, 2, seed)
    trial = folded(plan, first)
    trial.fix()
    back = fa.Trial.loads(trial.dumps(), plan)
    assert back.dumps() == trial.dumps()
    back.fold(second)
    trial.fold(second)
    assert back.dumps() == trial.dumps()


def test_folding_and_merging_leave_other_trials_as_they_were() -> None:
    plan, table = make_trial(22, n=200)
    one, two = folded(plan, table[:100]), folded(plan, table[100:])
    before = one.dumps(), two.dumps(), table.copy()
    merged = one + two
    merged.fold(table)
    assert (one.dumps(), two.dumps()) == before[:2]
    pd.testing.assert_frame_equal(table, before[2])


# The regression.


def regression_rows(seed: int, n: int, k: int, shift: float) -> tuple[Floats, Floats, Floats, Any]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), shift + rng.normal(size=(n, k - 1))])
    y = shift + X @ rng.normal(size=k) + rng.normal(size=n) * (1 + np.abs(X[:, -1] - shift))
    return X, y, rng.uniform(0.2, 3, n), np.sort(rng.integers(0, n // 3, n))


def same_regression(one: fa.LeastSquares, other: fa.LeastSquares) -> None:
    assert one.n == other.n
    if one.n == 0:
        return
    np.testing.assert_allclose(one.rss, other.rss, rtol=1e-9)
    errors = other.std_error()
    assert np.all(np.abs(one.coef - other.coef) <= 1e-9 * np.maximum(np.abs(other.coef), errors))
    for kind in ("classical", "HC1", "CR1"):
        np.testing.assert_allclose(one.std_error(kind), other.std_error(kind), rtol=1e-9)


def regression_of(columns: int, *parts: Any) -> fa.LeastSquares:
    fit = fa.LeastSquares([f"x{c}" for c in range(columns)])
    for X, y, w, cluster in parts:
        fit.fold(X, y, weight=w, cluster=cluster)
    return fit


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(90, 250), st.integers(1, 5), st.sampled_from([0.0, 50.0, -1e3]))
def test_regressions_add_up_whatever_the_batches(seed: int, n: int, k: int, shift: float) -> None:
    X, y, w, cluster = regression_rows(seed, n, k, shift)
    cuts = [int(np.searchsorted(cluster, cluster[place])) for place in (n // 3, 2 * n // 3)]
    parts = [(X[a:b], y[a:b], w[a:b], cluster[a:b]) for a, b in pairwise([0, *cuts, n])]
    whole = regression_of(k, (X, y, w, cluster))
    same_regression(regression_of(k, *parts), whole)
    same_regression(regression_of(k, *parts[::-1]), whole)
    shards = [regression_of(k, part) for part in parts]
    same_regression(shards[2] + shards[0] + shards[1], whole)
    check_identity(regression_of(k), shards[0], same_regression)
    check_addition(shards, same_regression)


@pytest.mark.parametrize("order", [lambda rows: rows, lambda rows: rows[::-1]], ids=["forth", "back"])
def test_one_row_at_a_time_is_all_at_once(order: Callable[[Any], Any]) -> None:
    X, y, w, _ = regression_rows(5, 600, 4, 20.0)
    plain, weighted, single, single_weighted = (fa.LeastSquares(list("abcd")) for _ in range(4))
    plain.fold(X, y)
    weighted.fold(X, y, weight=w)
    for i in order(range(len(y))):
        single.fold(X[i], y[i])
        single_weighted.fold(X[i], y[i], weight=w[i])
    for one, other in ((single, plain), (single_weighted, weighted)):
        np.testing.assert_allclose(one.coef, other.coef, rtol=1e-10)
        for kind in ("classical", "HC0", "HC1"):
            np.testing.assert_allclose(one.covariance(kind), other.covariance(kind), rtol=1e-9, atol=1e-16)
