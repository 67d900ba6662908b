"""Regression from moments by group, on all of them and without each in turn: its delete-a-group jackknife.

The slopes are those that make the variance of the arms' differences smallest (`inference/unequal_arms.py`). With arms
of equal size they are the pooled regression's.

Everything is batched over leading axes: the G fits without a group are one call. Moments are in a frame, in which the
normal equations are well conditioned; directions that the records do not show get the coefficient 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import EstimateError
from foldaway.inference.fit import COLLINEAR, directions
from foldaway.inference.jackknife import jackknifed
from foldaway.inference.levels import LEAST_GROUPS, Levels, over
from foldaway.inference.unequal_arms import by_comparison, with_freedom
from foldaway.inference.welch import Spread, spread_of, welch
from foldaway.numerics.block import Floats
from foldaway.numerics.linalg import solve_upper
from foldaway.numerics.threads import one_blas_thread
from foldaway.tallies.group_moments import GroupMoments, factor_of
from foldaway.tallies.moments.frame import NO_DIRECTION, Frame
from foldaway.tallies.predictor import Predictor, lean

# Of columns scaled to correlations, a direction below this share of them is none: half of its digits are lost.
_NO_DIRECTION = 1e-8
# And of a column in the frame, which is not squared, the root of that.
_NO_LENGTH = 1e-4


class Solved(NamedTuple):
    """Coefficients in the frame (…, k), and the number of directions that were shown (…)."""

    coef: Floats
    rank: NDArray[np.int64]


def solve(square: Floats, right: Floats, n: Floats, F: Floats) -> Solved:
    """The least-squares coefficients with square·β = right; 0 for columns that add no direction to those before them.

    Args:
        square: Σ x x' or centred products: (…, k, k), in a frame.
        right: Σ x y: (…, k).
        n: The total weight behind them: (…).
        F: The frame's part for these columns, and those that are taken out of them beforehand: at least k by k.
    """
    k = F.shape[1]
    own = F[len(F) - k :]
    with one_blas_thread():  # many small systems: threads would cost more than they bring
        least = _least((own * (square @ own)).sum(axis=-2), n, F)
        shown = np.einsum("...ii->...i", square) > least**2
        framed = _solve(square, right, shown)
    # The frame's own records do not show a column either on which none of the others leans.
    alone = ~np.triu(own, 1).any(axis=1)
    good = (framed.rank == shown.sum(axis=-1)) & np.all(shown | alone, axis=-1)
    for case in np.argwhere(~good):
        at = tuple(case)
        framed.coef[at], framed.rank[at] = _as_they_came(square[at], right[at], least[at], own)
    return framed


def _least(squares: Floats, n: Floats, F: Floats) -> Floats:
    """How long a column must be in the frame, after those before it, to be one: as `fit` has it.

    And of products more, for they are squares: in the frame that all records make, columns have mean squares of 1, and
    what is left of that within arms, or without a group, is rounding below a share.
    """
    root = np.sqrt(np.asarray(n)[..., None])
    least = np.maximum(NO_DIRECTION * root * np.linalg.norm(F, axis=0), COLLINEAR * np.sqrt(np.maximum(squares, 0)))
    framed: Floats = np.maximum(least / np.abs(np.diag(F[len(F) - F.shape[1] :])), _NO_LENGTH * root)
    return framed


def _solve(square: Floats, right: Floats, shown: NDArray[np.bool_]) -> Solved:
    """By eigenvectors of the correlations of the columns that are shown."""
    diagonal = np.einsum("...ii->...i", square)
    scale = np.where(shown, 1 / np.sqrt(np.where(shown, diagonal, 1)), 0)
    values, vectors = np.linalg.eigh(square * scale[..., :, None] * scale[..., None, :])
    real = values > _NO_DIRECTION
    inverse = np.where(real, 1 / np.where(real, values, 1), 0)
    rotated = (vectors.mT @ (scale * right)[..., None])[..., 0] * inverse
    return Solved(scale * (vectors @ rotated[..., None])[..., 0], np.asarray(real.sum(axis=-1)))


def _as_they_came(square: Floats, right: Floats, least: Floats, F: Floats) -> tuple[Floats, int]:
    """One case, by the columns as they came: in the frame, one that is all zeros here leans on others."""
    raw = factor_of(square) @ F
    used = directions(raw, least * np.abs(np.diag(F)))
    R: Floats = np.linalg.qr(raw[:, used], mode="r")  # type: ignore[assignment]
    half = solve_upper(R[::-1, ::-1].T, (right @ F)[used][::-1])[::-1]  # R'·half = the right side
    coef: Floats = F[:, used] @ solve_upper(R, half)
    return coef, len(used)


def arm_weights(moments: GroupMoments) -> Floats:
    """How much each arm's products count for the slopes: see `by_comparison`.

    Scaled so that they add up to as much as the records, by which columns are found to have a direction.
    """
    second = moments.moments if moments.squared is None else moments.squared
    weight, mass = (each[..., 0, 0].sum(axis=1) for each in (moments.moments, second))
    each = by_comparison(weight, mass)
    scaled: Floats = each * np.nan_to_num(over(weight.sum(), np.sum(each * weight)))
    return scaled


def contrast_slopes(moments: Floats, frame: Frame, k: int, outcome: int, weights: Floats) -> Solved:
    """Slopes of the outcome, as it came, on the framed covariates, with an intercept per arm.

    Centring each arm's moments at its own means takes the arms' intercepts out (Frisch and Waugh). What is left, added
    up over arms as often as `arm_weights` of all records says, are the normal equations of the slopes. Moments are
    (…, A, K, K), in the frame.
    """
    within = np.einsum("a,...aij->...ij", weights, _within(moments))
    right = within[..., 1:k, 1:] @ frame.F[1:, k + outcome]
    weight = moments[..., 0, 0].sum(axis=-1)
    return solve(within[..., 1:k, 1:k], right, weight, frame.F[:k, 1:k])


def _within(moments: Floats) -> Floats:
    """The products about each arm's means: (…, A, K, K)."""
    weight, first = moments[..., 0, 0], moments[..., 0, :]
    safe = np.where(weight > 0, weight, 1)
    within: Floats = moments - first[..., :, None] * first[..., None, :] / safe[..., None, None]
    return within


