"""Sums by group: the laws of a tally, the digits that must survive, and the sums that pandas forms of kept rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from foldaway.errors import EstimateError, StateError
from foldaway.numerics.block import Block, Shape
from foldaway.tallies.sums import Sums, SumsShape, group_of
from laws import Grams, Rows, Subject, check_laws, rows

GROUPS = 8


@dataclass(frozen=True)
class Dealt:
    """Blocks of the laws' rows, dealt to arms and groups by what is in them; ỹ is y and the regressors' sum."""

    sums: Sums
    compiled: bool = False

    def fold(self, block: Block) -> Self:
        z, shape = block.rows, self.sums.shape
        dealt = np.abs(z.astype(np.float32).view(np.int32).astype(np.int64)).sum(axis=0)
        y = z[len(z) - shape.outcomes :].copy()
        if shape.missing:
            y[:, dealt % 5 == 0] = np.nan
        x = z[: len(z) - shape.outcomes].sum(axis=0)
        v = np.vstack([y, y - 0.5 * x]) if shape.adjusted else y
        weight = block.weight if shape.weighted else None
        folded = self.sums.fold(dealt % 2, v, dealt // 2 % GROUPS, weight, compiled=self.compiled)
        return type(self)(folded, self.compiled)

    def __add__(self, other: Self) -> Self:
        return type(self)(self.sums + other.sums, self.compiled)

    def state(self) -> Any:
        return self.sums.state()


def subject(compiled: bool, *, paired: bool = False, **kind: bool) -> Subject:
    def shape_of(shape: Shape) -> SumsShape:
        return SumsShape(2, shape.outcomes, GROUPS, **kind, pairs=((0, shape.outcomes - 1),) if paired else ())

    def counts(dealt: Dealt) -> tuple[int, ...]:
        sums = dealt.sums
        present = [] if sums.present is None else sums.present.ravel().tolist()
        return (sums.n, *map(int, [*sums.records.ravel().tolist(), *present]))

    def grams(dealt: Dealt, _: Any) -> Grams:
        """All sums of each column, about no level."""
        sums = dealt.sums
        found = [sums.totals(column) for column in range(sums.shape.columns)]
        found += [sums.square[:, [column]] for column in range(sums.shape.columns)]
        found += [sums.absolute, sums.mass]
        found += [sums.weights(o) for o in range(sums.shape.outcomes)]
        if sums.cross is not None:
            found += [np.vstack([sums.cross[:, [o]], sums.square[:, [o]]]) for o in range(sums.shape.outcomes)]
        if sums.joint is not None:
            size = np.sqrt(np.multiply(*(sums.square[:, sums.shape.block(o)].max(axis=1) for o in sums.shape.pairs[0])))
            found.append(np.column_stack([sums.joint.reshape(2, -1), size]))
        return found

    return Subject(
        " ".join(kind) or "plain",
        lambda shape: Dealt(Sums.empty(shape_of(shape)), compiled),
        lambda state, shape: Dealt(Sums.restore(state, shape_of(shape)), compiled),
        counts,
        grams,
        rounding=1e-11,
        framed=True,  # about a level of its own; there is no frame to change
    )


KINDS = [
    {},
    {"adjusted": True},
    {"adjusted": True, "weighted": True},
    {"weighted": True, "adjusted": True, "missing": True},
    {"paired": True},
    {"paired": True, "weighted": True, "adjusted": True, "missing": True},
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(kind) or "plain")
def test_the_laws_hold(kind: dict[str, bool], compiled: bool) -> None:
    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(rows(framed=True))
    def laws(drawn: Rows) -> None:
        check_laws(subject(compiled, **kind), drawn)

    laws()


# Against kept rows.


def kept(seed: int, n: int = 3000, *, compiled: bool = False) -> tuple[pd.DataFrame, Sums]:
    """Rows of two outcomes, of which some are missing, with ỹ and weights; and their sums, folded in pieces."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "arm": rng.integers(0, 3, n),
            "group": rng.integers(0, 16, n),
            "y0": rng.normal(size=n),
            "y1": np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(size=n)),
            "w": rng.uniform(0.2, 3, n),
        }
    )
    table["a0"] = table.y0 - 0.3 * rng.normal(size=n)
    table["a1"] = table.y1 - 0.3 * rng.normal(size=n)
    sums = Sums.empty(SumsShape(3, 2, 16, adjusted=True, weighted=True, missing=True))
    for start in range(0, n, 700):
        part = table.iloc[start : start + 700]
        values = part[["y0", "y1", "a0", "a1"]].to_numpy().T
        sums = sums.fold(part.arm.to_numpy(), values, part.group.to_numpy(), part.w.to_numpy(), compiled=compiled)
    return table, sums


