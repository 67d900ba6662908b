"""The identities of docs/method.md hold, in numbers and in the code that stands for them."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from numpy.testing import assert_allclose as assert_close
from numpy.typing import NDArray

import foldaway as fa
from foldaway.inference.adjusting import fit_start
from foldaway.inference.group_regression import regression_welch, spent_by_slopes
from foldaway.inference.jackknife import Cells, adjusted_mean, cells_of, jackknife, mean
from foldaway.inference.levels import difference_of
from foldaway.inference.unequal_arms import contrast_rate
from foldaway.inference.welch import spread_of
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.paper import delta_variance
from foldaway.tallies.group_moments import GroupMoments, MomentsShape
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.arms import Arms
from foldaway.tallies.moments.frame import Frame
from foldaway.tallies.moments.scores import Scores, UnitScores
from foldaway.tallies.moments.vech import lift, lift_map, pairs
from foldaway.tallies.predictor import lean

rng = np.random.default_rng(1)
k, n = 3, 600
x = np.column_stack([np.ones(n), rng.normal(1e3, 2, n), rng.normal(size=n)])
y = x @ [5.0, 0.1, 1.0] + rng.normal(size=n)
z = np.column_stack([x, y])
unit = np.arange(n) // 4
shape = Shape(k, 1)
beta = np.asarray(np.linalg.lstsq(x, y, rcond=None)[0], np.float64)


def qr(rows: Floats) -> Floats:
    return np.asarray(np.linalg.qr(rows).R, np.float64)


def g_of(rows: Floats, units: NDArray[np.int_]) -> Floats:
    i, j = pairs(k)
    each = np.column_stack([rows[:, i] * rows[:, j], rows[:, :k] * rows[:, k:]])
    return np.array([each[units == u].sum(axis=0) for u in np.unique(units)])


def block(rows: Floats, units: NDArray[np.int_] | None = None) -> Block:
    return Block(np.ascontiguousarray(rows.T), unit=units)


def scores(arm: ArmTally) -> Scores | UnitScores:
    [kept] = arm.tallies.values()
    assert isinstance(kept, Scores | UnitScores)
    return kept


def test_cross_fitted_sums_give_the_regression_and_residuals_of_later_records() -> None:
    d, group = unit % 2, unit % 8
    moments = GroupMoments.empty(MomentsShape(2, 8, shape)).fold(d, z.T, group)
    start = fit_start(moments)
    sums = lean(moments, start.predictor)
    lam = contrast_rate(spread_of(sums, 0)).beta
    assert_close(lam, 1, atol=1e-9)
    found = difference_of(jackknife(lambda cells: adjusted_mean(cells, lam), cells_of(sums, 0)), 1)
    design = np.column_stack([x, d])
    pooled, rss = np.linalg.lstsq(design, y, rcond=None)[:2]
    assert_close(found.estimate, pooled[3], rtol=1e-8)
    crossed = lean(moments, start.predictor, start.without)
    assert spread_of(crossed, 0).products[:, 1, 1].sum() > spread_of(sums, 0).products[:, 1, 1].sum()
    assert_close(spread_of(sums, 0).products[:, 1, 1].sum(), rss[0], rtol=1e-8)
    ours = difference_of(regression_welch(moments.reframed(), 0), 1)
    residual = y - design @ pooled
    sizes = np.array([(d == a).sum() for a in (0, 1)])
    spent = (sizes - 1) / (sizes - 1 - 2 * spent_by_slopes(moments.reframed()))
    assert_close(ours.variance, sum(spent[a] * residual[d == a].var(ddof=1) / sizes[a] for a in (0, 1)), rtol=1e-6)


def test_the_jackknife_expects_the_clustered_variance_and_the_arms_share_its_degrees_of_freedom() -> None:
    chance = np.random.default_rng(2)
    psi, G, dealings = chance.normal(size=40) ** 3, 16, 40_000
    dealt = chance.integers(0, G, (dealings, 40))
    Psi = np.stack([np.where(dealt == each, psi, 0).sum(axis=1) for each in range(G)])
    V = G / (G - 1) * ((Psi - Psi.mean(axis=0)) ** 2).sum(axis=0)
    assert abs(V.mean() / (psi**2).sum() - 1) < 5 * V.std() / V.mean() / dealings**0.5
    alike = difference_of(jackknife(mean, Cells(np.full((G, 2), 5.0), chance.normal(size=(G, 2)))), 1)
    assert_close(alike.df, G - 1)


def test_a_factor_of_factors_is_that_of_all_rows() -> None:
    R = qr(np.vstack([qr(z[:200]), z[200:]]))
    assert_close(R.T @ R, z.T @ z, rtol=1e-12)
    assert_close(np.linalg.solve(R[:k, :k], R[:k, k]), beta, rtol=1e-8)
    assert_close(R[k, k] ** 2, np.sum((y - x @ beta) ** 2), rtol=1e-8)


@pytest.mark.parametrize(("units", "tally"), [(np.arange(n), Scores), (unit, UnitScores)], ids=["HC0", "CR0"])
def test_the_meat_at_any_coefficients_comes_from_sums(
    units: NDArray[np.int_], tally: type[Scores] | type[UnitScores]
) -> None:
    e, g = y - x @ beta, g_of(z, units)
    u = np.array([x[units == each].T @ e[units == each] for each in np.unique(units)])
    T = np.hstack([-lift(np.eye(k), beta), np.eye(k)])
    assert_close(T @ (g.T @ g) @ T.T, u.T @ u, rtol=1e-4)  # raw products lose digits, which is what frames are for
    F = Frame.of(qr(z), shape, n)
    framed = z @ np.linalg.inv(F.F)
    g = g_of(framed, units)
    kept = tally.empty(shape).fold(block(framed, None if tally is Scores else units))
    assert_close(kept.vv, g[:, :6].T @ g[:, :6], rtol=1e-9, atol=1e-6)
    ours = kept.meat(0, np.zeros(k), F.F[k, k])  # in the frame, residuals are the last column
    assert_close(F.F[:k, :k].T @ ours @ F.F[:k, :k], u.T @ u, rtol=1e-7, atol=1e-7)
    assert_close(lift(np.eye(2), np.array([7.0, 9.0])), [[7, 9, 0], [0, 7, 9]])


def test_a_change_of_frame_is_exact() -> None:
    old, new = Frame.of(qr(z[:50]), shape, 50), Frame.of(qr(z), shape, n)
    B = old.change_to(new)
    zo, zn = z @ np.linalg.inv(old.F), z @ np.linalg.inv(new.F)
    assert_close(zo @ B, zn, atol=1e-8)
    assert_close(zn.T @ zn, n * np.eye(k + 1), atol=1e-5)
    P, C, c = lift_map(B[:k, :k]), lift(B[:k, :k].T, B[:k, k]), B[k, k]
    G = np.block([[P, np.zeros((6, 3))], [C, c * B[:k, :k].T]])
    assert_close(g_of(zo, unit) @ G.T, g_of(zn, unit), atol=1e-6)


def test_tallies_in_different_frames_merge() -> None:
    empty = ArmTally.empty(shape, {"records": Scores.empty})
    whole = empty.fold(block(z))
    both = (empty.fold(block(z[:100])) + empty.fold(block(z[100:]))).rebase(whole.frame)
    assert_close(np.abs(both.factor.R), np.abs(whole.factor.R), atol=1e-8)
    assert_close(scores(both).sums, scores(whole).sums, rtol=1e-8, atol=1e-6)


def test_a_devices_factor_stands_for_its_records() -> None:
    zn = z @ np.linalg.inv(Frame.of(qr(z), shape, n).F)
    of_factors = g_of(np.vstack([qr(zn[unit == each]) for each in range(5)]), np.repeat(np.arange(5), 4))
    assert_close(of_factors, g_of(zn[unit < 5], unit[unit < 5]), atol=1e-9)
    empty = ArmTally.empty(shape, {"units": UnitScores.empty})
    direct = empty.fold(block(z, unit))
    triangles = np.array([qr(z[unit == each]) for each in range(150)])
    [sent] = Arms(cast("fa.Plan", None), (empty,)).fold_clusters(np.zeros(150, int), np.full(150, 4), triangles).by_arm
    sent = sent.rebase(direct.frame)
    assert_close(scores(sent).sums, scores(direct).sums, rtol=1e-7, atol=1e-5)
    assert sent.n == direct.n == n
    sums = np.bincount(unit, y)
    assert_close(delta_variance(np.full(150, 4), sums), np.sum((sums - 4 * y.mean()) ** 2) / n**2, rtol=1e-9)
