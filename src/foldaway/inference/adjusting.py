"""Adjustment without keeping covariates: coefficients from a start.

Fix coefficients β₀ and means x̄₀ once. From there on a record is one number more, ỹ = y − (x − x̄₀)'β₀, and its
covariates are used and gone in the same step. The difference of means of ỹ is unbiased whatever β₀ is.

β₀ comes from earlier records, or from the first ones of the trial itself. It was fitted to those: their ỹ would lie too
close together, and an error from them would be too small. So each group of the start is mapped with coefficients
fitted without it (cross-fitting); later records get those of the whole start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.inference.group_regression import arm_weights, contrast_slopes, raw_slopes
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.group_moments import GroupMoments
from foldaway.tallies.predictor import Predictor

LEAST_PER_COLUMN = 5
"""Records per covariate column below which there is no adjustment."""

TOLD_DIGITS = 3
"""Significant digits that coefficients have once they leave memory."""


class Start(NamedTuple):
    """The outcome of a fit: a predictor for later records, the slopes without each group, or why there are none.

    Slopes are groups by outcomes by columns; None if they were fitted elsewhere, or there is no adjustment.
    """

    predictor: Predictor | None
    without: Floats | None
    why: str = ""


def rare_columns(plan: Plan, moments: GroupMoments) -> NDArray[np.intp]:
    """Columns of levels that fewer records than a cohort have, or lack: a slope of theirs would be those people's."""
    everyone = moments.moments.sum(axis=(0, 1))
    counts = everyone[0] @ moments.frame.F[:, 1 : moments.shape.row.regressors]
    few = np.minimum(counts, everyone[0, 0] - counts) < plan.privacy.cohort
    levels = np.array([name.endswith("]") and name.partition("[")[0] in plan.levels for name in plan.predictors[1:]])
    return np.flatnonzero(few & levels)


def too_few(moments: GroupMoments) -> str:
    """Why so few records are not adjusted; empty if they are enough."""
    columns = moments.shape.row.regressors - 1
    if moments.n >= LEAST_PER_COLUMN * columns:
        return ""
    needed = f"{LEAST_PER_COLUMN * columns:,}"
    return f"to adjust for {columns} columns of covariates takes {needed} records; so far there are fewer."


def fit_starts(cases: CompleteCases, plan: Plan | None = None) -> Start:
    """Coefficients for all values, each set's from the records that have it; means from those of the largest set.

    If the coefficients leave memory, they are told as the plan allows.
    """
    starts = [
        fit_start(part, rare=None if plan is None else rare_columns(plan, part), told=plan is not None)
        for part in cases.parts
    ]
    first = starts[cases.largest]
    if first.predictor is None:
        return Start(None, None, first.why)
    if len(starts) == 1:
        return first
    assert first.without is not None
    values = sum(map(len, cases.sets))
    slopes = np.zeros((values, first.predictor.slopes.shape[1]))
    without = np.zeros((len(first.without), *slopes.shape))
    for places, start in zip(cases.sets, starts, strict=True):
        if start.predictor is not None and start.without is not None:  # of too few records nothing is predicted
            slopes[list(places)], without[:, list(places)] = start.predictor.slopes, start.without
    return Start(Predictor(first.predictor.center, slopes), without)


def fit_start(moments: GroupMoments, *, rare: NDArray[np.intp] | None = None, told: bool = False) -> Start:
    """Coefficients of the outcomes on the covariates within arms, by `contrast_slopes`.

    Fitted on all records of a trial and used for all of them, they make the difference of means of ỹ the adjusted
    effect ȳ_a − ȳ_c − (x̄_a − x̄_c)'β; with arms of equal size that is the pooled regression's coefficient of the arm.
    Directions that the records do not show get 0.

    Args:
        moments: Of the start, or of earlier records in one arm and group.
        rare: Columns whose slopes are 0, whatever the records say.
        told: Whether the coefficients leave memory: they then have three digits.
    """
    _, groups, row, _ = moments.shape
    k, columns = row.regressors, row.regressors - 1
    none = np.zeros((groups, row.outcomes, columns))
    if not columns:
        return Start(None, none, "the plan has no covariates.")
    if why := too_few(moments):
        return Start(None, none, why)
    moments = moments.reframed()
    frame, whole = moments.frame, moments.moments.sum(axis=1)
    weights = arm_weights(moments)
    fits = np.concatenate([whole[None], whole - np.moveaxis(moments.moments, 1, 0)])
    slopes = np.stack(
        [raw_slopes(contrast_slopes(fits, frame, k, o, weights).coef, frame, k) for o in range(row.outcomes)], axis=1
    )
    if rare is not None:
        slopes[..., rare] = 0
    everyone = whole.sum(axis=0)
    center = everyone[0] @ frame.F[:, 1:k] / everyone[0, 0]
    if told:
        slopes = significant(slopes, TOLD_DIGITS)
        center = _coarse(center, everyone, frame.F[:, 1:k])
    return Start(Predictor(center, slopes[0]), slopes[1:])


def significant(values: Floats, digits: int) -> Floats:
    """Rounded to so many significant digits.

    Example:
        >>> significant(np.array([0.0123456, -98765.0, 0.0]), 3).tolist()
        [0.0123, -98800.0, 0.0]
    """
    with np.errstate(divide="ignore"):
        power = np.where(values != 0, np.floor(np.log10(np.abs(values))), 0) - (digits - 1)
    return np.where(
        power >= 0, np.round(values / 10.0**power) * 10.0**power, np.round(values * 10.0**-power) / 10.0**-power
    )


def _coarse(center: Floats, everyone: Floats, F: Floats) -> Floats:
    """The means to a tenth of their standard deviation or so: where ỹ is centred is of no account."""
    centred = everyone - np.outer(everyone[0], everyone[0]) / everyone[0, 0]
    variances = np.einsum("ij,ik,kj->j", F, centred, F) / everyone[0, 0]
    deviation = np.sqrt(np.maximum(variances, 0))
    with np.errstate(divide="ignore"):
        grid = np.where(deviation > 0, 10.0 ** (np.floor(np.log10(deviation)) - 1), 1.0)
    return np.where(deviation > 0, np.round(center / grid) * grid, center)