@pytest.mark.parametrize("compiled", [False, True])
def test_they_are_the_sums_that_pandas_forms(compiled: bool) -> None:
    table, sums = kept(1, compiled=compiled)
    cells = table.groupby(["arm", "group"])
    np.testing.assert_array_equal(sums.records.ravel(), cells.size())
    for o, (y, a) in enumerate([("y0", "a0"), ("y1", "a1")]):
        np.testing.assert_array_equal(sums.counts(o).ravel(), cells[y].count())
        here = table[table[y].notna()]
        by_cell = here.groupby(["arm", "group"])
        np.testing.assert_allclose(sums.weights(o).ravel(), by_cell["w"].sum(), rtol=1e-12)
        for column, name in ((o, y), (2 + o, a)):
            expected = (here.w * here[name]).groupby([here.arm, here.group]).sum()
            np.testing.assert_allclose(sums.totals(column).ravel(), expected, rtol=1e-10, atol=1e-10)
        for arm in range(3):
            part = here[here.arm == arm]
            w2 = part.w**2
            cov = np.cov(part[[y, a]].to_numpy().T, aweights=w2.to_numpy(), ddof=0) * float(w2.sum())
            np.testing.assert_allclose(sums.square[arm, [o, 2 + o]], np.diag(cov), rtol=1e-11)
            assert sums.cross is not None
            assert sums.cross[arm, o] == pytest.approx(cov[0, 1], rel=1e-11)
            assert sums.mass[arm, o] == pytest.approx(w2.sum(), rel=1e-12)
            mean = np.average(part[y], weights=w2)
            assert sums.level[o] + sums.first[arm, o] / sums.mass[arm, o] == pytest.approx(mean, rel=1e-11)
            assert sums.absolute[arm, o] == pytest.approx((part.w * part[y].abs()).sum(), rel=1e-12)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_no_digits_are_lost_to_the_level(one_by_one: bool, compiled: bool) -> None:
    """An outcome of 10⁹ ± 1, against exact arithmetic; the first record comes alone.

    One by one, the first few records, of which no spread is known yet, are rounded to the digits of a sum of 10⁹.
    """
    rng = np.random.default_rng(2)
    n = 1500
    v = 1e9 + rng.normal(size=n)
    arm, group = rng.integers(0, 2, n), rng.integers(0, 4, n)
    sums = Sums.empty(SumsShape(2, 1, 4))
    for start, stop in [(i, i + 1) for i in range(n)] if one_by_one else [(0, 1), (1, n)]:
        sums = sums.fold(arm[start:stop], v[None, start:stop], group[start:stop], compiled=compiled)
    for a in range(2):
        exact = [Fraction(x) for x in v[arm == a]]
        mean = sum(exact) / len(exact)
        square = float(sum((x - mean) ** 2 for x in exact))
        assert sums.square[a, 0] == pytest.approx(square, rel=1e-9 if one_by_one else 1e-12)
        for g in range(4):
            off = sum(Fraction(x) - Fraction(sums.level[0]) for x in v[(arm == a) & (group == g)])
            assert sums.total[a, g, 0] == pytest.approx(float(off), abs=1e-5 * math.sqrt(n) if one_by_one else 1e-7)
    assert sums.level[0] % 64 == 0  # it says nothing about a single record


@pytest.mark.parametrize("compiled", [False, True])
def test_arms_far_apart_keep_their_spread(compiled: bool) -> None:
    rng = np.random.default_rng(3)
    arm = rng.integers(0, 2, 4000)
    v = np.where(arm == 1, 1e8, -1e8) + rng.normal(size=4000)
    sums = Sums.empty(SumsShape(2, 1, 1)).fold(arm, v[None], compiled=compiled)
    expected = [np.var(v[arm == a]) * np.sum(arm == a) for a in range(2)]
    np.testing.assert_allclose(sums.square[:, 0], expected, rtol=1e-8)


@pytest.mark.parametrize("compiled", [False, True])
def test_first_records_that_are_unlike_the_others_cost_no_digits(compiled: bool) -> None:
    """Few of them, so that the sums begin about a number far away from nearly all records."""
    rng = np.random.default_rng(5)
    v = 1e6 + rng.normal(size=20_000)
    v[:1500] = rng.normal(size=1500)
    arm = (np.arange(len(v)) >= 1500).astype(int)
    sums = Sums.empty(SumsShape(2, 1, 1)).fold(arm, v[None], compiled=compiled)
    expected = [np.var(v[arm == a]) * np.sum(arm == a) for a in range(2)]
    np.testing.assert_allclose(sums.square[:, 0], expected, rtol=1e-9)


