"""Moments by group: the laws of a tally, and the products that NumPy forms of kept rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given, settings

from foldaway.errors import EstimateError, StateError
from foldaway.numerics.block import Block, Shape
from foldaway.tallies.group_moments import GroupMoments, MomentsShape
from laws import Grams, Rows, Subject, check_laws, rows

GROUPS = 4


@dataclass(frozen=True)
class Dealt:
    """Blocks of the laws' rows, dealt to arms and groups by what is in them."""

    moments: GroupMoments
    compiled: bool = False

    def fold(self, block: Block) -> Self:
        dealt = np.abs(block.rows.astype(np.float32).view(np.int32).astype(np.int64)).sum(axis=0)
        moments = self.moments.fold(dealt % 2, block.rows, dealt // 2 % GROUPS, block.weight, compiled=self.compiled)
        return type(self)(moments, self.compiled)

    def __add__(self, other: Self) -> Self:
        return type(self)(self.moments + other.moments, self.compiled)

    def state(self) -> Any:
        return self.moments.state()


def shape_of(shape: Shape) -> MomentsShape:
    return MomentsShape(2, GROUPS, shape, weighted=True)


def grams(dealt: Dealt, other: Dealt) -> Grams:
    """In the frame that the other's records make."""
    moments = dealt.moments.rebase(other.moments.frame)
    assert moments.squared is not None
    return [
        *moments.moments.reshape(-1, *moments.moments.shape[2:]),
        moments.squared.sum(axis=(0, 1)),
        moments.absolute,
    ]


def subject(compiled: bool) -> Subject:
    return Subject(
        "moments by group",
        lambda shape: Dealt(GroupMoments.empty(shape_of(shape)), compiled),
        lambda state, shape: Dealt(GroupMoments.restore(state, shape_of(shape)), compiled),
        lambda dealt: tuple(dealt.moments.records.astype(int).ravel().tolist()),
        grams,
        rounding=1e-9,
        framed=True,
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_the_laws_hold(compiled: bool) -> None:
    @settings(max_examples=10, deadline=None, derandomize=True)
    @given(rows(framed=True))
    def laws(drawn: Rows) -> None:
        check_laws(subject(compiled), drawn)

    laws()


@pytest.mark.parametrize("compiled", [False, True])
def test_they_are_the_products_of_the_rows(compiled: bool) -> None:
    rng = np.random.default_rng(1)
    n, shape = 5000, MomentsShape(3, 8, Shape(3, 2), weighted=True)
    z = np.vstack([np.ones(n), rng.normal(3, 2, n), rng.lognormal(size=n), rng.normal(size=(2, n))])
    arm, group, w = rng.integers(0, 3, n), rng.integers(0, 8, n), rng.uniform(0.2, 2, n)
    moments = GroupMoments.empty(shape)
    for start, stop in ((0, 3), (3, 40), (40, 3000), (3000, n)):
        part = slice(start, stop)
        moments = moments.fold(arm[part], z[:, part], group[part], w[part], compiled=compiled)
    raw = moments.frame.F.T @ moments.moments @ moments.frame.F
    for a in range(3):
        for g in range(8):
            here = (arm == a) & (group == g)
            np.testing.assert_allclose(raw[a, g], (z[:, here] * w[here]) @ z[:, here].T, rtol=1e-11, atol=1e-10)
    assert moments.squared is not None
    squared = moments.frame.F.T @ moments.squared.sum(axis=(0, 1)) @ moments.frame.F
    np.testing.assert_allclose(squared, (z * w**2) @ z.T, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(moments.absolute[1], np.abs(z[3:] * w)[:, arm == 1].sum(axis=1), rtol=1e-12)


def test_other_shapes_are_refused() -> None:
    moments = GroupMoments.empty(MomentsShape(2, 4, Shape(2, 1)))
    with pytest.raises(ValueError, match="shape"):
        moments.fold(np.zeros(3, int), np.ones((2, 3)))
    with pytest.raises(EstimateError, match="can be added"):
        moments + GroupMoments.empty(MomentsShape(2, 8, Shape(2, 1)))
    with pytest.raises(StateError, match="does not fit"):
        GroupMoments.restore(moments.state(), MomentsShape(2, 4, Shape(2, 1), weighted=True))
    with pytest.raises(StateError, match="wrong shape"):
        GroupMoments.restore(moments.state(), MomentsShape(2, 8, Shape(2, 1)))


@pytest.mark.parametrize("damage", ["records", "frame"])
def test_a_state_that_cannot_be_is_refused(damage: str) -> None:
    moments = GroupMoments.empty(MomentsShape(1, 4, Shape(2, 1)))
    if damage == "records":
        moments.records[0, 1] = 0.5
    else:
        moments.frame.F[2, 0] = 1
    with pytest.raises(StateError, match="damaged"):
        GroupMoments.restore(moments.state(), moments.shape)