def left_out(moments: GroupMoments) -> list[int]:
    """The covariates that add no direction to those before them, within arms."""
    moments, k = moments.reframed(), moments.shape.row.regressors
    F, whole = moments.frame.F[:k, 1:k], moments.moments.sum(axis=1)
    square = np.einsum("a,aij->ij", arm_weights(moments), _within(whole))[1:k, 1:k]
    least = _least(np.einsum("ji,jl,li->i", F[1:], square, F[1:]), whole[:, 0, 0].sum(), F)
    raw = factor_of(square) @ F[1:]
    used = directions(raw, least * np.abs(np.diag(F[1:])))
    return [column for column in range(k - 1) if column not in used]


def raw_slopes(slopes: Floats, frame: Frame, k: int) -> Floats:
    """Slopes on the covariates as they came."""
    raw: Floats = slopes @ np.linalg.inv(frame.F[1:k, 1:k]).T
    return raw


def regression_levels(
    moments: Floats, frame: Frame, k: int, outcome: int, weights: Floats, *, recentred: bool = True
) -> tuple[Floats, NDArray[np.int64]]:
    """The arms' levels by regression at the overall means of the covariates, (…, A), and its rank.

    They are less the outcome's level in the frame, which would cost what varies its digits.

    A statistic of moments as `adjusted_mean` is one of sums: with coefficients from these very records, λ = 1. If not
    recentred, the levels are those at the frame's origin, which no difference depends on.
    """
    slopes = contrast_slopes(moments, frame, k, outcome, weights)
    weight = moments[..., 0, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = moments[..., 0, :] / weight[..., None]
        overall = moments[..., 0, :].sum(axis=-2) / weight.sum(axis=-1)[..., None]
        away = means[..., 1:k] - (overall[..., None, 1:k] if recentred else 0.0)
        levels = means[..., 1:] @ frame.F[1:, k + outcome] - np.einsum("...ai,...i->...a", away, slopes.coef)
    return levels, slopes.rank


class LeftOut(NamedTuple):
    """A regression's levels with all groups, and without each; and in how many groups it could be fitted, by arm.

    The levels are those less one that all share.
    """

    value: Floats
    without: Floats
    shown: Floats
    level: float


def left_out_levels(moments: GroupMoments, outcome: int, *, recentred: bool = True) -> LeftOut:
    """The regression's levels on all records, and with the coefficients fitted anew without each group."""
    k, weights = moments.shape.row.regressors, arm_weights(moments)
    whole = moments.moments.sum(axis=1)
    value, rank = regression_levels(whole, moments.frame, k, outcome, weights, recentred=recentred)
    without = whole - np.moveaxis(moments.moments, 1, 0)
    levels, ranks = regression_levels(without, moments.frame, k, outcome, weights, recentred=recentred)
    weight = moments.moments[..., 0, 0]
    # A direction that only one group shows leaves its coefficient, and the levels, without an error.
    shown = (weight > 0).sum(axis=1) if np.all(ranks == rank) else np.zeros(len(value))
    return LeftOut(value, levels, shown, float(moments.frame.F[0, k + outcome]))


def jackknife_regression(moments: GroupMoments, outcome: int, *, recentred: bool = True) -> Levels:
    """The regression's levels, and their covariance with the coefficients fitted anew without each group."""
    value, without, shown, level = left_out_levels(moments, outcome, recentred=recentred)
    levels = jackknifed(value, without, moments.moments[..., 0, 0].T)
    return levels._replace(value=level + value, n=moments.records.sum(axis=1), groups=shown, away=value)


def spent_by_slopes(moments: GroupMoments) -> Floats:
    """How many slopes each arm has chosen, (A,), which add up to the rank: `Coefficients.freedom`."""
    k, frame, whole = moments.shape.row.regressors, moments.frame, moments.moments.sum(axis=1)
    each = arm_weights(moments)[:, None, None] * _within(whole)[:, 1:k, 1:k]
    square = np.broadcast_to(each.sum(axis=0), (len(each), k - 1, k - 1, k - 1))
    weight = np.full(square.shape[:2], whole[:, 0, 0].sum())
    spent: Floats = np.einsum("ajj->a", solve(square, np.swapaxes(each, -1, -2), weight, frame.F[:k, 1:k]).coef)
    return spent


def regression_welch(moments: GroupMoments, outcome: int) -> Levels:
    """The regression's levels, and their covariance for independent records.

    A level is ȳ_a − (x̄_a − x̄)'β. It varies as Welch's formula has it for the residuals; `with_freedom` allows for
    slopes that each arm has chosen, and for what they vary themselves. That x̄ is the mean of a sample adds
    β' Var(x̄) β to every entry alike, which matters for relative effects alone.
    """
    row, frame, whole = moments.shape.row, moments.frame, moments.moments.sum(axis=1)
    k, weights = row.regressors, arm_weights(moments)
    value, _ = regression_levels(whole, frame, k, outcome, weights)
    slopes = np.zeros((row.outcomes, k - 1))
    slope = contrast_slopes(whole, frame, k, outcome, weights).coef
    slopes[outcome] = raw_slopes(slope, frame, k)
    both = spread_of(lean(moments, Predictor(np.zeros(k - 1), slopes)), outcome)
    residuals = Spread(both.n, both.weight, both.mean[:, 1:], both.products[:, 1:, 1:], both.level[1:], both.effective)
    own = welch(residuals)
    # An arm without spread, or without records, takes nothing away from what is known of the others.
    own = own._replace(covariance=np.diag(np.nan_to_num(np.diag(own.covariance))), doubt=np.nan_to_num(own.doubt))
    own = with_freedom(own, spent_by_slopes(moments), both.effective)
    overall = whole[:, 0, 1:k].sum(axis=0) / both.weight.sum()
    squared = (moments.moments if moments.squared is None else moments.squared).sum(axis=(0, 1))[:k, :k]
    centred = np.eye(k)[:, 1:] - np.outer(np.eye(k)[0], overall)  # x − x̄ of a row [1, x]
    common = slope @ centred.T @ squared @ centred @ slope / both.weight.sum() ** 2
    level = frame.F[0, k + outcome]
    return own._replace(value=level + value, covariance=own.covariance + common, n=both.n, away=value)


def jackknife_least_squares(moments: GroupMoments) -> Floats:
    """The jackknife covariance of least squares on any design, one arm and outcome: clusters may come in any order.

    Raises:
        EstimateError: If fewer than five groups have rows, or some coefficient rests on one group alone.
    """
    k, frame, groups = moments.shape.row.regressors, moments.frame, moments.shape.groups
    whole = moments.moments.sum(axis=(0, 1))
    each = moments.moments.sum(axis=0)
    records = moments.records.sum(axis=0)
    if np.sum(records > 0) < LEAST_GROUPS:
        raise EstimateError(f"a jackknife needs clusters in at least {LEAST_GROUPS} groups.")
    all_and_without = np.concatenate([whole[None], whole - each])
    right = all_and_without[:, :k] @ frame.F[:, k]
    n = np.concatenate([[records.sum()], records.sum() - records])
    solved = solve(all_and_without[:, :k, :k], right, n, frame.F[:k, :k])
    if np.any(solved.rank[1:] < solved.rank[0]):
        raise EstimateError(
            "a coefficient rests on the clusters of one group alone, so a jackknife has no error for it."
        )
    coef = np.linalg.solve(frame.F[:k, :k], solved.coef.T).T
    away = coef[1:] - coef[1:].mean(axis=0)
    covariance: Floats = (groups - 1) / groups * away.T @ away
    return covariance