def test_the_level_is_zero_for_ordinary_outcomes_and_says_nothing_of_one_record_among_others() -> None:
    rng = np.random.default_rng(4)
    for v in (rng.random(50) < 0.02, rng.lognormal(size=50), rng.normal(1000, 3, 50)):
        sums = Sums.empty(SumsShape(1, 1, 1)).fold(np.zeros(len(v), int), v[None].astype(float))
        assert sums.level[0] == 0
    # All that there is to say of records that are alike, and gone as soon as one differs.
    one = Sums.empty(SumsShape(1, 1, 1)).fold([0], [[7.25]])
    assert one.level[0] == 7.25
    assert one.fold([0, 0], [[7.0, 7.5]]).level[0] == 0
    assert one.fold([0], [[7.25 + 2**-16]]).level[0] % 2**-11 == 0


def test_the_first_records_of_an_outcome_far_from_zero_cost_no_digits() -> None:
    v = 1e11 + np.random.default_rng(6).normal(size=7)
    sums = Sums.empty(SumsShape(1, 1, 1))
    for value in v:
        sums = sums.fold([0], [[value]])
    np.testing.assert_allclose(sums.square[0, 0], np.sum((v - v.mean()) ** 2), rtol=1e-9)
    assert sums.level[0] + sums.total[0, 0, 0] / 7 == v.mean()


# Groups.


def test_groups_merge_by_adding_and_their_number_does_not_change_the_arms() -> None:
    hashes = np.random.default_rng(5).integers(0, 2**64, 3000, dtype=np.uint64)
    table, _ = kept(6)
    arm, y = table.arm.to_numpy(), table[["y0"]].to_numpy().T
    by_128 = Sums.empty(SumsShape(3, 1, 128)).fold(arm, y, group_of(hashes, 128))
    by_16 = Sums.empty(SumsShape(3, 1, 16)).fold(arm, y, group_of(hashes, 16))
    merged = by_128.regrouped(16)
    assert merged.shape == by_16.shape
    np.testing.assert_array_equal(merged.records, by_16.records)
    np.testing.assert_allclose(merged.total, by_16.total, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(by_128.regrouped(1).total[:, 0], by_128.total.sum(axis=1), rtol=1e-12)
    with pytest.raises(ValueError, match="power of two"):
        by_16.regrouped(128)


@pytest.mark.parametrize("groups", [0, 3, 100])
def test_the_number_of_groups_is_a_power_of_two(groups: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Sums.empty(SumsShape(2, 1, groups))


def test_sums_of_other_shapes_are_not_added() -> None:
    with pytest.raises(EstimateError, match="merge groups first"):
        Sums.empty(SumsShape(2, 1, 16)) + Sums.empty(SumsShape(2, 1, 128))


def test_what_states_with_other_coefficients_share_is_their_outcomes() -> None:
    table, sums = kept(7)
    values = table[["y0", "y1"]].to_numpy().T
    plain = Sums.empty(SumsShape(3, 2, 16, weighted=True, missing=True))
    plain = plain.fold(table.arm.to_numpy(), values, table.group.to_numpy(), table.w.to_numpy())
    unadjusted = sums.unadjusted()
    assert unadjusted.shape == plain.shape
    np.testing.assert_allclose(unadjusted.total, plain.total, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(unadjusted.square, plain.square, rtol=1e-11)
    assert unadjusted.cross is None


# States.


def test_a_state_of_128_groups_with_adjustment_is_under_eight_kilobytes() -> None:
    state = Sums.empty(SumsShape(2, 1, 128, adjusted=True)).state()
    assert len(msgspec.msgpack.encode(state)) < 7000


@pytest.mark.parametrize("field", ["records", "present", "square", "mass"])
def test_a_state_that_cannot_be_is_refused(field: str) -> None:
    _, sums = kept(8)
    getattr(sums, field)[..., 0] = -1
    with pytest.raises(StateError, match="damaged"):
        Sums.restore(sums.state(), sums.shape)


def test_a_state_of_another_shape_is_refused() -> None:
    _, sums = kept(9)
    for other in ({"missing": False}, {"groups": 32}, {"adjusted": False}, {"weighted": False}, {"outcomes": 1}):
        with pytest.raises(StateError, match="does not fit"):
            Sums.restore(sums.state(), sums.shape._replace(**other))


def test_records_of_another_shape_are_refused() -> None:
    sums = Sums.empty(SumsShape(2, 1, 4))
    for records in ({"columns": np.ones((2, 3))}, {"columns": np.ones((1, 3)), "weight": np.ones(3)}):
        with pytest.raises(ValueError, match="shape"):
            sums.fold(np.zeros(3, int), group=np.zeros(3, int), **records)
